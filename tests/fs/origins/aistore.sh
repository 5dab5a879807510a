#!/usr/bin/env bash
# AIStore by its S3 API: the gateway lists, and redirects each read to the target that has the object.
. "$(dirname "$0")/../../lib.sh"
requires mount curl

mkdir -p "$T/ais/train"
make_shards "$T/ais/train" 6 2500000
random_file "$T/ais/train/a b+%20&#?.bin" 1500001
good=$(sha_manifest "$T/ais/train")
"$python" "$top_srcdir/tests/fs/origins/aistore_server.py" "$T/ais" "$T/ready" "$T/ais.requests" 2>"$T/ais.log" &
wait_until 30 test -s "$T/ready" || die "the cluster starts" "$(cat "$T/ais.log")"
gateway=$(cat "$T/ready")
export AWS_ACCESS_KEY_ID=none AWS_SECRET_ACCESS_KEY=never-to-be-seen AWS_EC2_METADATA_DISABLED=true HOME=$T
mounted() { sha_manifest "$MNT" | grep -v penstock; }

check "it mounts" mount_penstock s3://bucket/train/ --endpoint "$gateway/s3" --follow-redirects
equal "all objects have their bytes" "$good" "$(mounted)"
umount_penstock
equal "the gateway gave no byte of them" 0 "$(grep -c '^gateway GET .* 206 ' "$T/ais.requests" || true)"
for target in target0 target1; do
	at_least "$target was read from" 1 "$(grep -c "^$target GET .* 206 bytes=" "$T/ais.requests" || true)"
done
equal "no target was asked for what another has" 0 "$(grep -c '^target. .* 404 ' "$T/ais.requests" || true)"
equal "no target was shown a credential" 0 "$(grep -c '^target.* secret' "$T/ais.requests" || true)"
check "a redirect's own query is kept" grep -q '^target. GET .*pid=p\[standin\]&ptm=[0-9]* 206' \
	"$T/ais.requests"

rm -rf "$CACHE"
mount_penstock s3://bucket/train/ --endpoint "$gateway/s3"
check_not "without --follow-redirects nothing is read" cat "$MNT/shard-000000.tar"
check "and the log says what to do" grep -q -- "--follow-redirects" "$T/penstock.log"
umount_penstock
