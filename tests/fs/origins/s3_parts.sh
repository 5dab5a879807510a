#!/usr/bin/env bash
# A real S3 server with several pages of keys: its listing is split at guessed keys, and has every name once.
PS_TEST_TIMEOUT=${PS_TEST_TIMEOUT:-300}
. "$(dirname "$0")/../../lib.sh"
. "$(dirname "$0")/../../rgw.sh"
requires mount
requires_rgw

bucket() {
	"$python" "$top_srcdir/tests/fs/origins/s3_bucket.py" "$@"
}

start_rgw
bucket nasty shards
bucket clashes shards

# The server answers in bursts, so that the listing waits for pages; while it waits, it is split.
stutter() {
	local pid
	pid=$(cat "$T/rgw/radosgw.pid")
	while kill -STOP "$pid" 2>/dev/null; do
		sleep 0.1
		kill -CONT "$pid"
		sleep 0.02
	done
}
for prefix in clashes/ ""; do
	CACHE=$T/cache-${prefix%/}
	stutter &
	stuttering=$!
	check "s3://shards/$prefix mounts" mount_penstock "s3://shards/$prefix" --endpoint "$S3" --log-level debug
	kill "$stuttering"
	wait "$stuttering" || true
	kill -CONT "$(cat "$T/rgw/radosgw.pid")"
	check "s3://shards/$prefix: every object has its name and its bytes" bucket compare shards "$prefix" "$MNT"
	check_not "s3://shards/$prefix: nothing was skipped" grep -q skipped "$T/penstock.log"
	umount_penstock
done
check "a listing was split" grep -q 'list: s3://shards: in [0-9]* parts' "$T/penstock.log"
check_not "none was begun again" grep -q 'listed again' "$T/penstock.log"
