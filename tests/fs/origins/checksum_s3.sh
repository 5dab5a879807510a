#!/usr/bin/env bash
# Checksums that an S3 store gives by HEAD only: the HEAD is sent with the request for the first bytes of a
# listed object, and the checksum is compared when the object is complete. Checksums of parts are not
# compared. A store without checksums is not asked for long.
. "$(dirname "$0")/../../lib.sh"
. "$(dirname "$0")/../../cloud/cloud.sh"
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
refused() { xattr bad.damaged error | grep -q 'sha256:.*but the origin or manifest gives sha256:'; }

echo FULL_OBJECT >"$T/cloud/amz_checksums"
start
equal "mounting asks for no object" 0 "$(heads)"
check "an object that matches is read" reads good.bin
check "an object that matches is kept" wait_until 20 is good.bin cached
cat "$MNT/bad.damaged" >/dev/null 2>&1 || true
check "an object that does not match is refused once it is complete" wait_until 20 refused
equal "the mismatch is counted" 1 "$(stats .cache.checksum_errors)"
equal "each object had one HEAD" 2 "$(heads)"
check "a small object is read" reads small.damaged
equal "a small object has no HEAD" 2 "$(heads)"
umount_penstock

rm -rf "$CACHE"
echo COMPOSITE >"$T/cloud/amz_checksums"
start
check "checksums of parts are not compared" reads bad.damaged
check "an object with checksums of parts is kept" wait_until 20 is bad.damaged cached
umount_penstock

rm -rf "$CACHE"
echo untold >"$T/cloud/amz_checksums"
start
check "an object in one part has a checksum of the whole object" wait_until 20 bash -c \
	"cat '$MNT/bad.damaged' >'$T/out' 2>&1; getfattr --only-values -n user.penstock.error '$MNT/bad.damaged' | grep -q 'gives sha256:'"
umount_penstock
rm -rf "$CACHE"
touch "$T/cloud/etags_of_parts"
start
check "an object of several parts, without the checksum's type: it is not compared" reads bad.damaged
check "an object of several parts is kept" wait_until 20 is bad.damaged cached
umount_penstock
rm "$T/cloud/etags_of_parts"

# What a mismatch does is the user's choice.
rm -rf "$CACHE"
echo FULL_OBJECT >"$T/cloud/amz_checksums"
start --checksums warn
cat "$MNT/bad.damaged" >/dev/null
check "--checksums warn: the file that does not match is kept" wait_until 20 is bad.damaged cached
check "--checksums warn: the log reports the mismatch" wait_until 20 grep -q 'checksum: .*bad.damaged.*mismatch' "$T/penstock.log"
equal "--checksums warn: the mismatch is counted" 1 "$(stats .cache.checksum_errors)"
check "--checksums warn: the file is read again" reads bad.damaged
umount_penstock
start --checksums off
check "--checksums off: the file is read" reads bad.damaged
equal "--checksums off: no mismatch is counted" 0 "$(stats .cache.checksum_errors)"
umount_penstock
start
refused_now() { ! reads bad.damaged 2>/dev/null; }
check "--checksums verify: the bytes that another mount kept are refused" wait_until 20 refused_now
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
at_most "a store without checksums is not asked for long" 14 "$(($(heads) - before))"
