#!/usr/bin/env bash
# An index that is damaged between two mounts, in the same boot: the next start notices, moves it aside, and
# serves.
. "$(dirname "$0")/../../lib.sh"
requires mount nginx

mkdir -p "$T/www"
for i in {000..299}; do
	echo "$i" >"$T/www/file-$i-$(printf 'n%.0s' {1..150}).txt"
done
start_nginx
mount_penstock "$ORIGIN/json/"
equal "all names are there" 300 "$(find "$MNT" -mindepth 1 -maxdepth 1 | wc -l)"
umount_penstock
mount_penstock "$ORIGIN/json/" # the names go from RocksDB's log to a table
umount_penstock
tables=("$CACHE"/index/*.sst)
check "the index has tables" test -e "${tables[0]}"
for table in "${tables[@]}"; do
	printf '%.0sx' {1..200} | dd of="$table" bs=1 seek=300 conv=notrunc status=none
done
mount_penstock "$ORIGIN/json/"
check "the damaged index is moved aside" test -e "$CACHE/index.broken-1"
equal "all names are there again" 300 "$(find "$MNT" -mindepth 1 -maxdepth 1 | wc -l)"
check "a file is right" cmp "$MNT"/file-007-* "$T"/www/file-007-*
umount_penstock
