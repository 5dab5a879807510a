#!/usr/bin/env bash
# The data folder never holds more than --cache-size while a dataset of twice that is read, twice, and the bytes are right.
. "$(dirname "$0")/../lib.sh"
requires mount nginx slow

mkdir -p "$T/www"
for i in {10..25}; do
	random_file "$T/www/$i.bin" 8000000 "$i"
done
sha_manifest "$T/www" >"$T/manifest"
start_nginx
mount_penstock "$ORIGIN/" --cache-size 64M

# The largest seen while the readers run, in bytes.
(
	most=0
	while [[ ! -e $T/done ]]; do
		now=$(du -s --block-size=1 "$CACHE/data" 2>/dev/null | cut -f 1) || true
		((${now:-0} > most)) && most=$now && echo "$most" >"$T/most"
		sleep 0.02
	done
) &
watcher=$!
check "first epoch" read_tree 1m "$MNT" 2
drop_page_cache
origin_forget
check "second epoch" read_tree 1m
second=$(origin_bytes)
drop_page_cache
check "in random order, by four" read_tree random "$MNT" 4
touch "$T/done"
wait "$watcher" || true
at_most "the data folder stayed within the quota" $((64 << 20)) "$(cat "$T/most")"
at_least "and was used (a half of the quota or more)" $((32 << 20)) "$(cat "$T/most")"
at_most "the second epoch hit: it cost the origin less than 70 % of the dataset" $((128000000 * 70 / 100)) "$second"
equal "status tells the limit" $((64 << 20)) "$(stats .cache.limit_bytes)"
at_most "and what is used" $((64 << 20)) "$(stats .cache.used_bytes)"
