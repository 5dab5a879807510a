#!/usr/bin/env bash
# Each stage shows as a range in a profiler that came in as NVTX lets it, and without one nothing happens.
. "$(dirname "$0")/../lib.sh"

tool=$top_builddir/tests/loader/.libs/libnvtxtool.so
[[ -e $tool ]] || skip_all "built without NVTX's headers"
mkdir "$T/mock"
cp -L "$top_builddir/tests/loader/.libs/libmockcuda.so" "$T/mock/libcuda.so.1"
for i in {100..139}; do
	printf '%d' "$i" >"$T/$i.cls"
done
(cd "$T" && tar cf a.tar -- *.cls)

# names DEPTH: the ranges seen there.
names() { awk -v depth="$1" '$2 == depth {print $3}' "$T/ranges" | sort -u | xargs; }

# bench DEVICE: a run on it, with the tool.
bench() {
	check "a run on $1 goes well with a tool" env NVTX_INJECTION64_PATH="$tool" \
		NVTX_TOOL_OUT="$T/ranges" LD_LIBRARY_PATH="$T/mock" \
		penstock-loader bench --device "$1" --epochs 2 --batch 8 --threads 2 --field cls=int64 \
		"$T/a.tar"
}

bench cpu
equal "stages" "decode finish next read release" "$(names 0)"
equal "and what belongs to them" send "$(names 1 | sed 's/ *wait//')" # which is there if the machine is not too slow
equal "no deeper" "" "$(names 2)"
equal "a range ends where it began" 0 "$(grep -c unbalanced "$T/ranges" || true)"
equal "the consumer's are of one thread" 1 \
	"$(awk '$3 == "next" || $3 == "wait" || $3 == "release" {print $1}' "$T/ranges" | sort -u | wc -l)"
equal "a release for each batch" 10 "$(grep -c release "$T/ranges")"
equal "a finish for each batch" 10 "$(grep -c finish "$T/ranges")"
bench cuda
equal "on a GPU the same" "decode finish next read release" "$(names 0)"

rm "$T/ranges"
mkfifo "$T/b.tar"
NVTX_INJECTION64_PATH=$tool NVTX_TOOL_OUT=$T/ranges penstock-loader bench --epochs 1 --field cls=int64 \
	"$T/b.tar" >"$T/out" 2>&1 &
run=$!
until grep -q wait "$T/ranges" 2>/dev/null || ! kill -0 "$run" 2>/dev/null; do
	sleep 0.05
done
cat "$T/a.tar" >"$T/b.tar"
wait "$run" || fail "a run over a pipe" "$(cat "$T/out")"
equal "who waits for a batch is in next" wait "$(names 1 | sed 's/send *//')"

rm "$T/ranges"
check "without a tool" env NVTX_TOOL_OUT="$T/ranges" penstock-loader bench --field cls=int64 "$T/a.tar"
check_not "nothing is told" test -e "$T/ranges"
