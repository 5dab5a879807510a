/* An object that is taken into memory: its rows, and whether its data file is the one they tell of. */
#ifndef PS_STORE_OBJECT_LOAD_H
#define PS_STORE_OBJECT_LOAD_H

#include "store/store_private.h"

/* Fills a LOADING object, whose id nobody else can use meanwhile, and makes it READY, with nothing in it if
 * row or file are of no use. Without store->lock. Blocks on the index and on the disk. */
void ps_object_load(struct ps_object *object);

#endif
