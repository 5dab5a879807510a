#!/usr/bin/env bash
# A daemon with several mounts: what ends it and what does not, what is left when it dies, and which processes
# notice.
. "$(dirname "$0")/../../lib.sh"
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

# With -f, the process of a second mount stays, too, until its mount ends.
mount_penstock "$source"
pid=$(stats .pid)
session=$(cut -d' ' -f6 "/proc/$pid/stat")
check "the daemon has a session of its own, with its keeper" \
	grep -qE "^penstock(-keeper)?$" "/proc/$session/comm"
for way in umount TERM; do
	join "$source" "$T/m1" -f >"$T/out" 2>&1 &
	joiner=$!
	check "a second mount in the foreground ($way)" wait_until 20 test -e "$T/m1/f.bin"
	equal "the first daemon serves it ($way)" "$pid" "$(jq .pid "$T/m1/.penstock/stats")"
	check_not "the second mount's process stays ($way)" gone "$joiner"
	if [[ $way == umount ]]; then
		check "the second mount is unmounted" penstock umount "$T/m1"
	else
		kill -TERM "$(cat "/proc/$joiner/task/$joiner/children")"
	fi
	rc=0
	wait "$joiner" || rc=$?
	equal "the second mount's process then succeeds ($way)" 0 "$rc"
	check_not "the second mount is gone ($way)" is_mounted "$T/m1"
done
check "the first mount still serves its file" cmp "$MNT/f.bin" "$T/src/f.bin"

# The daemon dies.
join "$source" "$T/m1" -f >"$T/out" 2>&1 &
joiner=$!
wait_until 20 test -e "$T/m1/f.bin" || die "a mount in the foreground"
join "$source" "$T/m2"
check "a file is read completely" cmp "$T/m2/g.bin" "$T/src/g.bin"
passed=$(stats .passthrough.active)
exec 8<"$MNT/g.bin"
head -c 1000000 <&8 >"$T/head"
kill_daemon "$pid"
wait_until 10 gone "$pid" || die "the killed daemon ends"
rc=0
wait "$joiner" || rc=$?
equal "the process of the mount with -f reports the dead daemon and fails" \
	"1 1" "$rc $(grep -c "has died" "$T/out")"
check_not "the process removes its dead mount" is_mounted "$T/m1"
if [[ $passed == true ]]; then
	cat "$T/head" - <&8 >"$T/whole" 2>"$T/err" || true
	check "an open file that is passed through can still be read" cmp "$T/whole" "$T/src/g.bin"
else
	skip "an open file that is passed through can still be read" "no passthrough here"
fi
for m in "$MNT" "$T/m2"; do
	rc=0
	cat "$m/f.bin" >"$T/err" 2>&1 || rc=$?
	equal "other files of the dead mount ${m##*/} cannot be opened" 1 "$rc"
done
check "the next mount replaces the first dead mount" mount_penstock "$source"
check "the first new mount serves its file" cmp "$MNT/f.bin" "$T/src/f.bin"
check "another mount replaces the second dead mount" join "$source" "$T/m2"
check "the second new mount serves its file" cmp "$T/m2/f.bin" "$T/src/f.bin"
equal "each is mounted once" "1 1" \
	"$(for m in "$MNT" "$T/m2"; do awk -v where="$m" '$5 == where {n++} END {print n + 0}' /proc/self/mountinfo; done | xargs)"
exec 8<&-

# SIGTERM ends the daemon with all its mounts.
pid=$(stats .pid)
exec 8<"$T/m2/f.bin"
kill -TERM "$pid"
check "SIGTERM ends the daemon although a file is open" wait_until 10 gone "$pid"
check_not "SIGTERM unmounts the first mount" is_mounted "$MNT"
check_not "SIGTERM unmounts the second mount" is_mounted "$T/m2"
exec 8<&-

# A first mount that fails does not end the others.
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
check "a daemon answers while its first mount is listing" \
	wait_until 20 penstock status --cache-dir "$CACHE" --json
pid=$(penstock status --cache-dir "$CACHE" --json | jq .pid)
check "a second mount joins that daemon" join "$source" "$T/m3"
kill -INT "$first"
wait "$first" 2>/dev/null || true
one_left() {
	[[ $(cat "/proc/$pid/task/"*/comm | grep -c '^dataset$') == 0 ]]
}
check "the listing of the first mount ends when it is given up" wait_until 20 one_left
check "the second mount then serves its file" cmp "$T/m3/f.bin" "$T/src/f.bin"
equal "the same daemon serves it, with /dev/null as standard output" "$pid /dev/null" \
	"$(jq .pid "$T/m3/.penstock/stats") $(readlink "/proc/$pid/fd/1")"
check "the last mount is unmounted" penstock umount "$T/m3"
check "the daemon ends with its last mount" wait_until 10 gone "$pid"
kill -KILL "$hole"
wait "$hole" 2>/dev/null || true
check "the cache is not in use" penstock verify --cache-dir "$CACHE"

# Root's daemon keeps few of its privileges; no core file holds its memory.
mount_penstock "$source"
pid=$(stats .pid)
if ((EUID == 0)); then
	equal "root's daemon may only mount and access others' files" 0 \
		"$((16#$(awk '$1 == "CapEff:" {print $2}' "/proc/$pid/status") & ~16#200006))"
else
	skip "root's daemon may only mount and access others' files" "needs root"
fi
equal "a core file would hold nothing" 00000000 "$(cat "/proc/$pid/coredump_filter")"
check "umount ends the daemon" umount_penstock

# The daemon leaves its starter's control group, because that group may be killed as a whole.
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
