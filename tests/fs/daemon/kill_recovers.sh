#!/usr/bin/env bash
# kill -9 of the daemon at several moments: the next mount of the cache serves right bytes, and what had been
# read completely is not fetched again.
. "$(dirname "$0")/../../lib.sh"
requires mount nginx

mkdir -p "$T/www"
for i in 1 2 3 4; do
	random_file "$T/www/$i.bin" 9000000 "$i"
done
sha_manifest "$T/www" >"$T/manifest"
start_nginx

mount_penstock "$ORIGIN/"
cat "$MNT/1.bin" "$MNT/2.bin" >/dev/null
# Data is written before the index, so served bytes are in the index after a moment.
sleep 3
kill_penstock
origin_forget
check "a mount of the same cache succeeds" mount_penstock "$ORIGIN/"
check "the first file has the right bytes" cmp "$MNT/1.bin" "$T/www/1.bin"
check "the second file has the right bytes" cmp "$MNT/2.bin" "$T/www/2.bin"
equal "nothing is fetched again" 0 "$(grep -c 'GET .*bin' "$T/nginx/access.log" || true)"
umount_penstock

# Kills in the middle of fetching, each time a bit later.
for delay in 0.02 0.1 0.25 0.5; do
	CACHE=$T/cache-$delay
	mount_penstock "$ORIGIN/limit/"
	cat "$MNT"/*.bin >/dev/null 2>&1 &
	reader=$!
	sleep "$delay"
	kill_penstock
	wait "$reader" || true
	check "a mount after a kill at $delay s succeeds" mount_penstock "$ORIGIN/"
	check "all bytes are right after a kill at $delay s" read_tree 1m
	umount_penstock
	check "verify finds no error after a kill at $delay s" penstock verify --cache-dir "$CACHE"
done

# The next mount at a dead mount's folder says what to do, or removes the dead mount.
mount_penstock "$ORIGIN/"
kill_daemon
sleep 0.3
rc=0
mount_penstock "$ORIGIN/" >"$T/out" 2>&1 || rc=$?
if ((rc == 0)); then
	check "a mount over a dead mount serves" read_tree 1m
else
	equal "a mount over a dead mount fails in one line" 1 "$(wc -l <"$T/out")"
	check "the error about a dead mount says what to do" grep -q 'umount' "$T/out"
fi
