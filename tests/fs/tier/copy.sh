#!/usr/bin/env bash
# scripts/tier/copy copies a dataset to a directory that nodes share, and to a bucket of Ceph's gateway. Both
# are mounted; the bucket, which is private, also through a tier, with signatures that the gateway verifies.
PS_TEST_TIMEOUT=${PS_TEST_TIMEOUT:-240}
. "$(dirname "$0")/../../lib.sh"
. "$(dirname "$0")/../../rgw.sh"
. "$(dirname "$0")/servers_lib.sh"
requires mount nginx jq

copy=$top_srcdir/scripts/tier/copy
make_shards "$T/www" 3 6000000
mkdir "$T/www/sub"
random_file "$T/www/sub/a b%20+&#.bin" 100001
good=$(sha_manifest "$T/www")
size=$(du -cb "$T"/www/*.tar "$T"/www/sub/* | awk 'END {print $1}')
start_nginx
mounted() { sha_manifest "$MNT" | grep -v penstock; }

check "it is copied to a directory" "$copy" "$ORIGIN/" "$T/shared"
equal "with its bytes, and nothing else" "$good" "$(sha_manifest "$T/shared")"
at_most "each byte left the origin once" $((size * 105 / 100)) "$(origin_bytes)"
for node in 1 2; do
	rm -rf "$CACHE"
	origin_forget
	mount_penstock "$T/shared"
	equal "node $node mounts the directory" "$good" "$(mounted)"
	umount_penstock
done
equal "and the origin is not asked" 0 "$(origin_bytes)"
random_file "$T/www/shard-000001.tar" 6000001
good=$(sha_manifest "$T/www")
equal "a second run copies what has changed" "$T/shared/shard-000001.tar" "$("$copy" "$ORIGIN/" "$T/shared")"
equal "and all is as at the origin" "$good" "$(sha_manifest "$T/shared")"
check_not "an origin that is not there is an error" "$copy" http://127.0.0.1:9/ "$T/shared" --option \
	--timeout=1s
equal "nothing stays behind" "" "$(compgen -G "$T/penstock-copy-*" || true)"

for program in radosgw radosgw-admin ceph-mon ceph-osd monmaptool rclone; do
	command -v "$program" >/dev/null || {
		skip "a bucket of Ceph's gateway" "$program is not installed"
		exit 0
	}
done
start_rgw
check "a bucket is made" env RCLONE_S3_PROVIDER=Other RCLONE_S3_ENV_AUTH=true RCLONE_S3_ENDPOINT="$S3" \
	rclone mkdir :s3:near
origin_forget
check "it is copied to the bucket" "$copy" --endpoint "$S3" "$ORIGIN/" s3://near/train/
at_most "each byte left the origin once" $((size * 105 / 100)) "$(origin_bytes)"
rm -rf "$CACHE"
origin_forget
mount_penstock s3://near/train/ --endpoint "$S3"
equal "a node mounts the bucket" "$good" "$(mounted)"
umount_penstock
equal "and the origin is not asked" 0 "$(origin_bytes)"
check "a second run" "$copy" --endpoint "$S3" "$ORIGIN/" s3://near/train/
at_most "copies nothing" 100000 "$(origin_bytes)"

# The bucket is private. A tier in front of it: the gateway verifies what the mount signed for the gateway.
: "${tier_port:=$(free_port)}"
OURS_PID=$$ OURS_HOST=${S3#*://}
start_tier nginx --origin "$S3" --access-log "$T/tier-access"
rm -rf "$CACHE"
mount_penstock s3://near/train/ --endpoint "$S3" --tier "$TIER"
equal "signed requests pass through a tier" "$good" "$(mounted)"
at_least "which answered them" $((size * 9 / 10)) "$(stats '.mounts[0].tier.bytes')"
equal "all of them" 0 "$(stats '.mounts[0].tier.fallbacks')"
umount_penstock
rm -rf "$CACHE"
mount_penstock s3://near/train/ --endpoint "$S3" --tier "$TIER"
equal "another node's, too" "$good" "$(mounted)"
umount_penstock
sleep 1.2 # (its log is written each second)
at_least "from what the tier keeps" 4 "$(grep -c ' 206 HIT ' "$T/tier-access")"
etag="\"$(md5sum <"$T/www/shard-000000.tar" | cut -c 1-32)\"" # of an upload in one part
equal "the tier keeps a shard under its ETag" 1 \
	"$(grep -rlaF "/near/train/shard-000000.tar $etag" "$T/tier/cache" | head -n 1 | wc -l)"
equal "without a signature the gateway refuses, and the tier, too" 403 \
	"$(get /near/train/shard-000000.tar 0-4194303 -H "If-Match: $etag")"
stop_tier
