#!/usr/bin/env bash
# The measurements of a GPU run on a driver that is none, with tiny sizes, and say that these are no figures;
# without a driver they and check-gpu skip, and say so. From the tree, and from a copy for another machine.
. "$(dirname "$0")/../lib.sh"
requires python:numpy python:torch slow
mock_kernels

mkdir "$T/mock"
cp -L "$top_builddir/tests/loader/.libs/libmockcuda.so" "$T/mock/libcuda.so.1"
cp -L "$top_builddir/tests/loader/.libs/libmocknvjpeg.so" "$T/mock/libnvjpeg.so.12"
[[ -e $top_builddir/loader/python/.libs/_penstock.so ]] || skip_all "the Python module was not built"

# rows FILE: the rows that were measured.
rows() { "$python" -c 'import json, sys
print(sum(r["ok"] is not None for r in json.load(open(sys.argv[1]))["rows"]))' "$1"; }

check "it runs on a stand-in" "$python" "$top_srcdir/tests/bench/gpu" --quick --turns 1 --seconds 0.01 \
	--stand-in "$T/mock" --json "$T/all.json"
equal "all rows but what needs a GPU of torch were measured" 16 "$(rows "$T/all.json")"
check "they are called no figures" grep -q '"figures": false' "$T/all.json"
"$python" "$top_srcdir/tests/bench/gpu" --quick --turns 1 --seconds 0.01 --stand-in "$T/mock" \
	--rows next >"$T/out" 2>&1 || true
check "also for people" grep -q 'stand-in, no figures' "$T/out"
rc=0
"$python" "$top_srcdir/tests/bench/gpu" --rows nosuch >/dev/null 2>&1 || rc=$?
equal "a row that is not there is refused" 2 "$rc"

check "a tree for another machine is made" "$top_srcdir/scripts/gpu-tree" "$top_builddir" "$T/tree"
sanitized "$top_builddir/penstock-loader" ||
	at_most "it can be carried, MiB" 64 "$(du -sm "$T/tree" | cut -f 1)"
if ldconfig -p | grep -q 'libcuda\.so\.1'; then
	skip "without a driver" "there is one"
else
	for what in check-gpu gpu; do
		rc=0
		"$T/tree/run" "$what" >"$T/out" 2>&1 || rc=$?
		equal "$what of the tree: skipped without a driver" 77 "$rc"
		check "and says so" grep -q '^SKIP  SKIP  SKIP' "$T/out"
	done
	rc=0
	"$T/tree/run" all "$T/all" 60 >"$T/out" 2>&1 || rc=$?
	equal "both at once: skipped without a driver" 77 "$rc"
	equal "and both say so" 2 "$(grep -c '^SKIP  SKIP  SKIP' "$T/out")"
	check "in files, too" grep -q '^SKIP  SKIP  SKIP' "$T/all/check-gpu.txt" "$T/all/gpu.txt"
	check "beside what the machine is" grep -q '^Linux' "$T/all/machine.txt"
fi
rc=0
LD_LIBRARY_PATH=$T/mock "$T/tree/run" gpu --quick --turns 1 --seconds 0.01 --stand-in "$T/mock" \
	--rows copy,step >"$T/out" 2>&1 || rc=$?
equal "gpu of the tree: runs on a stand-in" 0 "$rc"
check "and counts" grep -q '6 rows' "$T/out"

# What fails, and what does not end, leaves the others' figures alone, and what is known is in the file.
broken() { # SCRIPT OPTION...
	printf '#!/bin/sh\n%s\n' "$1" >"$T/tree/tests/bench/gpu_rates"
	shift
	rc=0
	LD_LIBRARY_PATH=$T/mock "$T/tree/run" gpu --quick --turns 1 --seconds 0.01 --stand-in "$T/mock" \
		--json "$T/broken.json" "$@" \
		>"$T/out" 2>&1 || rc=$?
}
cp "$T/tree/tests/bench/gpu_rates" "$T/rates"
broken "[ \$1 = finish ] && exit 3; exec $T/rates \"\$@\"" --rows copy,finish,step
equal "a row fails: it is told of by the exit code" 1 "$rc"
check "and in a line" grep -q '^finish .*FAILED: .*ended with 3' "$T/out"
equal "and the other rows are there" 6 "$(rows "$T/broken.json")"
broken "[ \$1 = finish ] && exec sleep 1000; exec $T/rates \"\$@\"" --rows finish --limit 2
check "a program that does not end is ended" grep -q '^finish .*FAILED: .*did not end within 2 s' "$T/out"
broken "exec $T/rates \"\$@\"" --rows copy,step --budget 0
check "without time no row begins" grep -q '^step .*not measured: the budget is spent' "$T/out"
cp "$T/rates" "$T/tree/tests/bench/gpu_rates"
cp "$T/tree/tests/bench/gpu_jpeg" "$T/jpeg"
printf '#!/bin/sh\nexit 3\n' >"$T/tree/tests/bench/gpu_jpeg"
broken "exec $T/rates \"\$@\"" --rows jpeg
check "without nvJPEG's bare loop the loader is measured" grep -q '^JPEG to f16 batch.*: to CPUs .*images/s' \
	"$T/out"
cp "$T/jpeg" "$T/tree/tests/bench/gpu_jpeg"
cp "$T/rates" "$T/tree/tests/bench/gpu_rates"

# check-gpu of the tree, on the stand-in; device_cuda.sh runs the longer programs on it.
long || export CHECK_GPU_TESTS="device_test nvjpeg_state_test"
rc=0
PENSTOCK_NVJPEG=$T/mock/libnvjpeg.so.12 PENSTOCK_TEST_GPU='' LD_LIBRARY_PATH=$T/mock \
	"$T/tree/run" check-gpu >"$T/out" 2>&1 || rc=$?
equal "check-gpu of the tree: passes on a stand-in" 0 "$rc"
check "and counts" grep -Eq '^GPU: [1-9][0-9] passed, 0 failed' "$T/out"
CHECK_GPU_LIMIT=0.01 PENSTOCK_TEST_GPU='' LD_LIBRARY_PATH=$T/mock "$T/tree/run" check-gpu >"$T/out" 2>&1 ||
	true
check "what does not end there has failed" grep -q '^not ok - device_test did not end within' "$T/out"
check_not "a library that is not there is refused" "$top_srcdir/scripts/gpu-tree" "$top_builddir" \
	"$T/tree2" /nonexistent.so
check "one that is there travels" "$top_srcdir/scripts/gpu-tree" "$top_builddir" "$T/tree2" \
	"$T/mock/libnvjpeg.so.12"
check "in its lib" test -e "$T/tree2/lib/libnvjpeg.so.12"
