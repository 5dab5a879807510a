# PS_CFLAG(VARIABLE, FLAG): append FLAG to VARIABLE if the compiler takes it without a word.
AC_DEFUN([PS_CFLAG], [
  AS_VAR_PUSHDEF([cachevar], [ps_cv_cflag_$2])
  AC_CACHE_CHECK([whether $CC takes $2], [cachevar], [
    ps_save_CFLAGS=$CFLAGS
    CFLAGS="$CFLAGS -Werror $2"
    AC_COMPILE_IFELSE([AC_LANG_PROGRAM([], [])], [AS_VAR_SET([cachevar], [yes])], [AS_VAR_SET([cachevar], [no])])
    CFLAGS=$ps_save_CFLAGS
  ])
  AS_VAR_IF([cachevar], [yes], [AS_VAR_APPEND([$1], [" $2"])])
  AS_VAR_POPDEF([cachevar])
])

AC_DEFUN([PS_ARG_WERROR], [
  AC_ARG_ENABLE([werror], [AS_HELP_STRING([--enable-werror], [treat warnings as errors])], [],
    [enable_werror=no])
])

AC_DEFUN([PS_WARNING_FLAGS], [
  WARN_CFLAGS=
  m4_foreach_w([flag], [-Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wold-style-definition
    -Wpointer-arith -Wwrite-strings -Wvla -Wundef -Wformat=2 -Wimplicit-fallthrough -Wnull-dereference
    -Wno-missing-field-initializers -fno-common -fvisibility=hidden],
    [PS_CFLAG([WARN_CFLAGS], [flag])])
  AS_IF([test "x$enable_werror" = xyes], [WARN_CFLAGS="$WARN_CFLAGS -Werror"])
  AC_SUBST([WARN_CFLAGS])
])

# --enable-sanitizers=address,undefined | thread
AC_DEFUN([PS_ARG_SANITIZERS], [
  AC_ARG_ENABLE([sanitizers],
    [AS_HELP_STRING([--enable-sanitizers=LIST], [build with -fsanitize=LIST (address,undefined or thread)])],
    [], [enable_sanitizers=no])
])

AC_DEFUN([PS_SANITIZER_FLAGS], [
  AS_CASE([$enable_sanitizers],
    [no], [ps_sanitizers=],
    [yes], [ps_sanitizers=address,undefined],
    [ps_sanitizers=$enable_sanitizers])
  SANITIZER_CFLAGS=
  PROGRAM_SECONDS=300 SCRIPT_SECONDS=
  AS_IF([test -n "$ps_sanitizers"], [
    SANITIZER_CFLAGS="-fsanitize=$ps_sanitizers -fno-omit-frame-pointer -fno-sanitize-recover=all"
    PROGRAM_SECONDS=1200 SCRIPT_SECONDS=480
    ps_save_CFLAGS=$CFLAGS
    CFLAGS="$CFLAGS $SANITIZER_CFLAGS"
    AC_LINK_IFELSE([AC_LANG_PROGRAM([], [])], [],
      [AC_MSG_ERROR([$CC cannot build with -fsanitize=$ps_sanitizers])])
    CFLAGS=$ps_save_CFLAGS
    AC_DEFINE_UNQUOTED([PS_SANITIZERS], ["$ps_sanitizers"], [Sanitizers this was built with.])
  ])
  AC_SUBST([SANITIZER_CFLAGS])
  # What a test may take before it counts as hung; scripts know by themselves...
  AC_SUBST([PROGRAM_SECONDS])
  AC_SUBST([SCRIPT_SECONDS])
])

# --enable-fuzzing: fuzz targets are libFuzzer programs (clang); otherwise they replay files.
AC_DEFUN([PS_ARG_FUZZING], [
  AC_ARG_ENABLE([fuzzing],
    [AS_HELP_STRING([--enable-fuzzing], [build the fuzz targets with libFuzzer (CC=clang); without it they replay a corpus])],
    [], [enable_fuzzing=no])
])

