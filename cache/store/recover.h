/* What a start finds: rows and data files are brought together before anybody is served. Blocks on disk. */
#ifndef PS_STORE_RECOVER_H
#define PS_STORE_RECOVER_H

#include "store/datafile_scan.h"
#include "store/store_private.h"

/* Fills the table from the index; deletes data files that no row names, and rows whose file is gone or whose
 * text is damaged. Only for a directory with our marker. */
int ps_recover(struct ps_store *store, struct ps_scan *scan, struct ps_error *err) PS_MUST_USE;

#endif
