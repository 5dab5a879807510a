#!/usr/bin/env bash
# What outlives a daemon: mounts of other processes and their owners, requests under way, the cache's lock.
# Handing over to another program; giving up.
PS_TEST_TIMEOUT=${PS_TEST_TIMEOUT:-200}
. "$(dirname "$0")/../../lib.sh"
requires mount nginx-lua jq root mount-namespace

release=$(uname -r)
release=${release%%-*}
[[ $(printf '%s\n' 6.10 "$release" | sort -V | head -n 1) == 6.10 ]] || skip_all "needs Linux 6.10 or later"

mkdir -p "$T/www" "$MNT" "$T"/m{1..4}
for i in 1 2 3 4 5 6; do
	random_file "$T/www/$i.bin" 3000000 "$i"
done
start_nginx
keeper_of() { awk '/^PPid:/ {print $2}' "/proc/$1/status"; }
next_pid() { [[ $(stats .pid 2>/dev/null) != "$1" ]]; }
gone() { ! kill -0 "$1" 2>/dev/null || [[ $(cut -d' ' -f3 "/proc/$1/stat" 2>/dev/null) == Z ]]; }
join() { timeout 30 penstock mount --cache-dir "$CACHE" "$@"; }

mount_penstock "$ORIGIN/stall/" --header "X-Token: s3cret"
pid=$(stats .pid)
keeper=$(keeper_of "$pid")
equal "the daemon's parent is the keeper" penstock-keeper "$(cat "/proc/$keeper/comm")"
if ! sanitized "$top_builddir/penstock"; then # (ThreadSanitizer has a thread of its own.)
	at_most "the keeper is small (KiB of its own)" 4000 \
		"$(awk '/^Private_Dirty:/ {sum += $2} END {print sum}' "/proc/$keeper/smaps_rollup")"
	equal "the keeper has one thread" 1 "$(find "/proc/$keeper/task" -mindepth 1 -maxdepth 1 | wc -l)"
fi
equal "no restart so far" 0 "$(stats .restarts)"

# Requests under way.
touch "$T/nginx/stall"
cat "$MNT/1.bin" >"$T/read1" 2>"$T/err1" &
reader=$!
waiting() { (($(stats .reads.waiting) > 0)); }
check "a read waits for the origin" wait_until 10 waiting
exec 7<"$MNT/2.bin" 8<"$MNT/.penstock/stats"
head -c 100 <&8 >"$T/head"
kill -KILL "$pid"
check "the next daemon answers" wait_until 10 next_pid "$pid"
equal "status has the restart" 1 "$(stats .restarts)"
check_not "the dead daemon's process is gone" test -e "/proc/$pid"
rm "$T/nginx/stall"
rc=0
wait "$reader" || rc=$?
equal "the read that was under way succeeds" 0 "$rc"
check "and has the right bytes" cmp "$T/read1" "$T/www/1.bin"
check "an open file is read on" cmp "$T/www/2.bin" - <&7
check "a file of .penstock/ is read on where it was" jq -e ".pid == $pid" <(cat "$T/head" - <&8)
exec 7<&- 8<&-
check_not "no secret is in the arguments or environments of the processes" \
	grep -q s3cret "/proc/$(stats .pid)/cmdline" "/proc/$(stats .pid)/environ" "/proc/$keeper/cmdline"

# A reader is killed while the daemon has its request; then the daemon is killed, too.
touch "$T/nginx/stall"
cat "$MNT/3.bin" >"$T/read3" 2>&1 &
reader=$!
check "a read waits again" wait_until 10 waiting
pid=$(stats .pid)
kill -STOP "$pid"
kill -KILL "$reader"
kill -KILL "$pid"
check "a killed reader of the dead daemon ends" wait_until 10 gone "$reader"
wait "$reader" 2>/dev/null || true
rm "$T/nginx/stall"
check "the next daemon answers again" wait_until 10 next_pid "$pid"
umount_penstock
check "umount ends the keeper, too" wait_until 10 gone "$keeper"

