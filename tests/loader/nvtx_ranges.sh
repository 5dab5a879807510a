#!/usr/bin/env bash
# Each stage shows as a range in a profiler that NVTX loads; without a profiler nothing is written.
. "$(dirname "$0")/../lib.sh"

tool=$top_builddir/tests/loader/.libs/libnvtxtool.so
[[ -e $tool ]] || skip_all "built without NVTX's headers"
mkdir "$T/mock"
cp -L "$top_builddir/tests/loader/.libs/libmockcuda.so" "$T/mock/libcuda.so.1"
for i in {100..139}; do
	printf '%d' "$i" >"$T/$i.cls"
done
(cd "$T" && tar cf a.tar -- *.cls)

# names DEPTH: the names of the ranges at this depth.
names() { awk -v depth="$1" '$2 == depth {print $3}' "$T/ranges" | sort -u | xargs; }

# bench DEVICE: a run on the device, with the tool.
bench() {
	check "bench --device $1 runs with a tool" env NVTX_INJECTION64_PATH="$tool" \
		NVTX_TOOL_OUT="$T/ranges" LD_LIBRARY_PATH="$T/mock" \
		penstock-loader bench --device "$1" --epochs 2 --batch 8 --threads 2 --field cls=int64 \
		"$T/a.tar"
}

bench cpu
equal "each stage has a range" "decode finish next read release" "$(names 0)"
equal "send is a range within a stage" send \
	"$(names 1 | sed 's/ *wait//')" # wait is there only if next() had to wait
equal "no range is deeper than 1" "" "$(names 2)"
equal "each range ends on the thread where it began" 0 "$(grep -c unbalanced "$T/ranges" || true)"
equal "the consumer's ranges are of one thread" 1 \
	"$(awk '$3 == "next" || $3 == "wait" || $3 == "release" {print $1}' "$T/ranges" | sort -u | wc -l)"
equal "each batch has a range release" 10 "$(grep -c release "$T/ranges")"
equal "each batch has a range finish" 10 "$(grep -c finish "$T/ranges")"
bench cuda
equal "each stage has a range on a GPU, too" "decode finish next read release" "$(names 0)"

rm "$T/ranges"
mkfifo "$T/b.tar"
NVTX_INJECTION64_PATH=$tool NVTX_TOOL_OUT=$T/ranges penstock-loader bench --epochs 1 --field cls=int64 \
	"$T/b.tar" >"$T/out" 2>&1 &
run=$!
until grep -q wait "$T/ranges" 2>/dev/null || ! kill -0 "$run" 2>/dev/null; do
	sleep 0.05
done
cat "$T/a.tar" >"$T/b.tar"
wait "$run" || fail "bench reads a shard from a pipe" "$(cat "$T/out")"
equal "a wait for a batch is a range within next" wait "$(names 1 | sed 's/send *//')"

rm "$T/ranges"
check "bench runs without a tool" \
	env NVTX_TOOL_OUT="$T/ranges" penstock-loader bench --field cls=int64 "$T/a.tar"
check_not "without a tool no range is written" test -e "$T/ranges"
