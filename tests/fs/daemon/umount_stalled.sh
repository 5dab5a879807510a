#!/usr/bin/env bash
# While readers wait for an origin that does not answer, umount names them, and umount, --lazy and --force
# return within 5 s.
. "$(dirname "$0")/../../lib.sh"
requires mount nginx-lua

mkdir -p "$T/www"
random_file "$T/www/f.bin" 8000000
start_nginx
touch "$T/nginx/stall"

start_stuck() {
	mount_penstock "$ORIGIN/stall/" --timeout 60s
	cat "$MNT/f.bin" >/dev/null 2>"$T/reader.err" &
	reader=$!
	sleep 1
	kill -0 "$reader" || die "a reader waits" "$(cat "$T/reader.err")"
}

start_stuck
rc=0
took=$(milliseconds timeout -k 1 20 penstock umount "$MNT")
penstock umount "$MNT" >"$T/out" 2>&1 || rc=$?
equal "umount fails while a reader waits" 1 "$((rc != 0))"
check "umount names the reader's process ID" grep -qw "$reader" "$T/out"
at_most "umount takes at most 5 s (ms)" 5000 "$took"
at_most "umount --force takes at most 5 s (ms)" \
	5000 "$(milliseconds timeout -k 1 20 penstock umount --force "$MNT")"
check_not "umount --force unmounts" is_mounted
check "the reader ends after umount --force" wait_until 5 bash -c "! kill -0 $reader"
check "the daemon ends after umount --force" wait_until 10 bash -c "! kill -0 $(daemon_pid || echo 99999999)"

start_stuck
at_most "umount --lazy takes at most 5 s (ms)" \
	5000 "$(milliseconds timeout -k 1 20 penstock umount --lazy "$MNT")"
check_not "umount --lazy unmounts" is_mounted
kill -KILL "$reader"
check "a killed reader does not hang" wait_until 5 bash -c "! kill -0 $reader"
check "the daemon ends when the reader is killed" \
	wait_until 20 bash -c "! kill -0 $(daemon_pid || echo 99999999)"

# The kernel reuses a device number once its mount is gone. So a daemon that notices late that its mount has
# ended must not unmount the next mount on that path.
mount_penstock "$ORIGIN/"
first=$(daemon_pid)
device=$(stat -c %d "$MNT")
kill -STOP "$first"
umount -c "$MNT" # -c: do not stat the mountpoint, as nothing answers
mount_penstock "$ORIGIN/" --cache-dir "$T/other-cache"
[[ $(stat -c %d "$MNT") == "$device" ]] || echo "# (this kernel gave the second mount another device number)"
kill -CONT "$first"
check "a daemon that was stopped ends once its mount is gone" wait_until 10 bash -c "! kill -0 $first"
check "the next mount on that path stays" cmp "$MNT/f.bin" "$T/www/f.bin"
penstock umount "$MNT"
