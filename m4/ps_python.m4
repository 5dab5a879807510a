# PS_PYTHON_PLACE: where below the prefix this Python looks for packages. Automake says lib/pythonX.Y/site-packages, which is
# not where Debian's and Ubuntu's look. python_says where it goes, and if it is not looked for there.
AC_DEFUN([PS_PYTHON_PLACE], [
  ps_prefix=$prefix
  AS_IF([test "x$ps_prefix" = xNONE], [ps_prefix=$ac_default_prefix])
  ps_python_place=`"$PYTHON" -c '
import site, sys
prefix = sys.argv[[1]].rstrip("/")
places = getattr(site, "getsitepackages", list)() + sys.path
print(next((p[[len(prefix):]] for p in places if p.startswith(prefix + "/lib/") and p.endswith("-packages")), ""))' \
    "$ps_prefix"`
  AS_IF([test "x$build_python" = xyes && test "x$exec_prefix" = xNONE], [
    AS_IF([test -n "$ps_python_place"], [
      pythondir='${prefix}'$ps_python_place
      pyexecdir=$pythondir
      python_says="yes: the package penstock, into $ps_prefix$ps_python_place"], [
      python_says="yes: the package penstock; $PYTHON looks nowhere below $ps_prefix: PYTHONPATH=$ps_prefix/lib/python$PYTHON_VERSION/site-packages"])])
])

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
       # Free-threaded Pythons have no stable ABI.
       python_abi=-DPy_LIMITED_API=0x030B0000
       ps_python_gil='import sys, sysconfig; sys.exit(not sysconfig.get_config_var("Py_GIL_DISABLED"))'
       AS_IF(["$PYTHON" -c "$ps_python_gil"], [python_abi=])
       PYTHON_CPPFLAGS="-I$python_include $python_abi"
       python_says="yes: the package penstock, for Python 3.10 and newer"])
    CPPFLAGS=$ps_save_CPPFLAGS
    PS_PYTHON_PLACE
  ])
])
AS_IF([test "x$with_python" = xyes && test "x$build_python" = xno],
  [AC_MSG_ERROR([--with-python: $python_says])])
AC_SUBST([PYTHON_CPPFLAGS])
AM_CONDITIONAL([BUILD_PYTHON], [test "x$build_python" = xyes])
])
