#!/usr/bin/env bash
# df shows the cache: its limit as size, what it holds as used.
. "$(dirname "$0")/../lib.sh"
requires mount nginx

mkdir -p "$T/www"
random_file "$T/www/f.bin" 20000000
start_nginx
mount_penstock "$ORIGIN/" --cache-size 1G
equal "size is the quota" $((1 << 30)) "$(df -B 1 --output=size "$MNT" | tail -n 1 | tr -d ' ')"
before=$(df -B 1 --output=used "$MNT" | tail -n 1 | tr -d ' ')
cat "$MNT/f.bin" >/dev/null
used() { df -B 1 --output=used "$MNT" | tail -n 1 | tr -d ' '; }
grown() { (($(used) >= before + 20000000)); }
check "used grows with what was read" wait_until 5 grown
at_most "used grows by two blocks more at most" $((before + 20000000 + (2 << 20))) "$(used)"
