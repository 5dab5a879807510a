#!/usr/bin/env bash
# A daemon in foreign hands cannot use its keeper and its helper against mounts of other programs and of other
# caches, or against files, whatever it sends. Nor can it keep the next daemon from taking over the mounts of the
# cache, unless it gives them up.
[[ ${1-} == inside ]] || exec unshare -m --propagation private bash "$0" inside
. "$(dirname "$0")/../../lib.sh"
requires mount jq root python3
release=$(uname -r)
[[ $(printf '%s\n' 6.10 "${release%%-*}" | sort -V | head -n 1) == 6.10 ]] ||
	skip_all "needs Linux 6.10 or later"
forget_others_mounts
mount -t fusectl none /sys/fs/fuse/connections 2>/dev/null || [[ -d /sys/fs/fuse/connections ]]
ulimit -n 4000

mkdir -p "$T/src" "$MNT" "$T/other" "$T/theirs"
random_file "$T/src/1.bin" 300000 1
check "a mount of another cache" penstock mount "$T/src/" "$T/theirs" --cache-dir "$T/cache2" --log "$T/log2"
echo secret >"$T/foreign"
mount_penstock "$T/src/"
pid=$(stats .pid)
keeper=$(awk '/^PPid:/ {print $2}' "/proc/$pid/status")
mkfifo "$T/ask"
"$python" "$top_srcdir/tests/fs/files/raw_messages.py" "$pid" "$keeper" \
	"$T/other" "$T/theirs" "$T/penstock.log" "$T/foreign" <"$T/ask" >"$T/said" 2>"$T/err" &
sender=$!
exec 7>"$T/ask"
said() { (($(wc -l <"$T/said") >= $1)); }
if ! wait_until 60 said 1; then die "no message was sent: $(cat "$T/err")"; fi
equal "the helper refuses foreign paths, descriptors and numbers" "helper OK" "$(head -n 1 "$T/said")"
if ! wait_until 60 said 2; then die "not all messages were sent: $(cat "$T/err")"; fi
other() {
	local n
	n=$(wc -l <"$T/said")
	echo >&7
	wait_until 10 said $((n + 1)) || true
	tail -n 1 "$T/said"
}
read -r nfds limit < <(sed -n 2p "$T/said")
at_most "a flood uses at most a quarter of the keeper's descriptors" $((limit / 4 + 64)) "$nfds"

sleep 1.1
kill -KILL "$pid"
next_pid() {
	local now
	now=$(stats .pid 2>/dev/null) && [[ $now != "$pid" ]]
}
check "the next daemon takes the mount over" wait_until 20 next_pid
check "and serves it" cmp "$MNT/1.bin" "$T/src/1.bin"
equal "the other program's mount is connected" connected "$(other)"
check "the other cache's mount is there" cmp "$T/theirs/1.bin" "$T/src/1.bin"

# The keeper gives up: it ends its own mounts.
for _ in {1..40}; do
	if [[ ! -e /proc/$keeper ]]; then break; fi
	pkill -KILL -P "$keeper" -x penstock || true
	sleep 0.2
done
check "after starts that fail the keeper gives up" wait_until 20 test ! -e "/proc/$keeper"
equal "the other program's mount is connected still" connected "$(other)"
check "the other cache's mount is there still" cmp "$T/theirs/1.bin" "$T/src/1.bin"
check_not "the keeper's is not" test -e "$MNT/1.bin"
exec 7>&-
kill "$sender" 2>/dev/null || true
penstock umount "$T/theirs"
