#!/usr/bin/env bash
# df shows the dataset as used, and the room of the cache as available, but not less than the dataset.
. "$(dirname "$0")/../../lib.sh"
requires mount nginx

mkdir -p "$T/www"
random_file "$T/www/f.bin" 20000000
random_file "$T/www/g.bin" 30000000
start_nginx
field() { df -B 1 --output="$1" "$MNT" | tail -n 1 | tr -d ' '; }
near() { (($2 <= $1 && $1 < $2 + 2097152)); } # blocks of 1 MiB
mount_penstock "$ORIGIN/json/" --cache-size 1G
check "used is the dataset" near "$(field used)" 50000000
room=$(field avail)
check "available is the room of the cache" test "$room" -gt 900000000 -a "$room" -le $((1 << 30))
equal "size is both" "$((room + $(field used)))" "$(field size)"
check "the file system is read-only" "$python" -c 'import os, sys
sys.exit(not os.statvfs(sys.argv[1]).f_flag & os.ST_RDONLY)' "$MNT"
cat "$MNT/f.bin" >/dev/null
less() { (($(field avail) <= room - 19000000)); }
check "the available room shrinks with what is cached" wait_until 10 less
check "used stays the dataset" near "$(field used)" 50000000
umount_penstock
CACHE=$T/small
mount_penstock "$ORIGIN/json/" --cache-size 40M
check "available is not less than the dataset" near "$(($(field avail) + 1048576))" 50000000
umount_penstock
CACHE=$T/many
mkdir "$T/many.d"
(cd "$T/many.d" && for d in {1..26}; do mkdir "$d" && (cd "$d" && printf '%s\n' {1..2000} | xargs touch); done)
truncate -s 1G "$T/many.d/large"
mount_penstock "file://$T/many.d/" --cache-size 40M
at_most "many names are not counted" $((40 << 20)) "$(field size)"
