#!/usr/bin/env bash
# penstock warm fetches the files that match, reports by its exit status whether all are cached, and resumes
# without fetching twice.
. "$(dirname "$0")/../../lib.sh"
requires mount nginx-lua jq getfattr

make_shards "$T/www/train" 4 3000000
make_shards "$T/www/val" 2 3000000
sha_manifest "$T/www" >"$T/manifest"
start_nginx
state() { getfattr --absolute-names --only-values -n user.penstock.state "$MNT/$1"; }

mount_penstock "$ORIGIN/"
origin_forget
check "warm with a glob succeeds" timeout 60 penstock warm "$MNT" 'train/*.tar'
equal "a file that matches is cached" cached "$(state train/shard-000003.tar)"
equal "a file that does not match is not cached" remote "$(state val/shard-000000.tar)"
at_most "each byte was fetched once" $((4 * 3000000 * 11 / 10)) "$(origin_bytes)"
origin_forget
check "warm of all files succeeds" timeout 60 penstock warm "$MNT"
equal "warm of all files fetches only missing ones" \
	0 "$(grep -c 'GET /train/.*tar' "$T/nginx/access.log" || true)"
equal "warm of all files caches all" cached "$(state val/shard-000001.tar)"
check "the bytes are right" read_tree 1m
check_not "a glob that matches nothing is an error" timeout 20 penstock warm "$MNT" 'nothing*'
rc=0
penstock warm "$MNT" -j 2 --header @<(echo "X: y") >"$T/out" 2>&1 || rc=$?
equal "warm of a mount refuses options of cache and origin" "2 1" \
	"$rc $(grep -c "^penstock warm: option header: it is for a SOURCE, but $MNT is a mount" "$T/out")"
umount_penstock

# Warm is interrupted and resumed, through a mount and without one.
cached_nbytes() { du -s --block-size=1 "$CACHE/data" 2>/dev/null | cut -f 1; }
some_cached() { (($(cached_nbytes) > 2000000)); }
total=$(du -bc "$T"/www/*/*.tar | tail -n 1 | cut -f 1)
# interrupted WHAT WARM-ARGUMENT...
interrupted() {
	local what=$1 rc=0 warming
	shift
	timeout 60 penstock warm "$@" >"$T/out" 2>&1 &
	warming=$!
	check "$what: some bytes arrive" wait_until 50 some_cached
	kill -INT "$(cat "/proc/$warming/task/$warming/children")"
	wait "$warming" || rc=$?
	equal "$what: an interrupt ends it with a message" "1 1" \
		"$rc $(grep -c 'interrupted; .*again to resume' "$T/out")"
}
CACHE=$T/cache2
mount_penstock "$ORIGIN/slow/"
interrupted "warm of a mount" "$MNT"
umount_penstock
have=$(cached_nbytes)
mount_penstock "$ORIGIN/slow/"
origin_forget
check "warm after an interrupted warm succeeds" timeout 60 penstock warm "$MNT"
at_most "warm fetches only the rest ($have of $total bytes were cached)" \
	$((total - have + (8 << 20))) "$(origin_bytes)"
check "all files are right after the resumed warm" read_tree 1m
umount_penstock
CACHE=$T/cache5
interrupted "warm of a SOURCE" "$ORIGIN/slow/" --cache-dir "$CACHE"
have=$(cached_nbytes)
origin_forget
check "warm of a SOURCE is resumed" timeout 60 penstock warm "$ORIGIN/slow/" --cache-dir "$CACHE"
at_most "warm of a SOURCE fetches only the rest ($have of $total bytes were cached)" \
	$((total - have + (8 << 20))) "$(origin_bytes)"

# On a terminal warm shows its progress.
CACHE=$T/cache6
cat >"$T/terminal.py" <<'PY'
import os, pty, re, sys
seen = b""
def read(fd):
    global seen
    data = os.read(fd, 4096)
    seen += data
    return data
status = pty.spawn(sys.argv[1:], read)
assert status == 0, status
assert re.search(rb"\r\[#*\.*\] +\d+% [\d.]+ \w+ of [\d.]+ \w+, [\d.]+ \w+/s", seen), seen
PY
if has_terminal; then
	check "warm shows its progress on a terminal" \
		"$python" "$T/terminal.py" timeout 60 penstock warm "$ORIGIN/slow/val/" \
		--cache-dir "$CACHE"
else
	skip "warm shows its progress on a terminal" "no pseudo-terminal can be opened (/dev/pts)"
fi

# Warm without a mount.
CACHE=$T/cache3
check "warm of a SOURCE succeeds" timeout 60 penstock warm "$ORIGIN/train/" --cache-dir "$CACHE"
origin_forget
mount_penstock "$ORIGIN/train/"
check "a later mount reads the data" cmp "$MNT/shard-000001.tar" "$T/www/train/shard-000001.tar"
equal "the later mount fetches nothing" 0 "$(grep -c 'GET /train/.*tar' "$T/nginx/access.log" || true)"
umount_penstock

# The exit status says that something cannot be fetched.
CACHE=$T/cache4
mount_penstock "$ORIGIN/busy/" --timeout 3s
touch "$T/nginx/busy"
rc=0
timeout 60 penstock warm "$MNT" --jobs 2 >"$T/out" 2>&1 || rc=$?
equal "warm of a refusing origin fails" 1 "$((rc > 0 && rc < 124))"
# On a busy machine the two first files do not fail at the same time, and a third one is tried.
check "warm stops when no tried file makes progress" grep \
	-Eq "the origin does not answer: [34] more files not tried" "$T/out"
umount_penstock

# Files that do not fit are reported at once.
CACHE=$T/cache5
mount_penstock "$ORIGIN/" --cache-size 16M --min-free 0
rc=0
timeout 60 penstock warm "$MNT" >"$T/out" 2>&1 || rc=$?
equal "warm of more than the cache holds fails" 1 "$rc"
check "the error says that there is no room" grep -q 'no room in the cache' "$T/out"
