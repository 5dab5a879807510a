#!/usr/bin/env bash
# With a real S3 server: a listing of several pages, keys with every byte, ranges of a large object,
# sources of every form, TLS, refusals in clear words, and no secret anywhere.
PS_TEST_TIMEOUT=${PS_TEST_TIMEOUT:-300}
. "$(dirname "$0")/../../lib.sh"
. "$(dirname "$0")/../../rgw.sh"
requires mount
requires_rgw
PS_RGW_SECRET=testsecretkey/with+chars0000000000000001

bucket() {
	"$python" "$top_srcdir/tests/fs/origins/s3_bucket.py" "$@"
}

start_rgw
bucket pages shards 2010
bucket nasty shards
bucket large shards large/one.tar 21
bucket put lists dir/list.txt $'# two of them\n../shards/x\ns3://shards/page/00001\ns3://shards/page/02009 \n'
bucket put lists dir/good.txt $'# two of them\ns3://shards/page/00001\ns3://shards/page/02009\n'

mounts() { # WHAT SOURCE OPTION...
	local what=$1
	shift
	CACHE=$T/cache-$((++mounts_made))
	check "$what: mounts" mount_penstock "$@" --endpoint "$S3"
}
mounts_made=0
files() { find "$MNT" -type f -printf '%P\n' | sort | tr '\n' ' '; }

mounts "2,010 keys" s3://shards/page/
equal "2,010 keys: all are listed" 2010 "$(find "$MNT" -type f | wc -l)"
check "2,010 keys: the bytes are right" bucket compare shards page/ "$MNT"
check_not "the daemon's command line has no secret" \
	grep -qaF -e "$PS_RGW_SECRET" -e withchars "/proc/$(daemon_pid)/cmdline"
stats . >"$T/stats.log"
getfattr -d -m - "$MNT/00007" >"$T/attributes.log" 2>/dev/null
check "an object's URL is an attribute" grep -q 'url="s3://shards/page/00007' "$T/attributes.log"
umount_penstock

mounts "nasty keys" s3://shards/nasty/
check "nasty keys: all are listed with their bytes" bucket compare shards nasty/ "$MNT"
check_not "nasty keys: nothing was skipped" grep -q skipped "$T/penstock.log"
umount_penstock

mounts "a whole bucket" s3://shards
equal "a multipart object's version is its ETag" '-' \
	"$(getfattr --only-values -n user.penstock.etag "$MNT/large/one.tar" | tr -dc -)"
check "ranges of a large object are right" bucket ranges large/one.tar 21 "$MNT/large/one.tar"
umount_penstock

mounts "a prefix without its slash" s3://shards/nasty
check "a prefix without its slash: the folder is shown" bucket compare shards nasty/ "$MNT"
umount_penstock
mounts "one object" s3://shards/page/00042
equal "one object: it is the only file" "00042 " "$(files)"
umount_penstock
mounts "braces" 's3://shards/page/0{0000..0002..2}'
equal "braces: the named objects are shown" "00000 00002 " "$(files)"
check "braces: an object is read" grep -q 'this is page/00002' "$MNT/00002"
umount_penstock
mounts "a list in a bucket" s3://lists/dir/good.txt
equal "a list in a bucket: the named objects are shown" "00001 02009 " "$(files)"
umount_penstock
printf 's3://shards/page/00003\n' >"$T/local.txt"
mounts "a local list" "@$T/local.txt"
check "a local list: an object is read" grep -q 'this is page/00003' "$MNT/00003"
umount_penstock

check "warm fills a cache" timeout 60 penstock warm 's3://shards/page/' '0000*' --endpoint "$S3" \
	--cache-dir "$T/cache-warm"

CACHE=$T/cache-tls
check "TLS with --cacert" mount_penstock s3://shards/page/00011 --endpoint "$S3_TLS" \
	--cacert "$T/rgw/tls.crt"
umount_penstock
CACHE=$T/cache-tls-2
AWS_CA_BUNDLE=$T/rgw/tls.crt check "the CA from the environment" mount_penstock s3://shards/page/00011 \
	--endpoint "$S3_TLS"
umount_penstock
CACHE=$T/cache-tls-3
AWS_ENDPOINT_URL_S3=$S3_TLS check "TLS by the bucket's host name, endpoint from the environment" \
	mount_penstock s3://shards/page/00011 --cacert "$T/rgw/tls.crt" --addressing-style virtual
umount_penstock

refused() { # WHAT WORDS SOURCE OPTION...
	local what=$1 words=$2 rc=0
	shift 2
	CACHE=$T/cache-refused mount_penstock "$@" >"$T/refused.log" 2>&1 || rc=$?
	equal "$what: fails" 1 "$((rc != 0))"
	equal "$what: in one line" 1 "$(wc -l <"$T/refused.log")"
	check "$what: the line says why" grep -Eqi "$words" "$T/refused.log"
	cat "$T/refused.log" >>"$T/all-refused.log"
}
export AWS_SECRET_ACCESS_KEY=wrong${PS_RGW_SECRET#????}
refused "a wrong secret" 'permission denied.*|SignatureDoesNotMatch.*permission denied' s3://shards/page/ \
	--endpoint "$S3"
check "a wrong secret: with the server's code" grep -q SignatureDoesNotMatch "$T/refused.log"
check "a wrong secret: the log has the server's code" grep -q SignatureDoesNotMatch "$T/penstock.log"
AWS_ACCESS_KEY_ID=NOSUCHKEY00000000001 refused "an unknown key" InvalidAccessKeyId s3://shards/page/ \
	--endpoint "$S3"
refused "an unsigned request for a private bucket" 'AccessDenied.*permission denied' s3://shards/page/ \
	--endpoint "$S3" \
	--no-sign-request
refused "an object with a wrong secret" 'permission denied' s3://shards/page/00001 --endpoint "$S3"
export AWS_SECRET_ACCESS_KEY=$PS_RGW_SECRET
refused "no such bucket" 'NoSuchBucket.*no bucket of that name' s3://nosuch/x/ --endpoint "$S3"
refused "no such prefix" 'no key with this prefix' s3://shards/nosuch/ --endpoint "$S3"
refused "no such object" 'neither such an object nor' s3://shards/nosuch --endpoint "$S3"
refused "a list with a relative line of a missing object" 'not found|NoSuchKey|no such' s3://lists/dir/list.txt \
	--endpoint "$S3"
refused "TLS with an unknown CA" 'certificate|CA|TLS|SSL' s3://shards/page/ --endpoint "$S3_TLS"

secrets() {
	grep -rlaF --exclude-dir=rgw --exclude=ranges.py -e "${PS_RGW_SECRET#????}" \
		-e "${PS_RGW_SECRET/+/%2B}" "$T"
}
check_not "no secret is in a log, the stats, an attribute or a cache" secrets
