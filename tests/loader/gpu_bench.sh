#!/usr/bin/env bash
# The GPU measurements (tests/bench/gpu) run on a mock driver with tiny sizes, and report that their results
# are not real measurements. Without a driver the measurements and check-gpu are skipped with a message. Both
# also run in a tree for another machine (scripts/gpu-tree).
. "$(dirname "$0")/../lib.sh"
requires python:numpy python:torch slow
mock_kernels

mkdir "$T/mock"
cp -L "$top_builddir/tests/loader/.libs/libmockcuda.so" "$T/mock/libcuda.so.1"
cp -L "$top_builddir/tests/loader/.libs/libmocknvjpeg.so" "$T/mock/libnvjpeg.so.12"
[[ -e $top_builddir/loader/python/.libs/_penstock.so ]] || skip_all "the Python module was not built"

# rows FILE: how many rows were measured.
rows() { "$python" -c 'import json, sys
print(sum(r["ok"] is not None for r in json.load(open(sys.argv[1]))["rows"]))' "$1"; }

check "tests/bench/gpu runs on the mocks" \
	"$python" "$top_srcdir/tests/bench/gpu" --quick --turns 1 --seconds 0.01 --stand-in "$T/mock" \
	--json "$T/all.json"
equal "all rows were measured except those that need torch with a GPU" 16 "$(rows "$T/all.json")"
check "the JSON says that the results are not real measurements" grep -q '"figures": false' "$T/all.json"
"$python" "$top_srcdir/tests/bench/gpu" --quick --turns 1 --seconds 0.01 --stand-in "$T/mock" \
	--rows next >"$T/out" 2>&1 || true
check "the text says that the results are not real measurements" grep -q 'stand-in, no figures' "$T/out"
rc=0
"$python" "$top_srcdir/tests/bench/gpu" --rows nosuch >/dev/null 2>&1 || rc=$?
equal "an unknown row is refused" 2 "$rc"

check "scripts/gpu-tree makes a tree for another machine" \
	"$top_srcdir/scripts/gpu-tree" "$top_builddir" "$T/tree"
sanitized "$top_builddir/penstock-loader" ||
	at_most "the tree for another machine is at most 64 MiB" 64 "$(du -sm "$T/tree" | cut -f 1)"
if ldconfig -p | grep -q 'libcuda\.so\.1'; then
	skip "the tree without a driver" "this machine has a driver"
else
	for what in check-gpu gpu; do
		rc=0
		"$T/tree/run" "$what" >"$T/out" 2>&1 || rc=$?
		equal "$what of the tree is skipped without a driver" 77 "$rc"
		check "$what of the tree prints SKIP without a driver" grep -q '^SKIP  SKIP  SKIP' "$T/out"
	done
	rc=0
	"$T/tree/run" all "$T/all" 60 >"$T/out" 2>&1 || rc=$?
	equal "run all is skipped without a driver" 77 "$rc"
	equal "run all prints SKIP for check-gpu and for gpu" 2 "$(grep -c '^SKIP  SKIP  SKIP' "$T/out")"
	check "run all writes SKIP to its files" grep -q \
		'^SKIP  SKIP  SKIP' "$T/all/check-gpu.txt" "$T/all/gpu.txt"
	check "run all writes a description of the machine" grep -q '^Linux' "$T/all/machine.txt"
fi
rc=0
LD_LIBRARY_PATH=$T/mock "$T/tree/run" gpu --quick --turns 1 --seconds 0.01 --stand-in "$T/mock" \
	--rows copy,step >"$T/out" 2>&1 || rc=$?
equal "gpu of the tree runs on the mocks" 0 "$rc"
check "gpu of the tree counts the rows" grep -q '6 rows' "$T/out"

# A program that fails or does not end affects no other row, and the file has the rows that were measured.
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
equal "a row that fails is reported by the exit code" 1 "$rc"
check "a row that fails is reported in a line" grep -q '^finish .*FAILED: .*ended with 3' "$T/out"
equal "the other rows are measured all the same" 6 "$(rows "$T/broken.json")"
broken "[ \$1 = finish ] && exec sleep 1000; exec $T/rates \"\$@\"" --rows finish --limit 2
check "a program that does not end is killed and reported" grep -q \
	'^finish .*FAILED: .*did not end within 2 s' "$T/out"
broken "exec $T/rates \"\$@\"" --rows copy,step --budget 0
check "no row begins after the time budget is spent" grep -q \
	'^step .*not measured: the budget is spent' "$T/out"
cp "$T/rates" "$T/tree/tests/bench/gpu_rates"
cp "$T/tree/tests/bench/gpu_jpeg" "$T/jpeg"
printf '#!/bin/sh\nexit 3\n' >"$T/tree/tests/bench/gpu_jpeg"
broken "exec $T/rates \"\$@\"" --rows jpeg
check "the loader is measured even if nvJPEG's bare loop fails" grep -q \
	'^JPEG to f16 batch.*: to CPUs .*images/s' "$T/out"
cp "$T/jpeg" "$T/tree/tests/bench/gpu_jpeg"
cp "$T/rates" "$T/tree/tests/bench/gpu_rates"

# check-gpu of the tree, on the mocks; device_cuda.sh runs the slower programs on them.
long || export CHECK_GPU_TESTS="device_test nvjpeg_state_test"
rc=0
PENSTOCK_NVJPEG=$T/mock/libnvjpeg.so.12 PENSTOCK_TEST_GPU='' LD_LIBRARY_PATH=$T/mock \
	"$T/tree/run" check-gpu >"$T/out" 2>&1 || rc=$?
equal "check-gpu of the tree passes on the mocks" 0 "$rc"
check "check-gpu of the tree counts the tests" grep -Eq '^GPU: [1-9][0-9] passed, 0 failed' "$T/out"
CHECK_GPU_LIMIT=0.01 PENSTOCK_TEST_GPU='' LD_LIBRARY_PATH=$T/mock "$T/tree/run" check-gpu >"$T/out" 2>&1 ||
	true
check "check-gpu reports a program that does not end as failed" grep -q \
	'^not ok - device_test did not end within' "$T/out"
check_not "scripts/gpu-tree refuses a missing library" "$top_srcdir/scripts/gpu-tree" "$top_builddir" \
	"$T/tree2" /nonexistent.so
check "scripts/gpu-tree accepts an existing library" \
	"$top_srcdir/scripts/gpu-tree" "$top_builddir" "$T/tree2" "$T/mock/libnvjpeg.so.12"
check "scripts/gpu-tree copies the library to lib/" test -e "$T/tree2/lib/libnvjpeg.so.12"
