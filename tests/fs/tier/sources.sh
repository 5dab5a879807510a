#!/usr/bin/env bash
# Tiers in front of stores that want credentials: gs:// with a token, a key and none; --tier-verify of signed
# requests, where the tier lies and where it does not.
. "$(dirname "$0")/../../lib.sh"
. "$(dirname "$0")/../../cloud/cloud.sh"
requires mount nginx openssl jq
. "$top_srcdir/tests/fs/tier/tier_lib.sh"

start_cloud
make_shards "$T/cloud/bucket/train" 2 15000000
sha_manifest "$T/cloud/bucket/train" >"$T/manifest"
size=$(du -cb "$T"/cloud/bucket/train/*.tar | awk 'END {print $1}')
start_tiers 2 "$CLOUD"
tier() { stats ".mounts[0].tier.$1"; }
seen() { grep -cE -- "$1" "$T"/tier[12]/access.log | awk -F: '{n += $2} END {print n}'; }

# mount_store SCHEME OPTION...
mount_store() {
	rm -rf "$CACHE"
	: >"$T/cloud/log"
	tiers_forget 1 2
	mount_penstock "$1://bucket/train/" --endpoint "$CLOUD" --timeout 30s --tier "$TIERS" "${@:2}"
}
# through WHAT SCHEME OPTION...: the bytes come from tiers. past: no request reaches one.
through() {
	check "$1: mounts" mount_store "${@:2}"
	check "$1: right bytes" read_tree 1m
	at_least "$1: the tiers sent them" $((size - 100000)) "$(tier_bytes 1 2)"
	equal "$1: none failed" 0 "$(tier fallbacks)"
	at_most "$1: the mount asks the origin itself for hardly any bytes" $((size / 100 + 2 * 65536)) \
		"$(($(stats .origin.bytes) + 0))"
	no_secrets hush
	umount_penstock
}
past() {
	check "$1: mounts" mount_store "${@:2}"
	check "$1: right bytes" read_tree 1m
	equal "$1: no tier was asked" "" "$(cat "$T"/tier[12]/access.log)"
	at_least "$1: the status says why" 1 "$(tier withheld)"
	umount_penstock
}

touch "$T/cloud/public"
through "gs, a public bucket" gs --no-sign-request
rm "$T/cloud/public"

GCE_METADATA_HOST=$CLOUD_HOST NO_GCE_CHECK=
export GCE_METADATA_HOST NO_GCE_CHECK
past "gs, a bearer token" gs
through "gs, a bearer token with --tier-auth" gs --tier-auth
at_least "gs, a bearer token with --tier-auth: it is passed on" 1 "$(seen '\| Bearer ')"
equal "gs: listings, and first bytes, are asked of the store alone" 0 "$(seen '^GET /bucket\?')"
check "gs: a token that is revoked while tiers are asked: mounts" mount_store gs --tier-auth
# (After this read the mount has grants and versions: the tiers are asked for everything.)
check "gs: before that: right bytes" read_tree 1m
kill_tier 1 && kill_tier 2 # and with them all that they keep
rm -rf "$T"/tier[12]/cache
start_tiers 2 "$CLOUD"
tiers_forget 1 2
penstock evict "$MNT" >/dev/null
drop_page_cache
touch "$T/cloud/revoke"
check "gs: a token that is revoked: right bytes" read_tree 1m
at_least "gs: a token that is revoked: a tier passed that on" 1 "$(seen ' 401 ')"
equal "gs: a token that is revoked: two tokens were fetched" 2 "$(cloud_seen '/computeMetadata/.* 200')"
umount_penstock
rm "$T/cloud/revoke"

openssl genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048 -out "$T/sa.pem" 2>/dev/null
openssl rsa -in "$T/sa.pem" -noout -modulus 2>/dev/null | cut -d= -f2 >"$T/cloud/modulus"
jq -n --rawfile key "$T/sa.pem" --arg uri "$CLOUD/token" \
	'{type: "service_account", client_email: "me@project.example", private_key: $key, token_uri: $uri}' \
	>"$T/sa.json"
past "gs, a service account" gs --credentials "$T/sa.json"
through "gs, a service account with --tier-auth" gs --credentials "$T/sa.json" --tier-auth
unset GCE_METADATA_HOST

echo "GOOG1EKEY hush-of-google" >"$T/cloud/keys"
export GS_ACCESS_KEY_ID=GOOG1EKEY GS_SECRET_ACCESS_KEY=hush-of-google
through "gs, an HMAC key" gs
at_least "gs, an HMAC key: its signature is passed on" 1 "$(seen '\| AWS4-HMAC-SHA256')"
unset GS_ACCESS_KEY_ID GS_SECRET_ACCESS_KEY

# --tier-verify: the comparisons are signed as all requests are.
export NO_GCE_CHECK=true
echo "AKIABASE hush/base" >"$T/cloud/keys"
compared() { (($(tier verified_bytes) > 0)); }
differed() { (($(tier mismatches) > 0)); }
verified() { # WHAT OPTION...
	check "$1: mounts" mount_store s3 --tier-verify 1% "${@:2}"
	check "$1: right bytes" read_tree 1m
	wait_until 20 compared || true
	at_least "$1: a share is compared" 65536 "$(tier verified_bytes)"
	at_most "$1: and no more than that" $((size / 100 + 65536)) "$(tier verified_bytes)"
	equal "$1: equal bytes are no difference" "0 0" "$(tier mismatches) $(tier aside)"
	umount_penstock
}
AWS_ACCESS_KEY_ID=AKIABASE AWS_SECRET_ACCESS_KEY=hush/base verified "--tier-verify, static keys"
printf '[base]\naws_access_key_id = AKIABASE\naws_secret_access_key = hush/base\n' >"$HOME/.aws/credentials"
printf '[profile role]\nrole_arn = arn:aws:iam::1:role/reader\nsource_profile = base\n' >"$HOME/.aws/config"
export AWS_PROFILE=role AWS_ENDPOINT_URL_STS=$CLOUD
verified "--tier-verify, a session token" --tier-auth
mkdir "$T/liar"
echo wrong >"$T/liar/mode"
"$python" "$top_srcdir/tests/fs/tier/lying_tier.py" "$T/liar" "$CLOUD_HOST" >"$T/liar.log" 2>&1 &
wait_until 20 test -s "$T/liar/port" || die "the lying tier starts" "$(cat "$T/liar.log")"
TIERS=http://127.0.0.1:$(cat "$T/liar/port")
check "--tier-verify of a tier that lies: mounts" mount_store s3 --tier-verify 1% --tier-auth
# (A tier that is late on a busy machine is asked again.)
lies() {
	penstock evict "$MNT" >/dev/null
	drop_page_cache
	cat "$MNT"/*.tar >/dev/null 2>&1 || true
	wait_until 2 differed
}
wait_until 60 lies || true
at_least "--tier-verify of a tier that lies: it is found" 1 "$(tier mismatches)"
equal "--tier-verify of a tier that lies: it is set aside" aside "$(tier 'tiers[0].state')"
check "--tier-verify of a tier that lies: status says for how long" \
	grep -q "aside     $TIERS, .*other bytes" <(penstock status "$MNT")
umount_penstock
