/* libfuse's low-level API, in one version for all of fs/. */
#ifndef PS_FUSE_FUSE_API_H
#define PS_FUSE_FUSE_API_H

#define FUSE_USE_VERSION 312
#include <fuse_lowlevel.h>

/* From 3.17 on libfuse itself knows passthrough and direct I/O with mmap. */
#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 17)
#define PS_FUSE_KNOWS_PASSTHROUGH 1
#else
#define PS_FUSE_KNOWS_PASSTHROUGH 0
#endif

#endif
