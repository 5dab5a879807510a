#!/usr/bin/env bash
# With readers that wait for an origin that does not answer, umount says so, --lazy and --force return, each
# in 5 s.
. "$(dirname "$0")/../lib.sh"
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
equal "umount fails" 1 "$((rc != 0))"
check "and names the reader's pid" grep -qw "$reader" "$T/out"
at_most "within 5 s (ms)" 5000 "$took"
at_most "umount --force within 5 s (ms)" 5000 "$(milliseconds timeout -k 1 20 penstock umount --force "$MNT")"
check_not "it is no longer mounted" is_mounted
check "the reader is released" wait_until 5 bash -c "! kill -0 $reader"
check "the daemon ends" wait_until 10 bash -c "! kill -0 $(daemon_pid || echo 99999999)"

start_stuck
at_most "umount --lazy within 5 s (ms)" 5000 "$(milliseconds timeout -k 1 20 penstock umount --lazy "$MNT")"
check_not "it is no longer mounted either" is_mounted
kill -KILL "$reader"
check "a killed reader does not hang" wait_until 5 bash -c "! kill -0 $reader"
check "and the daemon ends" wait_until 20 bash -c "! kill -0 $(daemon_pid || echo 99999999)"

# The kernel gives a device number again once its mount is gone, so a daemon that comes to know late that its
# mount has ended must not take away the next one on that path.
mount_penstock "$ORIGIN/"
first=$(daemon_pid)
device=$(stat -c %d "$MNT")
kill -STOP "$first"
umount -c "$MNT" # without looking at it: nothing answers
mount_penstock "$ORIGIN/" --cache-dir "$T/other-cache"
[[ $(stat -c %d "$MNT") == "$device" ]] || echo "# (this kernel gave the second mount another device number)"
kill -CONT "$first"
check "a daemon that was stopped ends once its mount is gone" wait_until 10 bash -c "! kill -0 $first"
check "and the next mount on that path stays" cmp "$MNT/f.bin" "$T/www/f.bin"
penstock umount "$MNT"
