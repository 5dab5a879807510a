#!/usr/bin/env bash
# What is linked to be installed somewhere is linked again when configure was told another place.
. "$(dirname "$0")/../lib.sh"
requires make
grep -q '^pkgpyexec_LTLIBRARIES = .' "$top_builddir/Makefile" || skip_all "the Python module is not built"

# What make would do if Makefile were new, and the libraries' folder another.
(cd "$top_builddir" && make -n -W Makefile V=1 libdir=/elsewhere/lib loader/python/_penstock.la) >"$T/out" 2>&1 || true
check "the library" grep -q -- "-o loader/libpenstock.la -rpath /elsewhere/lib" "$T/out"
check "and the Python module that finds it by its place" grep -q -- "-o loader/python/_penstock.la" "$T/out"
(cd "$top_builddir" && make -q loader/python/_penstock.la) >"$T/out" 2>&1 && rc=0 || rc=$?
equal "else nothing" 0 "$rc"
