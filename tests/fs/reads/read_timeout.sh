#!/usr/bin/env bash
# A read that the origin does not answer fails after --timeout; it does not hang, and can be interrupted.
. "$(dirname "$0")/../../lib.sh"
requires mount nginx-lua

mkdir -p "$T/www"
random_file "$T/www/f.bin" 8000000
start_nginx
mount_penstock "$ORIGIN/stall/" --timeout 3s
touch "$T/nginx/stall"
rc=0
took=$(milliseconds head -c 1000 "$MNT/f.bin")
head -c 1000 "$MNT/f.bin" >/dev/null 2>"$T/err" || rc=$?
equal "the read fails" 1 "$rc"
check "the error is an I/O error or a timeout" grep -Eqi 'input/output error|timed out' "$T/err"
at_least "the read fails not before the timeout (ms)" 2500 "$took"
at_most "the read fails soon after the timeout (ms)" 6000 "$took"

umount_penstock
mount_penstock "$ORIGIN/stall/" --timeout 60s
head -c 1000 "$MNT/f.bin" >/dev/null 2>&1 &
reader=$!
sleep 0.5
kill -TERM "$reader"
check "a signal ends a waiting reader" wait_until 3 bash -c "! kill -0 $reader"

rm "$T/nginx/stall"
check "the file is read once the origin answers again" wait_until 10 cmp "$MNT/f.bin" "$T/www/f.bin"
