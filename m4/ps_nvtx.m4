# PS_NVTX: whether ranges for profilers are built in: defines HAVE_NVTX, sets nvtx_says. Headers alone; after PS_CUDA.
AC_DEFUN([PS_NVTX], [
  nvtx_says="no (--with-cuda=no)"
  AS_IF([test "x$with_cuda" != xno && test "x$enable_loader" != xno], [
    ps_save_CPPFLAGS=$CPPFLAGS
    CPPFLAGS="$CPPFLAGS $CUDA_CFLAGS"
    AC_CHECK_HEADER([nvtx3/nvToolsExt.h], [
      nvtx_says=yes
      AC_DEFINE([HAVE_NVTX], [1], [NVTX's headers are there: stages show as ranges in profilers])
    ], [nvtx_says="no (nvtx3/nvToolsExt.h, of the CUDA Toolkit, was not found)"])
    CPPFLAGS=$ps_save_CPPFLAGS
  ])
  AM_CONDITIONAL([HAVE_NVTX], [test "x$nvtx_says" = xyes])
])
