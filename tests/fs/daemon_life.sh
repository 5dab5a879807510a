#!/usr/bin/env bash
# A daemon with several mounts: what ends it and what does not, what is left when it dies, and which processes
# notice.
. "$(dirname "$0")/../lib.sh"
requires mount jq

mkdir -p "$T/src" "$MNT" "$T"/m{1..4}
random_file "$T/src/f.bin" 3000000
random_file "$T/src/g.bin" 5000000
source="file://$T/src/"
join() {
	timeout 30 penstock mount "$@" --cache-dir "$CACHE"
}
gone() {
	! kill -0 "$1" 2>/dev/null || [[ $(cut -d' ' -f3 "/proc/$1/stat" 2>/dev/null) == Z ]]
}

# In the foreground: the second process stays, too, as long as its mount lives.
mount_penstock "$source"
pid=$(stats .pid)
equal "the daemon has a session of its own" "$pid" "$(cut -d' ' -f6 "/proc/$pid/stat")"
for way in umount TERM; do
	join "$source" "$T/m1" -f >"$T/out" 2>&1 &
	joiner=$!
	check "a second mount in the foreground ($way)" wait_until 20 test -e "$T/m1/f.bin"
	equal "is the daemon's" "$pid" "$(jq .pid "$T/m1/.penstock/stats")"
	check_not "and its process stays" gone "$joiner"
	if [[ $way == umount ]]; then
		check "until it is unmounted" penstock umount "$T/m1"
	else
		kill -TERM "$(cat "/proc/$joiner/task/$joiner/children")"
	fi
	rc=0
	wait "$joiner" || rc=$?
	equal "then it ends well" 0 "$rc"
	check_not "nothing is mounted there" is_mounted "$T/m1"
done
check "the other mount goes on" cmp "$MNT/f.bin" "$T/src/f.bin"

# The daemon dies.
join "$source" "$T/m1" -f >"$T/out" 2>&1 &
joiner=$!
wait_until 20 test -e "$T/m1/f.bin" || die "a mount in the foreground"
join "$source" "$T/m2"
check "what is complete is read" cmp "$T/m2/g.bin" "$T/src/g.bin"
passed=$(stats .passthrough.active)
exec 8<"$MNT/g.bin"
head -c 1000000 <&8 >"$T/head"
kill -KILL "$pid"
wait_until 10 gone "$pid" || die "it is gone"
rc=0
wait "$joiner" || rc=$?
equal "who stayed for a mount says so and fails" "1 1" "$rc $(grep -c "has died" "$T/out")"
check_not "its mount is cleared away" is_mounted "$T/m1"
if [[ $passed == true ]]; then
	cat "$T/head" - <&8 >"$T/whole" 2>"$T/err" || true
	check "a file that was passed through is read on" cmp "$T/whole" "$T/src/g.bin"
else
	skip "a file that was passed through is read on" "no passthrough here"
fi
for m in "$MNT" "$T/m2"; do
	rc=0
	cat "$m/f.bin" >"$T/err" 2>&1 || rc=$?
	equal "other files of ${m##*/} are not opened any more" 1 "$rc"
done
check "the next mount on it clears one away" mount_penstock "$source"
check "and serves" cmp "$MNT/f.bin" "$T/src/f.bin"
check "so does a second" join "$source" "$T/m2"
check "which joins" cmp "$T/m2/f.bin" "$T/src/f.bin"
equal "each is mounted once" "1 1" \
	"$(for m in "$MNT" "$T/m2"; do awk -v where="$m" '$5 == where {n++} END {print n + 0}' /proc/self/mountinfo; done | xargs)"
exec 8<&-

# Told to end, it ends them all.
pid=$(stats .pid)
exec 8<"$T/m2/f.bin"
kill -TERM "$pid"
check "SIGTERM ends it, open files or not" wait_until 10 gone "$pid"
check_not "and its first mount" is_mounted "$MNT"
check_not "and its second" is_mounted "$T/m2"
exec 8<&-

# The first mount's failure is not the others'.
"$python" - "$T/hole.port" <<'PY' &
import socket, sys, time
s = socket.socket(); s.bind(("127.0.0.1", 0)); s.listen(64)
open(sys.argv[1], "w").write(str(s.getsockname()[1]))
kept = []
while True: kept.append(s.accept())
PY
hole=$!
wait_until 10 test -s "$T/hole.port" || die "there is a server that never answers"
"$python" -c 'import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
os.execvp(sys.argv[1], sys.argv[1:])' penstock mount "http://127.0.0.1:$(<"$T/hole.port")/x/" "$MNT" --cache-dir "$CACHE" \
	--log "$T/penstock.log" >"$T/out" 2>&1 &
first=$!
check "a daemon whose first mount is still listing" wait_until 20 penstock status --cache-dir "$CACHE" --json
pid=$(penstock status --cache-dir "$CACHE" --json | jq .pid)
check "is joined all the same" join "$source" "$T/m3"
kill -INT "$first"
wait "$first" 2>/dev/null || true
one_left() {
	[[ $(cat "/proc/$pid/task/"*/comm | grep -c '^dataset$') == 0 ]]
}
check "when the first is given up" wait_until 20 one_left
check "the second goes on" cmp "$T/m3/f.bin" "$T/src/f.bin"
equal "of the same daemon, which has let go of its streams" "$pid /dev/null" \
	"$(jq .pid "$T/m3/.penstock/stats") $(readlink "/proc/$pid/fd/1")"
check "and ends it" penstock umount "$T/m3"
check "for good" wait_until 10 gone "$pid"
kill -KILL "$hole"
wait "$hole" 2>/dev/null || true
check "the cache is free" penstock verify --cache-dir "$CACHE"

# Root's daemon keeps few of its privileges; no core file holds its memory.
mount_penstock "$source"
pid=$(stats .pid)
if ((EUID == 0)); then
	equal "what it may is to mount and to read others' files" 0 \
		"$((16#$(awk '$1 == "CapEff:" {print $2}' "/proc/$pid/status") & ~16#20000e))"
else
	skip "what it may is to mount and to read others' files" "needs root"
fi
equal "a core file would hold nothing" 00000000 "$(cat "/proc/$pid/coredump_filter")"
check "it ends" umount_penstock

# It leaves the control group of its starter, which may be killed as a whole.
group=
for hierarchy in /sys/fs/cgroup /sys/fs/cgroup/unified; do
	[[ ! -w $hierarchy/cgroup.procs || $(stat -f -c %T "$hierarchy") != cgroup2fs ]] ||
		group=$hierarchy/penstock-test-$$
done
if ((EUID == 0)) && [[ $group ]] && mkdir "$group" 2>/dev/null; then
	bash -c 'echo $$ >"$1/cgroup.procs" && shift && exec "$@"' - "$group" penstock mount "$source" \
		"$MNT" \
		--cache-dir "$CACHE" --log "$T/penstock.log" || true
	left() {
		[[ $(sed -n 's/^0:://p' "/proc/$(stats .pid)/cgroup") == */penstock ]] && rmdir "$group"
	}
	check "the daemon leaves the control group of its mount command" wait_until 10 left
	umount_penstock
	rmdir "${group%/*}/penstock" 2>/dev/null || true
else
	skip "the daemon leaves the control group of its mount command" "needs root and cgroup2"
fi
