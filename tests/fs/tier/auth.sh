#!/usr/bin/env bash
# Which tiers see a request's secrets. Without --tier-auth: none, but all see signatures by static keys. With
# it: tiers on this host, tiers with mTLS, and others if clear text was allowed. The tiers' logs say what they
# saw.
. "$(dirname "$0")/../../lib.sh"
. "$(dirname "$0")/../../cloud/cloud.sh"
requires mount nginx
. "$top_srcdir/tests/fs/tier/tier_lib.sh"

start_cloud
cloud_data
make_shards "$T/cloud/bucket/train/more" 12 200000
sha_manifest "$T/cloud/bucket/train" >"$T/manifest"
size=$(du -cb "$T"/cloud/bucket/train/*.tar | awk 'END {print $1}')
start_tiers 2 "$CLOUD"
tier() { stats ".mounts[0].tier.$1"; }
# Counts the lines of the tiers' logs that match. What could hold a secret is between the bars.
seen() { grep -cE -- "$1" "$T"/tier[12]/access.log | awk -F: '{n += $2} END {print n}'; }

mount_s3() {
	rm -rf "$CACHE"
	: >"$T/cloud/log"
	tiers_forget 1 2
	mount_penstock s3://bucket/train/ --endpoint "$CLOUD" --timeout 30s --tier "$TIERS" "$@"
}
# through WHAT OPTION...: the bytes come from tiers. past WHAT OPTION...: no request reaches a tier.
through() {
	local what=$1
	shift
	check "$what: mounts" mount_s3 "$@"
	check "$what: right bytes" read_tree 1m
	at_least "$what: the tiers sent them" $((size - 100000)) "$(tier_bytes 1 2)"
	equal "$what: none failed" 0 "$(tier fallbacks)"
	umount_penstock
}
past() {
	local what=$1
	shift
	check "$what: mounts" mount_s3 "$@"
	check "$what: right bytes" read_tree 1m
	equal "$what: no tier was asked" "" "$(cat "$T"/tier[12]/access.log)"
	at_least "$what: the status says why" 1 "$(tier withheld)"
	check "$what: penstock status, too" grep -q 'not sent, because they contain secrets (--tier-auth)' \
		<(penstock status "$MNT")
	umount_penstock
}

touch "$T/cloud/public"
through "a public bucket" --no-sign-request
equal "a public bucket: nothing secret was there to be seen" "$(cat "$T"/tier[12]/access.log | wc -l)" \
	"$(seen '\| - - - - \|')"
rm "$T/cloud/public"

echo "AKIABASE hush/base" >"$T/cloud/keys"
export AWS_ACCESS_KEY_ID=AKIABASE AWS_SECRET_ACCESS_KEY=hush/base
through "static keys"
at_least "static keys: the signature is passed on" 1 "$(seen 'AWS4-HMAC-SHA256')"
equal "static keys: never the key" 0 "$(seen 'hush')"
unset AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY

printf '[base]\naws_access_key_id = AKIABASE\naws_secret_access_key = hush/base\n' >"$HOME/.aws/credentials"
printf '[profile role]\nrole_arn = arn:aws:iam::1:role/reader\nsource_profile = base\n' >"$HOME/.aws/config"
export AWS_PROFILE=role AWS_ENDPOINT_URL_STS=$CLOUD
past "a session token"
through "a session token with --tier-auth, on this host" --tier-auth
at_least "a session token with --tier-auth: it is passed on" 1 "$(seen '\| AWS4-HMAC-SHA256.*never-to-be-seen')"

# Tiers elsewhere (an address of documentation, where nothing answers).
TIERS=http://192.0.2.1:8080
ps_run mount_s3 --tier-auth
equal "--tier-auth in clear text to another host is refused" 1 "$rc"
check "the refusal says what to do" grep -q 'http://192.0.2.1:8080.*--tier-auth=cleartext' <<<"$out"
check_not "a certificate alone does not help a tier without TLS" mount_s3 --tier-auth --tier-cert /etc/hostname
TIERS=https://192.0.2.1:8080
check_not "TLS without a certificate of ours is refused" mount_s3 --tier-auth
TIERS=http://192.0.2.1:8080,${TIER[1]}
past_elsewhere() {
	check "$1: mounts" mount_s3 "${@:2}"
	check "$1: right bytes" read_tree 1m
}
past_elsewhere "clear text by request" --tier-auth=cleartext
at_least "clear text by request: the tier that answers saw the token" 1 "$(seen 'never-to-be-seen')"
at_least "clear text by request: the other is set aside" 1 "$(tier aside)"
umount_penstock
unset AWS_PROFILE AWS_ENDPOINT_URL_STS

# A web server's passwords, headers and presigned URLs.
make_shards "$T/www" 2 3000000
start_nginx
for i in 1 2; do kill_tier "$i"; done
start_tiers 2
web() { # WHAT SOURCE OPTION...
	rm -rf "$CACHE"
	tiers_forget 1 2
	check "$1: mounts" mount_penstock "${@:2}" --tier "$TIERS"
	sha_manifest "$MNT" | grep -v penstock >"$T/read"
	equal "$1: right bytes" "$(sha_manifest "$T/www" | awk '{print $1}')" "$(awk '{print $1}' "$T/read")"
	umount_penstock
}
url="$ORIGIN/basic/shard-{000000..000001}.tar"
web "a password" "$url" --user user:pass:word
equal "a password: no tier was asked" "" "$(cat "$T"/tier[12]/access.log)"
web "a password with --tier-auth" "$url" --user user:pass:word --tier-auth
at_least "a password with --tier-auth: it is passed on" 1 "$(seen "Basic $(printf user:pass:word | base64)")"
url="$ORIGIN/token/shard-{000000..000001}.tar"
web "a header" "$url" --header 'X-Token: secret'
equal "a header: no tier was asked" "" "$(cat "$T"/tier[12]/access.log)"
web "a header with --tier-auth" "$url" --header 'X-Token: secret' --tier-auth
at_least "a header with --tier-auth: it is passed on" 1 "$(seen '\| .*secret')"
url="$ORIGIN/signed/shard-{000000..000001}.tar?signature=one"
web "a presigned URL" "$url"
equal "a presigned URL: no tier was asked" "" "$(cat "$T"/tier[12]/access.log)"
web "a presigned URL with --tier-auth" "$url" --tier-auth
at_least "a presigned URL with --tier-auth: it is passed on" 1 "$(seen 'signature=one')"
equal "the log of the mount has no secret" 0 "$(grep -cE 'never-to-be-seen|hush|pass:word|signature=one' "$T/penstock.log")"

# --insecure is for the origin. (Its TLS port is a tier here: it has the same bytes.)
rm -rf "$CACHE"
mount_penstock "$ORIGIN/" --insecure --tier "$ORIGIN_TLS"
check "a tier that cannot be verified, with --insecure: right bytes" sha_manifest "$MNT"
at_least "a tier that cannot be verified, with --insecure: it is down" 1 "$(tier 'tiers[0].down')"
equal "a tier that cannot be verified, with --insecure: it sent nothing" 0 "$(tier bytes)"
umount_penstock
rm -rf "$CACHE"
mount_penstock "$ORIGIN/" --insecure --tier "$ORIGIN_TLS" --tier-cacert "$T/nginx/ca.pem"
check "with its CA: right bytes" sha_manifest "$MNT"
at_least "with its CA: it sends them" 5000000 "$(tier bytes)"
umount_penstock
