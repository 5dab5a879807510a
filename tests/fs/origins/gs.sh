#!/usr/bin/env bash
# gs:// with a token of a metadata server or a service account, with an HMAC key and without credentials;
# revoked tokens, a busy store, objects that the store would decompress.
. "$(dirname "$0")/../../lib.sh"
. "$(dirname "$0")/../../cloud/cloud.sh"
requires mount openssl

start_cloud
cloud_data
echo 2 >"$T/cloud/page" # objects a page

mount_gs() {
	rm -rf "$CACHE"
	: >"$T/cloud/log"
	mount_penstock gs://bucket/train/ --endpoint "$CLOUD" --timeout 60s "$@"
}

works() {
	local what=$1
	shift
	check "$what: mounts" mount_gs "$@"
	check "$what: right bytes" read_tree 1m
	no_secrets
	umount_penstock
}

refused() { # WHAT WORDS OPTION...
	local what=$1 words=$2
	shift 2
	ps_run mount_gs "$@"
	equal "$what: fails, in one line" "1 1" "$rc $(wc -l <<<"$out")"
	check "$what: the line says why" grep -Eq "$words" <<<"$out"
	check_not "$what: the line has no secret" grep -qE 'hush|never-to-be-seen' <<<"$out"
}

refused "no credentials" 'GOOGLE_APPLICATION_CREDENTIALS.*--no-sign-request'
refused "a bucket that is not public" '[Pp]ermission denied' --no-sign-request
refused "versions" 'pin-versions' --no-sign-request --pin-versions
refused "Amazon's option for requester pays" 'x-goog-user-project' --no-sign-request --request-payer
touch "$T/cloud/public"
works "a public bucket" --no-sign-request
equal "all pages of the listing were read" 2 "$(cloud_seen 'GET /bucket\?.* 200')"
echo my-project >"$T/cloud/payer"
refused "a bucket whose readers pay" 'UserProjectMissing' --no-sign-request
works "a bucket that a project pays for" --no-sign-request --header "x-goog-user-project: my-project"
rm "$T/cloud/public" "$T/cloud/payer"

export GCE_METADATA_HOST=$CLOUD_HOST NO_GCE_CHECK=
works "a token of the metadata server"
equal "one token is used for all requests" 1 "$(cloud_seen '/computeMetadata/.* 200')"

# A service account: its key is made here.
openssl genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048 -out "$T/sa.pem" 2>/dev/null
openssl rsa -in "$T/sa.pem" -noout -modulus 2>/dev/null | cut -d= -f2 >"$T/cloud/modulus"
jq -n --rawfile key "$T/sa.pem" --arg uri "$CLOUD/token" \
	'{type: "service_account", client_email: "me@project.example", private_key: $key, token_uri: $uri}' >"$T/sa.json"
cd "$T"
works "a service account by option" --credentials sa.json
GOOGLE_APPLICATION_CREDENTIALS=sa.json works "a service account by the environment, relative"
equal "the metadata server was not asked" 0 "$(cloud_seen /computeMetadata/)"
jq '.type = "external_account"' "$T/sa.json" >"$T/other.json"
refused "another type of file" 'other.json.*external_account' --credentials "$T/other.json"

export GS_ACCESS_KEY_ID=GOOG1EKEY GS_SECRET_ACCESS_KEY=hush-of-google
refused "an unknown HMAC key" 'InvalidAccessKeyId'
echo "GOOG1EKEY another" >"$T/cloud/keys"
refused "a wrong secret" '[Pp]ermission denied'
echo "GOOG1EKEY hush-of-google" >"$T/cloud/keys"
STORAGE_EMULATOR_HOST=$CLOUD works "an HMAC key"
unset GS_ACCESS_KEY_ID GS_SECRET_ACCESS_KEY

# The endpoint from the environment.
rm -rf "$CACHE"
check "STORAGE_EMULATOR_HOST is the endpoint" env STORAGE_EMULATOR_HOST="$CLOUD" timeout 60 \
	penstock mount gs://bucket/train/ "$MNT" --cache-dir "$CACHE" --log "$T/penstock.log"
check "the endpoint of STORAGE_EMULATOR_HOST gives the right bytes" read_tree 1m
umount_penstock

# A token that the store refuses is replaced once, while the mount reads.
check "a mount before the token is revoked" mount_gs
touch "$T/cloud/revoke"
check "bytes are read after the token has been revoked" read_tree random "$MNT" 3
at_least "the old token was refused" 1 "$(cloud_seen '/bucket/train/.* 401')"
equal "one more token was fetched" 2 "$(cloud_seen '/computeMetadata/.* 200')"
umount_penstock
rm "$T/cloud/revoke"

# A store that is busy for a while delays reads, and fails none.
check "a mount before the store is busy" mount_gs
for status in 429 503; do
	echo "$status" >"$T/cloud/fail.bucket"
	read_tree 1m >"$T/busy.out" 2>&1 &
	reader=$!
	check "the store answers $status" wait_until 60 grep -q "train/.* $status" "$T/cloud/log"
	rm "$T/cloud/fail.bucket"
	rc=0
	wait "$reader" || rc=$?
	equal "reads succeed after $status" "0 " "$rc $(cat "$T/busy.out")"
	penstock evict "$MNT" >"$T/evict.out" 2>&1 || true
	drop_page_cache
done
umount_penstock

# An object that is stored with Content-Encoding: gzip is fetched as it is stored, in ranges.
gzip -nc "$T/cloud/bucket/train/shard-000000.tar" >"$T/cloud/bucket/train/x.transcoded"
check "a mount with an object that the store would decompress" mount_gs
check "an object that the store would decompress is shown as it is stored" \
	cmp "$T/cloud/bucket/train/x.transcoded" "$MNT/x.transcoded"
umount_penstock

# An answer has the checksum of the whole object, even if it has only a part of the bytes.
random_file "$T/cloud/bucket/train/a.whole" 100000
cp "$T/cloud/bucket/train/a.whole" "$T/cloud/bucket/train/b.damaged"
check "a mount with an object with a wrong checksum" mount_gs
check "an object with the right checksum is read" cmp "$T/cloud/bucket/train/a.whole" "$MNT/a.whole"
cat "$MNT/b.damaged" >"$T/damaged.out" 2>&1 || true
one_is_damaged() {
	[[ $(stats .cache.checksum_errors) == 1 ]]
}
check "the wrong checksum is detected" wait_until 60 one_is_damaged
umount_penstock
