# PS_PYTHON: whether the Python module can be built: sets PYTHON_CPPFLAGS, BUILD_PYTHON, python_says.
AC_DEFUN([PS_PYTHON], [
AC_ARG_WITH([python],
  [AS_HELP_STRING([--with-python=auto|yes|no], [build the loader's Python module @<:@auto@:>@])],
  [], [with_python=auto])
build_python=no
AS_IF([test "x$with_python" = xno], [python_says="no (--without-python)"],
      [test "x$enable_loader" = xno], [python_says="no (--disable-loader)"],
      [
  AM_PATH_PYTHON([3.10], [], [PYTHON=:])
  python_include=
  AS_IF([test "x$PYTHON" = x:], [python_says="no (needs Python 3.10 or newer)"], [
    python_include=`"$PYTHON" -c 'import sysconfig; print(sysconfig.get_path("include"))'`
    python_says="no ($PYTHON has no Python.h: install python3-dev)"
    ps_save_CPPFLAGS=$CPPFLAGS
    CPPFLAGS="$CPPFLAGS -I$python_include"
    AC_CHECK_HEADER([Python.h],
      [build_python=yes
       PYTHON_CPPFLAGS="-I$python_include"
       python_says="yes: the package penstock, for Python 3.10 and newer"])
    CPPFLAGS=$ps_save_CPPFLAGS
  ])
])
AS_IF([test "x$with_python" = xyes && test "x$build_python" = xno],
  [AC_MSG_ERROR([--with-python: $python_says])])
AC_SUBST([PYTHON_CPPFLAGS])
AM_CONDITIONAL([BUILD_PYTHON], [test "x$build_python" = xyes])
])
