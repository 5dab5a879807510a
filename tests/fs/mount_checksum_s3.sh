#!/usr/bin/env bash
# Checksums that an S3 store gives by HEAD only: one is asked for with the first bytes of a listed object,
# and compared when it is whole; those of parts are none; a store that has none is not asked for long.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../cloud/cloud.sh"
requires mount jq getfattr python:http.server

start_cloud
echo "AKIABASE hush/base" >"$T/cloud/keys"
export AWS_ACCESS_KEY_ID=AKIABASE AWS_SECRET_ACCESS_KEY=hush/base AWS_REGION=us-east-1
mkdir -p "$T/cloud/bucket/train"
for name in good.bin bad.damaged; do
	random_file "$T/cloud/bucket/train/$name" 9000000 "$name"
done
random_file "$T/cloud/bucket/train/small.damaged" 3000000
start() { mount_penstock s3://bucket/train/ --endpoint "$CLOUD" "$@"; }
heads() { cloud_seen '^HEAD '; }
xattr() { getfattr --absolute-names --only-values -n "user.penstock.$2" "$MNT/$1"; }
is() { [[ $(xattr "$1" state) == "$2" ]]; }
reads() { cmp "$MNT/$1" "$T/cloud/bucket/train/$1"; }
refused() { xattr bad.damaged error | grep -q 'sha256:.*the origin or its list says sha256:'; }

echo FULL_OBJECT >"$T/cloud/amz_checksums"
start
equal "mounting asks for no object" 0 "$(heads)"
check "what matches is read" reads good.bin
check "and kept" wait_until 20 is good.bin cached
cat "$MNT/bad.damaged" >/dev/null 2>&1 || true
check "what does not match is refused once it is whole" wait_until 20 refused
equal "and counted" 1 "$(stats .cache.checksum_errors)"
equal "each was asked for once" 2 "$(heads)"
check "a small one is not asked for" reads small.damaged
equal "at all" 2 "$(heads)"
umount_penstock

rm -rf "$CACHE"
echo COMPOSITE >"$T/cloud/amz_checksums"
start
check "checksums of parts are not compared" reads bad.damaged
check "with the whole" wait_until 20 is bad.damaged cached
umount_penstock

rm -rf "$CACHE"
echo none >"$T/cloud/amz_checksums"
for i in {1..24}; do
	cp "$T/cloud/bucket/train/good.bin" "$T/cloud/bucket/train/$i.bin"
done
start
before=$(heads)
asked_for() { (($(heads) - before >= $1)); }
for i in {1..24}; do
	head -c 100 "$MNT/$i.bin" >/dev/null
	((i > 8)) || wait_until 20 asked_for "$i" || true
done
at_most "a store that has none is not asked for long" 14 "$(($(heads) - before))"
