#!/usr/bin/env bash
# Libraries that contain their install folder are linked again when configure gets another prefix.
. "$(dirname "$0")/../lib.sh"
requires make
grep -q '^pkgpyexec_LTLIBRARIES = .' "$top_builddir/Makefile" || skip_all "the Python module is not built"

# What make would do if the stamp file of the folder were new.
(cd "$top_builddir" && make -n -W loader/libdir.stamp V=1 loader/python/_penstock.la) >"$T/out" 2>&1 || true
check "the library is linked again" grep -q -- "-o loader/libpenstock.la -rpath" "$T/out"
check "the Python module, which has the library's folder, is linked again" \
	grep -q -- "-o loader/python/_penstock.la" "$T/out"

# config.status writes the stamp file.
cp "$top_builddir/config.status" "$T/"
mkdir "$T/loader"
note() { (cd "$T" && ./config.status --quiet loader/libdir.stamp); }
echo "/elsewhere" >"$T/loader/libdir.stamp"
check "config.status succeeds with another folder in the stamp file" note
check "the stamp file is written if the folder is another one" \
	cmp "$T/loader/libdir.stamp" "$top_builddir/loader/libdir.stamp"
touch -d 2001-01-01 "$T/loader/libdir.stamp"
check "config.status succeeds with the same folder in the stamp file" note
equal "the stamp file is not written if the folder is the same" 2001 "$(date -r "$T/loader/libdir.stamp" +%Y)"
