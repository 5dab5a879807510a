/* doctor --machine: what of this machine stands in the way of a loader.
 *
 * Ownership: none.   Threads: the main one.   Blocks: on the folder's disk, about two seconds. */
#ifndef PS_TOOLS_DOCTOR_MACHINE_H
#define PS_TOOLS_DOCTOR_MACHINE_H

#include <stdbool.h>

/* Looks, prints; the exit status: PS_EXIT_FAILED if something stands in the way. `folder`: whose disk is measured. */
int ps_doctor_machine(const char *folder, bool json);

#endif
