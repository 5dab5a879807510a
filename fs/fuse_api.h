/* libfuse's low-level API, in one version for all of fs/. */
#ifndef PS_FUSE_API_H
#define PS_FUSE_API_H

#define FUSE_USE_VERSION 312
#include <fuse_lowlevel.h>

#endif
