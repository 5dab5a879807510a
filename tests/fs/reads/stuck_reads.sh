#!/usr/bin/env bash
# 256 reads that wait for a stalled origin do not delay a cached file of the same mount.
. "$(dirname "$0")/../../lib.sh"
requires mount nginx-lua

mkdir -p "$T/www/stuck"
random_file "$T/www/cached.bin" 20000000
for i in {1..64}; do
	truncate -s 40M "$T/www/stuck/$i.bin"
done
start_nginx
mount_penstock "$ORIGIN/stall/" --timeout 60s
cat "$MNT/cached.bin" >/dev/null
drop_page_cache

touch "$T/nginx/stall"
# Four readers of each file, far apart, so that no two wait for the same block.
"$python" - "$MNT/stuck" <<'PY' &
import os, sys, threading, time
def read(path, offset):
    os.posix_fadvise(fd := os.open(path, os.O_RDONLY), 0, 0, os.POSIX_FADV_RANDOM)
    os.pread(fd, 65536, offset)
for i in range(256):
    threading.Thread(target=read, args=(f"{sys.argv[1]}/{i // 4 + 1}.bin", i % 4 * 10_000_000), daemon=True).start()
time.sleep(60)
PY
sleep 2
at_least "reads are stuck" 200 "$(stats .reads.waiting)"
at_most "a cached file of 20 MB is read within 1 s (ms)" 1000 "$(milliseconds cat "$MNT/cached.bin")"
drop_page_cache "$MNT/cached.bin"
at_most "the cached file is read within 1 s again (ms)" 1000 "$(milliseconds cat "$MNT/cached.bin")"
at_most "ls works (ms)" 1000 "$(milliseconds ls -l "$MNT" "$MNT/stuck")"
at_most "opening another file of the origin works (ms)" 1000 "$(milliseconds head -c 0 "$MNT/stuck/64.bin")"
rm "$T/nginx/stall"
check "the stuck reads end when the origin answers" wait_until 20 "$BASH" \
	-c "[ \"\$(jq .reads.waiting '$MNT/.penstock/stats')\" = 0 ]"
