#!/usr/bin/env bash
# With a real S3 server that issues session tokens: the tokens are sent and signed, and stay secret.
PS_TEST_TIMEOUT=${PS_TEST_TIMEOUT:-300}
. "$(dirname "$0")/../../lib.sh"
. "$(dirname "$0")/../../rgw.sh"
requires mount python:boto3
requires_rgw

bucket() {
	"$python" "$top_srcdir/tests/fs/origins/s3_bucket.py" "$@"
}

RGW_STS=1 start_rgw
bucket pages shards 20
secret=$AWS_SECRET_ACCESS_KEY
bucket session >"$T/session"
# shellcheck disable=SC1091
. "$T/session"
rm "$T/session"
check "a session's credentials can mount" mount_penstock s3://shards/page/ --endpoint "$S3"
export AWS_ACCESS_KEY_ID=TESTACCESSKEY0000001 AWS_SECRET_ACCESS_KEY=$secret token=$AWS_SESSION_TOKEN
unset AWS_SESSION_TOKEN
check "a session's credentials read the right bytes" bucket compare shards page/ "$MNT"
stats . >"$T/stats.log"
umount_penstock

# Errors have the server's words.
AWS_SESSION_TOKEN=${token%??????}AAAAAA
export AWS_SESSION_TOKEN
CACHE=$T/cache-refused
check_not "a broken session token is refused" mount_penstock s3://shards/page/ --endpoint "$S3"
check "a broken session token: permission denied" grep -q 'HTTP 403.*permission denied' "$T/penstock.log"
check_not "no secret is in a log, the stats or a cache" \
	grep -rlaF --exclude-dir=rgw -e "$secret" -e "${token:0:40}" "$T"
