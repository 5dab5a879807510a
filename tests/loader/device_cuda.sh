#!/usr/bin/env bash
# The CUDA device against a driver that is none: what it calls, in which order, in which context. A GPU's own driver is
# for `make check-gpu`.
. "$(dirname "$0")/../lib.sh"

mkdir "$T/mock"
cp -L "$top_builddir/tests/loader/.libs/libmockcuda.so" "$T/mock/libcuda.so.1"
# The wrapper script of a program that is not installed keeps what stands in LD_LIBRARY_PATH, behind its own.
run() { LD_LIBRARY_PATH=$T/mock:${LD_LIBRARY_PATH-} PENSTOCK_TEST_DEVICE=cuda "$top_builddir/tests/loader/device_test"; }

CMOCKA_MESSAGE_OUTPUT=TAP run >"$T/out" 2>"$T/err" && rc=0 || rc=$?
equal "the program ends well" 0 "$rc"
grep -E '^(not )?ok ' "$T/out" >"$T/lines" || true
at_least "its tests ran" 10 "$(wc -l <"$T/lines")"
while read -r line; do
	name=${line#*- }
	case $line in
	*SKIP*) fail "$name" "skipped, though the mock has it" ;;
	ok*) pass "$name" ;;
	*) fail "$name" "$(cat "$T/out" "$T/err")" ;;
	esac
done <"$T/lines"
