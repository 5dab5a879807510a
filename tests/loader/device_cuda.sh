#!/usr/bin/env bash
# The CUDA device with a mock driver, which checks the calls, their order and their context. `make check-gpu`
# tests with a GPU and its own driver.
. "$(dirname "$0")/../lib.sh"
requires slow

mkdir "$T/mock"
cp -L "$top_builddir/tests/loader/.libs/libmockcuda.so" "$T/mock/libcuda.so.1"
# report WHAT LEAST COMMAND...: reports the command's TAP lines as ours; there must be LEAST of them or more.
report() {
	local what=$1 least=$2 line name rc=0
	shift 2
	"$@" >"$T/out" 2>"$T/err" || rc=$?
	equal "$what ends with 0" 0 "$rc"
	grep -E '^(not )?ok ' "$T/out" >"$T/lines" || true
	at_least "$what ran $least tests or more" "$least" "$(wc -l <"$T/lines")"
	while read -r line; do
		name=${line#*- }
		case $line in
		*"SKIP no GPU"*) ;; # frameworks need the memory of a real GPU
		*SKIP*) fail "$name" "skipped, though the mock can run it" ;;
		ok*) pass "$name" ;;
		*) fail "$name" "$(cat "$T/out" "$T/err")" ;;
		esac
	done <"$T/lines"
}

export CMOCKA_MESSAGE_OUTPUT=TAP PENSTOCK_TEST_DEVICE=cuda LD_LIBRARY_PATH=$T/mock:${LD_LIBRARY_PATH-}
mock_kernels
report device_test 12 "$top_builddir/tests/loader/device_test"
report device_pixels_test 10 "$top_builddir/tests/loader/device_pixels_test"
cp -L "$top_builddir/tests/loader/.libs/libmocknvjpeg.so" "$T/mock/libnvjpeg.so.12"
export PENSTOCK_NVJPEG=$T/mock/libnvjpeg.so.12 # not the library that this machine may have
report nvjpeg_test 10 "$top_builddir/tests/loader/nvjpeg_test"
report nvjpeg_state_test 2 "$top_builddir/tests/loader/nvjpeg_state_test"
report nvjpeg_fail_test 3 "$top_builddir/tests/loader/nvjpeg_fail_test"
report nvjpeg_copy_test 4 "$top_builddir/tests/loader/nvjpeg_copy_test"
if [[ -e $top_builddir/loader/python/.libs/_penstock.so ]] &&
	"$python" -c 'import numpy, torch' 2>/dev/null; then
	report device_tensors.py 8 "$python" "$top_srcdir/tests/loader/device_tensors.py"
else
	skip "device_tensors.py" "the module was not built, or there is no numpy or torch"
fi
unset LD_LIBRARY_PATH

(cd "$T" && printf 4 >a.cls && printf x >a.bin && tar cf one.tar a.bin a.cls)
rc=0
if ldconfig -p | grep -q 'libcuda\.so\.1'; then
	skip "bench --device cuda reports that there is no driver" "this machine has a driver"
else
	penstock-loader bench --device cuda --field bin=bytes "$T/one.tar" >"$T/out" 2>"$T/err" || rc=$?
	check_not "bench --device cuda fails without a driver" test "$rc" = 0
	check "bench --device cuda reports that there is no driver" \
		grep -q "no NVIDIA driver is installed" "$T/err"
fi