# What is mounted on a folder of the mount stays there; names that a listing was changing are looked up again.
mkdir -p "$T/www/sub"
cp "$T/www/1.bin" "$T/www/sub/"
mount_penstock "$ORIGIN/json/"
mount -t tmpfs none "$MNT/sub"
touch "$MNT/sub/inner"
kill -KILL "$(stats .pid)"
check "a file of the mount is read" cmp "$MNT/1.bin" "$T/www/1.bin"
check "a mount on one of its folders stays" test -e "$MNT/sub/inner"
umount "$MNT/sub"
check "the folder below has its file" cmp "$MNT/sub/1.bin" "$T/www/1.bin"
mv "$T/www/sub/1.bin" "$T/www/sub/new.bin"
sleep 1.1
pid=$(stats .pid)
penstock refresh "$MNT" >"$T/out" 2>&1 &
refresher=$!
kill -KILL "$pid"
wait "$refresher" || true
check "the next daemon answers after a refresh" wait_until 10 next_pid "$pid"
check "it refreshes" penstock refresh "$MNT"
equal "and has the new names" "new.bin" "$(ls "$MNT/sub")"
umount_penstock

# Mounts of other processes: in the foreground, in another namespace, by a program with --owner.
mount_penstock "$ORIGIN/"
join "$ORIGIN/" "$T/m1" -f >"$T/out" 2>&1 &
joiner=$!
check "a second mount, in the foreground" wait_until 20 test -e "$T/m1/1.bin"
touch "$T/hold"
export ORIGIN T CACHE
export -f forget_others_mounts
cat >"$T/inside.sh" <<'SH'
forget_others_mounts
penstock mount "$ORIGIN/" "$T/m2" --cache-dir "$CACHE" && touch "$T/there"
while [[ -e $T/hold ]]; do cmp "$T/m2/4.bin" "$T/www/4.bin" || exit 1; sleep 0.05; done
SH
unshare -m --propagation private bash "$T/inside.sh" >"$T/inside.out" 2>&1 &
inside=$!
check "a third mount, in another namespace" wait_until 20 test -e "$T/there"
"$python" "$top_srcdir/tests/fs/daemon/owner.py" "$T/owner" mount "$ORIGIN/" --cache-dir "$CACHE" &
owner=$!
check "a fourth mount, of a program" wait_until 20 test -s "$T/owner"
at=$(head -n 1 "$T/owner")
keeper=$(keeper_of "$(stats .pid)")
for round in 1 2; do
	pid=$(stats .pid)
	kill -KILL "$pid"
	check "the first mount serves ($round)" cmp "$MNT/5.bin" "$T/www/5.bin"
	check "the second mount serves ($round)" cmp "$T/m1/5.bin" "$T/www/5.bin"
	check "the program's mount serves ($round)" cmp "$at/5.bin" "$T/www/5.bin"
	equal "one daemon serves four mounts ($round)" 4 \
		"$(penstock status --cache-dir "$CACHE" --json | jq '.mounts | length')"
	find "/proc/$keeper/fd" -mindepth 1 | wc -l >"$T/fds$round"
	sleep 1.1
done
equal "a takeover does not change the keeper's number of descriptors" "$(cat "$T/fds1")" "$(cat "$T/fds2")"
check_not "the second mount's process stays" gone "$joiner"
rm "$T/hold"
rc=0
wait "$inside" || rc=$?
equal "the process in the other namespace saw no error" "0 " "$rc $(cat "$T/inside.out")"
kill -KILL "$owner"
check "the program's mount ends with it" wait_until 10 bash -c "! grep -qF ' $at ' /proc/self/mountinfo"
check "the second mount is unmounted" penstock umount "$T/m1"
rc=0
wait "$joiner" || rc=$?
equal "its process then succeeds" 0 "$rc"

# A command while the next daemon starts does not take the cache from it.
pid=$(stats .pid)
sleep 1.1
kill -KILL "$pid"
check "a mount that is made meanwhile joins" join "$ORIGIN/" "$T/m3"
equal "one daemon has the cache" "$(stats .pid)" "$(jq .pid "$T/m3/.penstock/stats")"
penstock umount "$T/m3"

# Another program.
exec 7<"$MNT/6.bin"
pid=$(stats .pid)
check "penstock upgrade" penstock upgrade "$MNT"
check_not "another process serves" test "$pid" = "$(stats .pid)"
check "an open file is read on after the upgrade" cmp "$T/www/6.bin" - <&7
exec 7<&-
check "penstock upgrade --cache-dir" penstock upgrade --cache-dir "$CACHE"
sleep 1.1
pid=$(stats .pid)
# While the keeper is stopped, the new program asks for the upgrade, and its file is made unexecutable.
cp "$top_builddir/penstock" "$T/new"
keeper=$(keeper_of "$pid")
kill -STOP "$keeper"
"$T/new" upgrade "$MNT" >"$T/out" 2>&1 &
sleep 1
chmod a-x "$T/new"
kill -CONT "$keeper"
rc=0
wait $! || rc=$?
equal "a program that does not start is an error" "1 1" \
	"$rc $(grep -c "the old one continues" "$T/out")"