AC_DEFUN([PS_FUZZING_FLAGS], [
  FUZZ_CFLAGS= FUZZ_LDFLAGS=
  ps_fuzzing_says="no: targets replay their corpus in make check"
  AS_IF([test "x$enable_fuzzing" = xyes], [
    ps_save_CFLAGS=$CFLAGS
    CFLAGS="$CFLAGS -fsanitize=fuzzer-no-link"
    AC_LINK_IFELSE([AC_LANG_PROGRAM([], [])], [],
      [AC_MSG_ERROR([--enable-fuzzing needs CC=clang with libFuzzer (clang, libclang-rt-dev)])])
    CFLAGS=$ps_save_CFLAGS
    FUZZ_CFLAGS="-fsanitize=fuzzer-no-link"
    FUZZ_LDFLAGS="-fsanitize=fuzzer"
    ps_fuzzing_says="yes: libFuzzer"
  ])
  AM_CONDITIONAL([FUZZING], [test "x$enable_fuzzing" = xyes])
  AC_SUBST([FUZZ_CFLAGS])
  AC_SUBST([FUZZ_LDFLAGS])
])

# A linker that takes a third of the time of the usual one, for the many small programs of `make check`: by CMOCKA_LIBS.
AC_DEFUN([PS_LINK_FAST], [
  AC_MSG_CHECKING([for a fast linker for tests])
  ps_link_fast=
  ps_save_LDFLAGS=$LDFLAGS
  for ps_flag in -fuse-ld=gold -fuse-ld=lld; do
    AS_IF([test -z "$ps_link_fast"], [
      LDFLAGS="$ps_save_LDFLAGS $ps_flag"
      AC_LINK_IFELSE([AC_LANG_PROGRAM([], [])], [ps_link_fast=$ps_flag])
    ])
  done
  LDFLAGS=$ps_save_LDFLAGS
  AC_MSG_RESULT([${ps_link_fast:-none}])
  CMOCKA_LIBS="$CMOCKA_LIBS $ps_link_fast"
])

# PS_PKG(PREFIX, MODULES, DEBIAN-PACKAGE, MISSING-VARIABLE)
AC_DEFUN([PS_PKG], [
  PKG_CHECK_MODULES([$1], [$2], [], [AS_VAR_APPEND([$4], [" $3"])])
])

# PS_FORMAT(VAR, MODULE, FORMAT, PACKAGE): an optional format of compressed shards. Sets VAR_CFLAGS and VAR_LIBS, defines HAVE_VAR,
# and adds to formats_say.
AC_DEFUN([PS_FORMAT], [
  AS_IF([test "x$enable_loader" != xno], [
    PKG_CHECK_MODULES([$1], [$2],
      [AC_DEFINE([HAVE_$1], [1], [Shards compressed by $3 can be read])
       AS_VAR_APPEND([formats_say], [", $3"])],
      [AS_VAR_APPEND([formats_say], [", not $3 (install $4)"])])
  ])
])

# PS_PKG_OPTIONAL(PREFIX, NAME, MODULES, DEBIAN-PACKAGE): --with-NAME=auto|yes|no; HAVE_PREFIX, and NAME_says for the
# summary.
AC_DEFUN([PS_PKG_OPTIONAL], [
  AC_ARG_WITH([$2], [AS_HELP_STRING([--with-$2=auto|yes|no], [decode $2 images @<:@auto@:>@])], [], [with_$2=auto])
  AS_IF([test "x$with_$2" = xno], [$2_says="no: --without-$2"], [
    PKG_CHECK_MODULES([$1], [$3],
      [$2_says=yes
       AC_DEFINE([HAVE_$1], [1], [Whether $2 images are decoded.])],
      [$2_says="no: install $4"
       AS_IF([test "x$with_$2" = xyes], [AC_MSG_ERROR([--with-$2: $3 was not found; install $4])])])
  ])
])

