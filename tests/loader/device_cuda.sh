#!/usr/bin/env bash
# The CUDA device against a driver that is none: what it calls, in which order, in which context. A GPU's own
# driver is for `make check-gpu`.
. "$(dirname "$0")/../lib.sh"
requires slow

mkdir "$T/mock"
cp -L "$top_builddir/tests/loader/.libs/libmockcuda.so" "$T/mock/libcuda.so.1"
# report WHAT LEAST COMMAND...: its TAP lines as ours, LEAST at least.
report() {
	local what=$1 least=$2 line name rc=0
	shift 2
	"$@" >"$T/out" 2>"$T/err" || rc=$?
	equal "$what: ends well" 0 "$rc"
	grep -E '^(not )?ok ' "$T/out" >"$T/lines" || true
	at_least "$what: its tests ran" "$least" "$(wc -l <"$T/lines")"
	while read -r line; do
		name=${line#*- }
		case $line in
		*"SKIP no GPU"*) ;; # what frameworks do with memory that is a GPU's
		*SKIP*) fail "$name" "skipped, though the mock has it" ;;
		ok*) pass "$name" ;;
		*) fail "$name" "$(cat "$T/out" "$T/err")" ;;
		esac
	done <"$T/lines"
}

export CMOCKA_MESSAGE_OUTPUT=TAP PENSTOCK_TEST_DEVICE=cuda LD_LIBRARY_PATH=$T/mock:${LD_LIBRARY_PATH-}
mock_kernels
report "in C" 12 "$top_builddir/tests/loader/device_test"
report "pixels" 10 "$top_builddir/tests/loader/device_pixels_test"
cp -L "$top_builddir/tests/loader/.libs/libmocknvjpeg.so" "$T/mock/libnvjpeg.so.12"
export PENSTOCK_NVJPEG=$T/mock/libnvjpeg.so.12 # not one that this machine may have
report "JPEGs" 10 "$top_builddir/tests/loader/nvjpeg_test"
report "JPEGs, states" 2 "$top_builddir/tests/loader/nvjpeg_state_test"
report "JPEGs, failures" 3 "$top_builddir/tests/loader/nvjpeg_fail_test"
report "JPEGs, copies" 4 "$top_builddir/tests/loader/nvjpeg_copy_test"
if [[ -e $top_builddir/loader/python/.libs/_penstock.so ]] &&
	"$python" -c 'import numpy, torch' 2>/dev/null; then
	report "in Python" 8 "$python" "$top_srcdir/tests/loader/device_tensors.py"
else
	skip "in Python" "the module was not built, or there is no numpy or torch"
fi
unset LD_LIBRARY_PATH

(cd "$T" && printf 4 >a.cls && printf x >a.bin && tar cf one.tar a.bin a.cls)
rc=0
if ldconfig -p | grep -q 'libcuda\.so\.1'; then
	skip "without a driver, bench says so" "there is one"
else
	penstock-loader bench --device cuda --field bin=bytes "$T/one.tar" >"$T/out" 2>"$T/err" || rc=$?
	check_not "without a driver, bench fails" test "$rc" = 0
	check "and says so" grep -q "no NVIDIA driver here" "$T/err"
fi
