#!/usr/bin/env bash
# The daemon's life: what ps shows of it, signals, a crash and the next mount, a daemon that does not answer,
# mount(8).
. "$(dirname "$0")/../../lib.sh"
requires mount nginx jq

mkdir -p "$T/src" "$MNT"
random_file "$T/src/f.bin" 3000000
start_nginx "$T/src"
source=$ORIGIN/

echo held >"$T/held"
exec 8<"$T/held"
https_proxy=http://me:geheim4@127.0.0.1:9 mount_penstock "$source" --user me:geheim1 \
	--header "X-Token: geheim2" -o "ro,header=X-Other: geheim3"
pid=$(stats .pid)
equal "the daemon is the process that stats names" penstock "$(cat "/proc/$pid/comm")"
check_not "no secret is in the daemon's command line" grep -q geheim "/proc/$pid/cmdline"
check_not "no secret is in the daemon's environment" grep -q geheim "/proc/$pid/environ"
check_not "no secret is in the log" grep -q geheim "$T/penstock.log"
equal "the daemon's standard streams are /dev/null" "/dev/null /dev/null /dev/null" \
	"$(readlink "/proc/$pid/fd/0" "/proc/$pid/fd/1" "/proc/$pid/fd/2" | xargs)"
exec 8<&-
equal "the daemon has closed a descriptor that it inherited" \
	0 "$(readlink "/proc/$pid/fd/"* | grep -cx "$T/held")"
equal "the daemon's working folder is /" / "$(readlink "/proc/$pid/cwd")"

mv "$T/penstock.log" "$T/penstock.log.1"
kill -HUP "$pid"
check "SIGHUP opens the log again" wait_until 5 test -e "$T/penstock.log"

rc=0
penstock mount "$source" "$MNT" --cache-dir "$T/other" >"$T/out" 2>&1 || rc=$?
equal "a second mount on the same folder fails" "1 1" "$rc $(grep -c "already a penstock mount" "$T/out")"
check_not "the failed mount makes no cache" test -e "$T/other"

(cd "$MNT" && exec sleep 60) &
holder=$!
wait_until 5 bash -c "[[ \$(readlink /proc/$holder/cwd) == '$MNT' ]]" ||
	die "a process has the mount as its working folder"
rc=0
(cd "$MNT" && penstock umount "$MNT") >"$T/out" 2>&1 || rc=$?
equal "umount names the process whose working folder is the mount" "1 1" \
	"$rc $(grep -cw "$holder (sleep, working folder)" "$T/out")"
kill "$holder"
wait "$holder" 2>/dev/null || true

exec 9<"$MNT/f.bin"
kill -TERM "$pid"
check "SIGTERM ends the daemon although a file is open" wait_until 5 bash -c "! kill -0 $pid 2>/dev/null"
check_not "SIGTERM unmounts" is_mounted
exec 9<&-

mount_penstock "$source"
kill_daemon "$(stats .pid)"
rc=0
penstock status "$MNT" >"$T/out" 2>&1 || rc=$?
equal "status of a dead daemon's mount fails" "1 1" "$rc $(grep -c "has died" "$T/out")"
check "the next mount replaces the dead mount" mount_penstock "$source"
check "the new mount serves its file" cmp "$MNT/f.bin" "$T/src/f.bin"
equal "there is one mount, not two" \
	1 "$(awk -v where="$MNT" '$5 == where {n++} END {print n + 0}' /proc/self/mountinfo)"
kill_daemon "$(stats .pid)"
check "umount removes a dead mount" umount_penstock
check_not "after that umount nothing is mounted" is_mounted

mount_penstock "$source"
pid=$(stats .pid)
kill -STOP "$pid"
rc=0
took=$(milliseconds timeout -k 1 20 penstock status "$MNT")
penstock status "$MNT" --json >"$T/out" 2>/dev/null || rc=$?
equal "status of a stopped daemon fails" 1 "$rc"
at_most "status of a stopped daemon takes at most 5 s (ms)" 5000 "$took"
equal "status --json of a stopped daemon has the error" \
	"$MNT" "$(jq -r 'select(.error != null).mountpoint' "$T/out")"
at_most "umount --force of it takes at most 5 s (ms)" 5000 \
	"$(milliseconds timeout -k 1 20 penstock umount --force "$MNT")"
check_not "umount --force unmounts" is_mounted
kill -CONT "$pid"
check "the stopped daemon ends once it continues" wait_until 10 bash -c "! kill -0 $pid 2>/dev/null"

no_daemon() {
	! daemon_pid >/dev/null
}
mkdir "$T/bin"
ln -s "$top_builddir/penstock" "$T/bin/mount.penstock"
check "mount.penstock, as mount(8) calls it" "$T/bin/mount.penstock" "$source" "$MNT" -n -o \
	"rw,noatime,cache-dir=$CACHE,uid=7"
equal "mount.penstock takes the options" 7 "$(stat -c %u "$MNT/f.bin")"
check "umount succeeds" timeout 30 penstock umount "$MNT"
check "the daemon has ended when umount returns" no_daemon
check "mount.penstock mounts again" "$T/bin/mount.penstock" "$source" "$MNT" -o "cache-dir=$CACHE"
umount "$MNT"
check "umount(8) ends the daemon" wait_until 10 no_daemon
check "mount.penstock -f only pretends" "$T/bin/mount.penstock" "$source" "$MNT" -f -o rw
check_not "mount.penstock -f mounts nothing" is_mounted
