#!/usr/bin/env bash
# A dataset of 2,000 files lists and stats quickly, by few HEADs, and after a restart by none.
. "$(dirname "$0")/../lib.sh"
requires mount nginx

mkdir -p "$T/www/many"
for i in {0001..2000}; do
	echo "$i" >"$T/www/many/$i.txt"
done
start_nginx
mount_penstock "$ORIGIN/"
origin_forget
took=$(milliseconds ls -l "$MNT/many")
equal "all are there" 2000 "$(grep -c '\.txt' "$T/milliseconds.out")"
at_most "the first ls -l (ms)" 10000 "$took"
at_most "asks the origin once a file" 2010 "$(grep -c HEAD "$T/nginx/access.log" || true)"
equal "sizes are right" 10000 "$(find "$MNT/many" -type f -printf '%s\n' | awk '{s += $1} END {printf "%.0f\n", s}')"
at_most "the second ls -l (ms)" 2000 "$(milliseconds ls -l "$MNT/many")"
check "and a content" grep -qx 1234 "$MNT/many/1234.txt"
umount_penstock
mount_penstock "$ORIGIN/"
origin_forget
took=$(milliseconds ls -l "$MNT/many")
at_most "ls -l after a restart (ms)" 2000 "$took"
at_most "asks the origin nothing about files" 5 "$(grep -c HEAD "$T/nginx/access.log" || true)"
