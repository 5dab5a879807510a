#!/usr/bin/env bash
# What is linked to be installed somewhere is linked again when configure got another prefix.
. "$(dirname "$0")/../lib.sh"
requires make
grep -q '^pkgpyexec_LTLIBRARIES = .' "$top_builddir/Makefile" || skip_all "the Python module is not built"

# What make would do if the note of that place were new.
(cd "$top_builddir" && make -n -W loader/libdir.stamp V=1 loader/python/_penstock.la) >"$T/out" 2>&1 || true
check "the library" grep -q -- "-o loader/libpenstock.la -rpath" "$T/out"
check "and the Python module that finds it by its place" grep -q -- "-o loader/python/_penstock.la" "$T/out"

# The note, by the files of configure.
cp "$top_builddir/config.status" "$T/"
mkdir "$T/loader"
note() { (cd "$T" && ./config.status --quiet loader/libdir.stamp); }
echo "/elsewhere" >"$T/loader/libdir.stamp"
check "the note is written" note
check "if the place is another one" cmp "$T/loader/libdir.stamp" "$top_builddir/loader/libdir.stamp"
touch -d 2001-01-01 "$T/loader/libdir.stamp"
check "and left alone" note
equal "if it is not" 2001 "$(date -r "$T/loader/libdir.stamp" +%Y)"
