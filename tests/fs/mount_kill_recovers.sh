#!/usr/bin/env bash
# kill -9 of the daemon at several moments: the next mount of the cache serves right bytes, and what had been
# read completely is not fetched again.
. "$(dirname "$0")/../lib.sh"
requires mount nginx

mkdir -p "$T/www"
for i in 1 2 3 4; do
	random_file "$T/www/$i.bin" 9000000 "$i"
done
sha_manifest "$T/www" >"$T/manifest"
start_nginx

mount_penstock "$ORIGIN/"
cat "$MNT/1.bin" "$MNT/2.bin" >/dev/null
# Data first, index second: what was served is in the index soon, not at once.
sleep 3
kill_penstock
origin_forget
check "mounts the same cache again" mount_penstock "$ORIGIN/"
check "right bytes" cmp "$MNT/1.bin" "$T/www/1.bin"
check "of the second, too" cmp "$MNT/2.bin" "$T/www/2.bin"
equal "without another fetch" 0 "$(grep -c 'GET .*bin' "$T/nginx/access.log" || true)"
umount_penstock

# In the middle of filling, each time a bit later.
for delay in 0.02 0.1 0.25 0.5; do
	CACHE=$T/cache-$delay
	mount_penstock "$ORIGIN/limit/"
	cat "$MNT"/*.bin >/dev/null 2>&1 &
	reader=$!
	sleep "$delay"
	kill_penstock
	wait "$reader" || true
	check "mounts after a kill at $delay s" mount_penstock "$ORIGIN/"
	check "and serves right bytes" read_tree 1m
	umount_penstock
	check "which verify confirms" penstock verify --cache-dir "$CACHE"
done

# The dead mount is in the way of the next one, which says what to do or clears it away.
mount_penstock "$ORIGIN/"
kill -KILL "$(daemon_pid)"
sleep 0.3
rc=0
mount_penstock "$ORIGIN/" >"$T/out" 2>&1 || rc=$?
if ((rc == 0)); then
	check "a mount over a dead mount serves" read_tree 1m
else
	equal "a mount over a dead mount fails in one line" 1 "$(wc -l <"$T/out")"
	check "which says what to do" grep -q 'umount' "$T/out"
fi