check "and leaves the mount to the old one" cmp "$MNT/6.bin" "$T/www/6.bin"
check "which is another process" wait_until 10 next_pid "$pid"
check "the log has the reason" wait_until 5 grep -q "the new program does not start" "$T/penstock.log"
rc=0
penstock upgrade "$T/m4" >"$T/out" 2>&1 || rc=$?
equal "upgrade of what is no mount fails" "1 1" "$rc $(grep -c "not a penstock mount" "$T/out")"

# A keeper that is stopped, and a socket that soon is full.
owner() {
	"$python" "$top_srcdir/tests/fs/daemon/owner.py" "$T/$1" mount "$ORIGIN/json/" --cache-dir "$CACHE" &
	owners+=($!)
}
owners=()
owner first
check "a program's mount" wait_until 20 test -s "$T/first"
pid=$(stats .pid)
keeper=$(keeper_of "$pid")
kill -STOP "$keeper"
"$python" - "$pid" <<'PY'
import ctypes, os, socket, sys
pid = int(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
pidfd = os.pidfd_open(pid)
n = 0
for fd in os.listdir(f"/proc/{pid}/fd"):
    mine = libc.syscall(438, pidfd, int(fd), 0)  # pidfd_getfd
    if mine < 0:
        continue
    try:
        s = socket.socket(fileno=mine)
    except OSError:
        os.close(mine)
        continue
    if s.family == socket.AF_UNIX and s.type == socket.SOCK_SEQPACKET:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
        n += 1
    s.close()
sys.exit(n != 1)
PY
for m in m1 m2 m3; do
	check "$m is made while the keeper is stopped" join "$ORIGIN/" "$T/$m"
done
check "the log says that m3 is not kept" \
	wait_until 10 grep -q "m3: ends with its daemon: the keeper" "$T/penstock.log"
owner second
check "a second program joins meanwhile" wait_until 20 test -s "$T/second"
at=$(head -n 1 "$T/first")
equal "at the same place" "$at" "$(head -n 1 "$T/second")"
kill -CONT "$keeper"
rc=0
penstock upgrade "$MNT" >"$T/out" 2>&1 || rc=$?
equal "upgrade is refused and names a mount that is not kept" "1 1" "$rc $(grep -c "$T/m3" "$T/out")"
equal "and one whose owner the keeper lacks" 1 "$(grep -c "$at" "$T/out")"
for m in m1 m2 m3; do
	check "$m serves" cmp "$T/$m/4.bin" "$T/www/4.bin"
	check "$m is unmounted" penstock umount "$T/$m"
done
sleep 3 # within a second the daemon asks the keeper again to forget the mounts that are not kept
kill -KILL "$(stats .pid)"
check "the first mount is kept still" cmp "$MNT/4.bin" "$T/www/4.bin"
check "the programs' mount, with the owner that the keeper lacks, has ended" wait_until 10 grep -qx ended "$T/first"
check "and the other program knows" wait_until 10 grep -qx ended "$T/second"
kill "${owners[@]}"
sleep 1.1

# The keeper alone is killed.
kill -KILL "$(keeper_of "$(stats .pid)")"
check "without its keeper the daemon serves on" cmp "$MNT/4.bin" "$T/www/4.bin"
rc=0
penstock upgrade "$MNT" >"$T/out" 2>&1 || rc=$?
equal "upgrade says that there is no keeper" "1 1" "$rc $(grep -c "has no keeper" "$T/out")"
check "and it unmounts" umount_penstock
check "the cache is not in use" penstock verify --cache-dir "$CACHE"
mount_penstock "$ORIGIN/" --no-keeper
check_not "--no-keeper: there is none" grep -qx penstock-keeper "/proc/$(keeper_of "$(stats .pid)")/comm"
check "the mount without a keeper serves" cmp "$MNT/4.bin" "$T/www/4.bin"
umount_penstock

# In the foreground the mount ends with the process that was started, as a supervisor expects.
penstock mount -f "$ORIGIN/" "$MNT" --cache-dir "$CACHE" --log "$T/penstock.log" 2>"$T/out" &
started=$!
check "a mount in the foreground" wait_until 20 test -e "$MNT/1.bin"
pid=$(stats .pid)
kill -KILL "$pid"
check "it outlives its daemon" wait_until 10 next_pid "$pid"
pid=$(stats .pid)
kill -KILL "$started"
check "the daemon ends with the process that was started" wait_until 10 gone "$pid"
wait "$started" 2>/dev/null || true
penstock umount "$MNT"
penstock mount -f "$ORIGIN/" "$MNT" --cache-dir "$CACHE" --log "$T/penstock.log" 2>"$T/out" &
started=$!
check "another one" wait_until 20 test -e "$MNT/1.bin"
kill -KILL "$(stats .pid)"
stats .pid >"$T/pid"
kill -TERM "$started"
rc=0
wait "$started" || rc=$?
equal "SIGTERM of the started process unmounts" "0 no" "$rc $(is_mounted && echo yes || echo no)"

# With a stderr whose reader has ended.
mkfifo "$T/stderr"
cat "$T/stderr" >"$T/out" &
reader=$!
penstock mount -f "$ORIGIN/" "$MNT" --cache-dir "$CACHE" 2>"$T/stderr" &
started=$!
check "a mount that logs to a pipe" wait_until 20 test -e "$MNT/1.bin"
kill "$reader"
wait "$reader" 2>/dev/null || true
for round in 1 2; do
	pid=$(stats .pid)
	kill -KILL "$pid"
	check "it outlives its daemon and the pipe's reader ($round)" wait_until 10 next_pid "$pid"
	sleep 1.1
done
kill -TERM "$started"
wait "$started" || true

# Giving up: three starts that fail, and one that hangs.
for way in dies hangs; do
	mount_penstock "$ORIGIN/"
	pid=$(stats .pid)
	keeper=$(keeper_of "$pid")
	exec 7<"$MNT/1.bin"
	"$python" "$top_srcdir/tests/fs/daemon/kill_starts.py" "$keeper" "$pid" "$way"
	start=$EPOCHSECONDS
	rc=0
	timeout 30 cat "$MNT/2.bin" >"$T/out" 2>"$T/err" || rc=$?
	equal "a daemon that $way at its start: an error, no hang" 1 "$rc"
	at_most "a daemon that $way: it comes within 12 s" 12 $((EPOCHSECONDS - start))
	check "a daemon that $way: the keeper ends" wait_until 5 gone "$keeper"
	check_not "a daemon that $way: the mount is cleared away" is_mounted
	check_not "a daemon that $way: no process is left" daemon_pid
	exec 7<&-
	check "a daemon that $way: the next mount serves" mount_penstock "$ORIGIN/"
	check "a daemon that $way: its bytes are right" cmp "$MNT/2.bin" "$T/www/2.bin"
	umount_penstock
done

# A connection that has ended while no daemon served: another mount may have its number.
mount_penstock "$ORIGIN/"
pid=$(stats .pid)
keeper=$(keeper_of "$pid")
device_of() { awk -v at="$1" '$5 == at {print $3}' /proc/self/mountinfo; }
device=$(device_of "$MNT")
"$python" - "$keeper" "$pid" "$MNT" <<'PY'
import ctypes, os, signal, sys, time
keeper, last, mnt = sys.argv[1:]
os.kill(int(last), signal.SIGKILL)
until = time.monotonic() + 10
while time.monotonic() < until:
    pids = open(f"/proc/{keeper}/task/{keeper}/children").read().split()
    if pids and pids[0] != last:
        os.kill(int(pids[0]), signal.SIGSTOP)
        break
else:
    sys.exit("no daemon was started")
if ctypes.CDLL(None).umount2(mnt.encode(), 2):  # MNT_DETACH
    sys.exit("umount2")
PY
check "another mount" join "$ORIGIN/" "$T/m4" --cache-dir "$T/cache2"
[[ $(device_of "$T/m4") == "$device" ]] || echo "# its number is another one"
check "the keeper gives up" wait_until 15 gone "$keeper"
check "the other mount serves" cmp "$T/m4/2.bin" "$T/www/2.bin"
penstock umount "$T/m4"

# An index that has lost its names must not serve other files by the numbers that the kernel knows.
mount_penstock "$ORIGIN/"
cat "$MNT/1.bin" >"$T/out"
mv "$CACHE" "$CACHE.old"
kill -KILL "$(daemon_pid)"
rc=0
timeout 30 cat "$MNT/2.bin" >"$T/out" 2>"$T/err" || rc=$?
equal "with another index the mount ends" 1 "$rc"
check_not "and is cleared away" wait_until 1 is_mounted
