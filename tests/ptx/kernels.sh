#!/usr/bin/env bash
# The PTX of the GPU code gives the CPU's bytes, and does nothing that fails or is undefined on a GPU: nvcc's
# text is run on the CPU (ptx.h), for each architecture whose text differs.
PS_TEST_TIMEOUT=${PS_TEST_TIMEOUT:-1800} # an interpreter under sanitizers takes long
. "$(dirname "$0")/../lib.sh"
requires slow

grep -q 'define HAVE_CUDA_KERNELS 1' "$top_builddir/config.h" ||
	skip_all "NO nvcc: its PTX of the kernels is NOT TESTED here (NVCC=PATH names one)"

mkdir "$T/mock"
cp -L "$top_builddir/tests/loader/.libs/libmockcuda.so" "$T/mock/libcuda.so.1"
export CMOCKA_MESSAGE_OUTPUT=TAP PENSTOCK_TEST_DEVICE=cuda

# with PTX COMMAND...: runs the command on the mock driver with this PTX; stdout to $T/out, stderr to $T/err.
with() {
	local ptx=$1
	shift
	MOCK_CUDA_PTX=$ptx MOCK_CUDA_PTX_COVERAGE=$T/coverage LD_LIBRARY_PATH=$T/mock:${LD_LIBRARY_PATH-} \
		"$@" >"$T/out" 2>"$T/err"
}

# report WHAT LEAST PTX COMMAND...: reports the command's tests, at least LEAST, as tests of this script.
report() {
	local what=$1 least=$2 line rc=0
	shift 2
	with "$@" || rc=$?
	equal "$what: exit status" 0 "$rc"
	grep -E '^(not )?ok ' "$T/out" >"$T/lines" || true
	at_least "$what: its tests ran" "$least" "$(wc -l <"$T/lines")"
	while read -r line; do
		case $line in
		ok*SKIP*) fail "$what: ${line#*- }" "skipped" ;;
		ok*) pass "$what: ${line#*- }" ;;
		*) fail "$what: ${line#*- }" "$(cat "$T/out" "$T/err")" ;;
		esac
	done <"$T/lines"
}

# covered: for each kernel the percentage of instructions that ran in any process, and its name. Counted
# from the lines that never ran.
covered() {
	awk '{
		missed = $4 == "-" ? 0 : split($4, line, ",")
		total[$1] = $3
		runs[$1]++
		for (i = 1; i <= missed; i++)
			if (++times[$1, line[i]] == runs[$1])
				never[$1, runs[$1]]++
	}
	END {
		for (k in total)
			printf "%d %s\n", (total[k] - never[k, runs[k]]) * 100 / total[k], k
	}' "$T/coverage" | sort -n
}

# The PTX files that differ in more than .target, by architecture; without `long` only the newest.
texts=() sums=" "
while read -r ptx; do
	sum=$(grep -v '^\.target' "$ptx" | cksum)
	[[ $sums != *" ${sum// /-} "* ]] || continue
	sums+="${sum// /-} "
	texts+=("$ptx")
done < <(printf '%s\n' "$top_builddir"/tests/ptx/kernels_*.ptx | sort -V)
newest=${texts[-1]}
long || texts=("$newest")
for ptx in "${texts[@]}"; do
	name=${ptx##*/}
	: >"$T/coverage"
	report "$name: kernels" 5 "$ptx" "$top_builddir/tests/ptx/kernels_test"
	report "$name: tiles" 3 "$ptx" "$top_builddir/tests/loader/resize_tile_test"
	report "$name: pixels" 10 "$ptx" "$top_builddir/tests/loader/device_pixels_test"
	covered >"$T/covered"
	sed 's/^/# % of instructions that ran: /' "$T/covered"
	equal "$name: all kernels ran" 18 "$(wc -l <"$T/covered")"
	# nvcc leaves code in some texts that no arguments reach: remainders of loops over multiples of 4, a
	# second test of `mix`.
	at_least "$name: percentage of instructions that ran, in each kernel" 45 "$(head -n 1 "$T/covered" | cut -d ' ' -f 1)"
done

# broken WHAT SED-SCRIPT ERROR COMMAND...: with a fault put into the text, the command's test fails and
# reports ERROR.
broken() {
	local what=$1 script=$2 error=$3 rc=0
	shift 3
	sed -E "$script" "$newest" >"$T/broken.ptx"
	check_not "$what: the text changed" cmp -s "$newest" "$T/broken.ptx"
	ASAN_OPTIONS=${ASAN_OPTIONS-}:detect_leaks=0 with "$T/broken.ptx" "$@" ||
		rc=$? # a failed test frees nothing
	check_not "$what: the test fails" test "$rc" = 0
	check "$what: the fault is reported" grep -q "$error" "$T/err"
}
broken "no barriers" '/bar\.sync/d' 'mock_cuda: .*: a race: ' "$top_builddir/tests/ptx/kernels_test"
broken "products fused with sums" 's/mul\.rn\.f32/mul.f32/' '[1-9][0-9]* without a rounding' \
	"$top_builddir/tests/ptx/kernels_test"
broken "wider stores" 's/st\.global\.u8/st.global.u16/' 'is not aligned to 2' \
	"$top_builddir/tests/loader/resize_tile_test"
