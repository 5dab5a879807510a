#!/usr/bin/env bash
# A daemon in foreign hands cannot use its keeper against mounts of other programs. Nor can it keep the next
# daemon from taking over the mounts of the cache, whatever it sends.
[[ ${1-} == inside ]] || exec unshare -m --propagation private bash "$0" inside
. "$(dirname "$0")/../lib.sh"
requires mount jq root python3
release=$(uname -r)
[[ $(printf '%s\n' 6.10 "${release%%-*}" | sort -V | head -n 1) == 6.10 ]] ||
	skip_all "needs Linux 6.10 or later"
forget_others_mounts
mount -t fusectl none /sys/fs/fuse/connections 2>/dev/null || [[ -d /sys/fs/fuse/connections ]]
ulimit -n 4000

mkdir -p "$T/src" "$MNT" "$T/other"
random_file "$T/src/1.bin" 300000 1
mount_penstock "$T/src/"
pid=$(stats .pid)
keeper=$(awk '/^PPid:/ {print $2}' "/proc/$pid/status")
mkfifo "$T/ask"
"$python" "$top_srcdir/tests/fs/foreign_messages.py" "$pid" "$keeper" "$T/other" \
	<"$T/ask" >"$T/said" 2>"$T/err" &
sender=$!
exec 7>"$T/ask"
if ! wait_until 60 test -s "$T/said"; then die "no message was sent: $(cat "$T/err")"; fi
other() {
	local n
	n=$(wc -l <"$T/said")
	echo >&7
	wait_until 10 bash -c "(( \$(wc -l <'$T/said') > $n ))" || true
	tail -n 1 "$T/said"
}
read -r nfds limit <"$T/said"
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

# The keeper gives up: it ends its own mounts.
for _ in {1..40}; do
	if [[ ! -e /proc/$keeper ]]; then break; fi
	pkill -KILL -P "$keeper" -x penstock || true
	sleep 0.2
done
check "after starts that fail the keeper gives up" wait_until 20 test ! -e "/proc/$keeper"
equal "the other program's mount is connected still" connected "$(other)"
check_not "the keeper's is not" test -e "$MNT/1.bin"
exec 7>&-
kill "$sender" 2>/dev/null || true
