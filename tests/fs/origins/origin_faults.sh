#!/usr/bin/env bash
# Whatever the origin does wrong, a reader gets the right bytes or an error. Retries are counted.
. "$(dirname "$0")/../../lib.sh"
requires mount nginx-lua jq getfattr

make_tree "$T/www"
start_nginx

for fault in flaky badrange cut; do
	CACHE=$T/cache-$fault
	check "a mount of /$fault/ succeeds" mount_penstock "$ORIGIN/$fault/"
	check "files of /$fault/ have the right bytes" read_tree 1m
	at_least "retries of /$fault/ are counted" 1 "$(stats '.origin.retries')"
	umount_penstock
done

# A CDN that caps ranges: the rest is requested, and that is not a failure.
CACHE=$T/cache-capped
check "a mount of /capped/ succeeds" mount_penstock "$ORIGIN/capped/"
check "right bytes from an origin that gives the beginning of each range" read_tree 1m
equal "capped ranges need no retry" 0 "$(stats '.origin.retries')"
umount_penstock
CACHE=$T/cache-capped9
mount_penstock "$ORIGIN/capped9/" --timeout 5s
check_not "a file of an origin that gives 9 bytes a range cannot be read" \
	timeout 30 cat "$MNT/sub/deep/7654321.bin"
check "the error says that ranges are too short" grep -q 'too short' \
	<(getfattr --only-values -n user.penstock.error "$MNT/sub/deep/7654321.bin")
at_most "that file is not requested thousands of times" \
	200 "$(grep -c /capped9/sub/deep/7654321.bin "$T/nginx/access.log")"
umount_penstock

# A server that fails only for HEAD.
CACHE=$T/cache-head500
check "a mount of /head500/ succeeds" mount_penstock "$ORIGIN/head500/"
check "right bytes from an origin that cannot do HEAD" read_tree 1m
umount_penstock

# 503 for a while, then normal.
CACHE=$T/cache-busy
mount_penstock "$ORIGIN/busy/" --timeout 30s
touch "$T/nginx/busy"
(sleep 2 && rm "$T/nginx/busy") &
check "right bytes after two seconds of 503" read_tree 1m
umount_penstock

# The origin restarts under a reader.
CACHE=$T/cache-restart
mount_penstock "$ORIGIN/" --timeout 30s
head -c 1000 "$MNT/shard-000000.tar" >/dev/null
kill_nginx
(sleep 2 && restart_nginx) &
check "right bytes from an origin that was away for two seconds" read_tree 1m
umount_penstock

# No ranges at all: an error, never wrong data.
CACHE=$T/cache-norange
if mount_penstock "$ORIGIN/norange/" --timeout 5s >"$T/out" 2>&1; then
	rc=0
	timeout 30 cat "$MNT/sub/deep/7654321.bin" >"$T/got" 2>"$T/err" || rc=$?
	if ((rc == 0)); then
		check "an origin without ranges: right bytes" cmp "$T/got" "$T/www/sub/deep/7654321.bin"
	else
		pass "an origin without ranges: a clean error"
		check "an origin without ranges: the reason is in user.penstock.error" \
			grep -q 'ignores Range' \
			<(getfattr --only-values -n user.penstock.error "$MNT/sub/deep/7654321.bin")
	fi
	umount_penstock
else
	equal "an origin without ranges: a one-line error" 1 "$(wc -l <"$T/out")"
fi
