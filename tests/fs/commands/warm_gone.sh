#!/usr/bin/env bash
# penstock warm ends as soon as a reader of the mount would time out, and has the origin's error.
. "$(dirname "$0")/../../lib.sh"
requires mount nginx jq

mkdir -p "$T/www"
for i in 1 2 3; do
	random_file "$T/www/$i.bin" 3000000 "$i"
done
start_nginx
mount_penstock "$ORIGIN/" --timeout 3
equal "the statistics have the timeout" 3 "$(jq '.origin.timeout_seconds | round' "$MNT/.penstock/stats")"
check "the metrics have the timeout" \
	grep -q '^penstock_origin_timeout_seconds{.*} 3' "$MNT/.penstock/cache_metrics"
kill_nginx
rc=0
# Without the mount's timeout, warm would wait for 25 seconds.
timeout 20 penstock warm "$MNT" >"$T/out" 2>&1 || rc=$?
equal "warm fails when the origin is gone" 1 "$rc"
check "warm has the origin's error" grep -q "1.bin: .*onnect" "$T/out"
restart_nginx
check "warm succeeds once the origin is back" timeout 60 penstock warm "$MNT"
umount_penstock
