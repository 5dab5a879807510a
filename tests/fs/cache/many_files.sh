#!/usr/bin/env bash
# ls and stat of 2,000 files are quick, with one HEAD a file, and after a restart with almost none.
. "$(dirname "$0")/../../lib.sh"
requires mount nginx

mkdir -p "$T/www/many"
for i in {0001..2000}; do
	echo "$i" >"$T/www/many/$i.txt"
done
start_nginx
mount_penstock "$ORIGIN/"
origin_forget
took=$(milliseconds ls -l "$MNT/many")
equal "all files are listed" 2000 "$(grep -c '\.txt' "$T/milliseconds.out")"
at_most "the first ls -l takes at most 10 s (ms)" 10000 "$took"
at_most "the first ls -l sends one HEAD a file" 2010 "$(grep -c HEAD "$T/nginx/access.log" || true)"
equal "sizes are right" 10000 "$(find "$MNT/many" -type f -printf '%s\n' | awk '{s += $1} END {printf "%.0f\n", s}')"
at_most "the second ls -l takes at most 2 s (ms)" 2000 "$(milliseconds ls -l "$MNT/many")"
check "a file's content is right" grep -qx 1234 "$MNT/many/1234.txt"
umount_penstock
mount_penstock "$ORIGIN/"
origin_forget
took=$(milliseconds ls -l "$MNT/many")
at_most "ls -l after a restart takes at most 2 s (ms)" 2000 "$took"
at_most "ls -l after a restart sends no HEADs for files" 5 "$(grep -c HEAD "$T/nginx/access.log" || true)"