# --disable-jpeg-entropy: our entropy decoder of JPEGs needs a struct of libjpeg-turbo's jpegint.h. Sets
# jpeg_entropy_says.
AC_DEFUN([PS_ARG_JPEG_ENTROPY], [
  AC_ARG_ENABLE([jpeg-entropy],
    [AS_HELP_STRING([--disable-jpeg-entropy],
      [leave entropy decoding of JPEGs to libjpeg: slower, and nothing of its internals is used])],
    [], [enable_jpeg_entropy=auto])
  AS_IF([test "x$enable_loader" = xno], [enable_jpeg_entropy=no])
  AS_IF([test "x$enable_jpeg_entropy" = xno], [jpeg_entropy_says="libjpeg's (--disable-jpeg-entropy)"], [
    ps_save_CFLAGS=$CFLAGS
    CFLAGS="$CFLAGS $JPEG_CFLAGS"
    AC_CHECK_MEMBER([struct jpeg_entropy_decoder.decode_mcu], [
      jpeg_entropy_says="penstock's, if the libjpeg that is loaded passes a check; else libjpeg's"
      AC_DEFINE([PS_JPEG_ENTROPY], [1], [Define to 1 to decode the entropy of JPEGs in place of libjpeg.])
    ], [
      jpeg_entropy_says="libjpeg's (no jpegint.h of libjpeg-turbo)"
      AS_IF([test "x$enable_jpeg_entropy" = xyes],
        [AC_MSG_ERROR([--enable-jpeg-entropy needs jpegint.h of libjpeg-turbo (libjpeg62-turbo-dev has it)])])
    ], [[#include <stdio.h>
#include <jpeglib.h>
#include <jpegint.h>]])
    CFLAGS=$ps_save_CFLAGS
  ])
])

# --with-cuda: the toolkit's headers. The driver is opened at run time (dlopen), never linked.
AC_DEFUN([PS_CUDA], [
  AC_ARG_VAR([NVJPEG_CFLAGS], [-I of nvjpeg.h, for a test, where the toolkit has none (Python's package nvidia-nvjpeg has one)])
  have_nvjpeg_h=no
  cuda_says="yes; not compared with a toolkit (--with-cuda=no)"
  have_cuda=no
  AS_IF([test "x$with_cuda" != xno && test "x$enable_loader" != xno], [
    AS_CASE([$with_cuda], [auto|yes], [ps_cuda_root=${CUDA_HOME:-/usr/local/cuda}], [ps_cuda_root=$with_cuda])
    AS_IF([test -f "$ps_cuda_root/include/cuda.h"], [CUDA_CFLAGS="-isystem $ps_cuda_root/include"], [CUDA_CFLAGS=])
    ps_save_CPPFLAGS=$CPPFLAGS
    CPPFLAGS="$CPPFLAGS $CUDA_CFLAGS"
    AC_CHECK_HEADER([cuda.h], [have_cuda=yes])
    CPPFLAGS="$CPPFLAGS $NVJPEG_CFLAGS"
    AC_CHECK_HEADER([nvjpeg.h], [have_nvjpeg_h=$have_cuda])
    CPPFLAGS=$ps_save_CPPFLAGS
    AS_IF([test "x$have_cuda" = xyes], [
      cuda_says="yes; driver's functions compared with the toolkit in ${ps_cuda_root}"
    ], [test "x$with_cuda" != xauto], [
      AC_MSG_ERROR([--with-cuda=$with_cuda: cuda.h not found; install the CUDA Toolkit or name its folder])
    ], [cuda_says="yes; not compared with a toolkit (none found; --with-cuda=PATH names one)"])
  ], [test "x$enable_loader" = xno], [cuda_says="no (--disable-loader)"])
  AC_SUBST([CUDA_CFLAGS])
  AM_CONDITIONAL([HAVE_CUDA], [test "x$have_cuda" = xyes])
  AM_CONDITIONAL([HAVE_NVJPEG_H], [test "x$have_nvjpeg_h" = xyes])
])

# --with-cuda-arch: kernels for GPUs, compiled by nvcc. Sets NVCC, NVCC_ARCH_FLAGS, NVCC_PTX_ARCHS (what they
# name), HAVE_NVCC, kernels_say.
AC_DEFUN([PS_CUDA_KERNELS], [
  AC_ARG_WITH([cuda-arch],
    [AS_HELP_STRING([--with-cuda-arch=LIST],
      [compute capabilities that kernels are compiled for, as 80,90 (others from 75 on: the driver compiles); no: no kernels @<:@those that nvcc knows of 75,80,90,100,120@:>@])],
    [], [with_cuda_arch=auto])
  AC_ARG_VAR([NVCC], [the CUDA compiler])
  kernels_say="no (--disable-loader)"
  have_nvcc=no
  NVCC_ARCH_FLAGS=
  NVCC_PTX_ARCHS=
  AS_IF([test "x$enable_loader" = xno], [],
    [test "x$with_cuda" = xno || test "x$with_cuda_arch" = xno], [kernels_say="no: --with-cuda=no or --with-cuda-arch=no"],
    [
    AS_CASE([$with_cuda], [auto|yes], [ps_cuda_root=${CUDA_HOME:-/usr/local/cuda}], [ps_cuda_root=$with_cuda])
    AC_PATH_PROG([NVCC], [nvcc], [], [$ps_cuda_root/bin$PATH_SEPARATOR$PATH])
    kernels_say="no (no nvcc was found: pixels are finished on the CPU; NVCC=PATH names one)"
    AS_IF([test -n "$NVCC"], [
      ps_archs=`echo "$with_cuda_arch" | tr ',;' '  '`
      AS_IF([test "x$with_cuda_arch" = xauto], [
        ps_archs=
        ps_known=`"$NVCC" --list-gpu-arch 2>/dev/null`
        for ps_arch in 75 80 90 100 120; do
          AS_CASE([" "`echo $ps_known`" "], [*" compute_$ps_arch "*], [ps_archs="$ps_archs $ps_arch"])
        done
      ])
      ps_first=
      for ps_arch in $ps_archs; do
        AS_IF([test -z "$ps_first" || test "$ps_arch" -lt "$ps_first" 2>/dev/null], [ps_first=$ps_arch])
        NVCC_ARCH_FLAGS="$NVCC_ARCH_FLAGS -gencode arch=compute_$ps_arch,code=sm_$ps_arch"
        NVCC_PTX_ARCHS="$NVCC_PTX_ARCHS $ps_arch"
      done
      NVCC_ARCH_FLAGS="$NVCC_ARCH_FLAGS -gencode arch=compute_$ps_first,code=compute_$ps_first"
      AC_MSG_CHECKING([whether $NVCC compiles for$ps_archs])
      echo 'extern "C" __global__ void k(const __grid_constant__ int a) { (void)a; }' >conftest.cu
      AS_IF([test -n "$ps_first" && "$NVCC" -fatbin -std=c++17 $NVCC_ARCH_FLAGS conftest.cu -o conftest.fatbin >&AS_MESSAGE_LOG_FD 2>&1],
        [have_nvcc=yes
         kernels_say="yes: for`echo "$ps_archs" | sed 's/\([[0-9]]\)\([[0-9]]\)\>/\1.\2/g'`, others by the driver from PTX of `echo "$ps_first" | sed "s|\\(.\\)\$|.\\1|"` on"],
        [kernels_say="no ($NVCC cannot compile them: see config.log)"])
      rm -f conftest.cu conftest.fatbin
      AC_MSG_RESULT([$have_nvcc])
    ])
    AS_IF([test "x$have_nvcc" = xno && test "x$with_cuda_arch" != xauto],
      [AC_MSG_ERROR([--with-cuda-arch=$with_cuda_arch: kernels: $kernels_say])])
    AS_IF([test "x$have_nvcc" = xyes],
      [AC_DEFINE([HAVE_CUDA_KERNELS], [1], [Whether kernels for GPUs are part of the library.])])
  ])
  AC_SUBST([NVCC_ARCH_FLAGS])
  AC_SUBST([NVCC_PTX_ARCHS])
  AM_CONDITIONAL([HAVE_NVCC], [test "x$have_nvcc" = xyes])
])
