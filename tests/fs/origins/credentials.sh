#!/usr/bin/env bash
# s3:// with credentials from every source, which expire, are replaced or are unavailable while the mount
# reads.
. "$(dirname "$0")/../../lib.sh"
. "$(dirname "$0")/../../cloud/cloud.sh"
requires mount

start_cloud
cloud_data

mount_s3() {
	rm -rf "$CACHE"
	: >"$T/cloud/log"
	mount_penstock s3://bucket/train/ --endpoint "$CLOUD" --timeout 60s "$@"
}

works() {
	local what=$1
	shift
	check "$what: mounts" mount_s3 "$@"
	check "$what: right bytes" read_tree 1m
	no_secrets hush
	umount_penstock
}

forget_data() {
	penstock evict "$MNT" >"$T/evict.out" 2>&1
	drop_page_cache
}

# Each source of credentials.
echo "AKIABASE hush/base" >"$T/cloud/keys"
AWS_ACCESS_KEY_ID=AKIABASE AWS_SECRET_ACCESS_KEY=hush/base works "keys of the environment"
cat >"$HOME/.aws/config" <<-CONF
	[profile role]
	role_arn = arn:aws:iam::1:role/reader
	source_profile = base
	[profile command]
	credential_process = cat creds.json
CONF
printf '[base]\naws_access_key_id = AKIABASE\naws_secret_access_key = hush/base\n' >"$HOME/.aws/credentials"
works "a profile by option" --profile base
AWS_PROFILE=role AWS_ENDPOINT_URL_STS=$CLOUD works "a role that a profile assumes"
echo '{"Version": 1, "AccessKeyId": "AKIABASE", "SecretAccessKey": "hush/base"}' >"$T/creds.json"
cd "$T"
AWS_PROFILE="command" works "a command, in the folder of the mount's shell"
echo "hush-jwt" >"$T/cloud/token.web"
AWS_WEB_IDENTITY_TOKEN_FILE=cloud/token.web AWS_ROLE_ARN=arn:aws:iam::1:role/pod AWS_ENDPOINT_URL_STS=$CLOUD \
	works "a web identity"
echo "hush-agent" >"$T/cloud/token.container"
AWS_CONTAINER_CREDENTIALS_FULL_URI=$CLOUD/agent/x \
	AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE=$T/cloud/token.container \
	works "a container's agent"
export AWS_EC2_METADATA_SERVICE_ENDPOINT=$CLOUD AWS_EC2_METADATA_DISABLED=
works "an instance's role"

# A store that redirects temporarily, with nothing but a Location.
export AWS_ACCESS_KEY_ID=AKIABASE AWS_SECRET_ACCESS_KEY=hush/base
echo "$CLOUD" >"$T/cloud/redirect"
works "a temporary redirect within the store"
at_least "the redirected request is signed again" 2 "$(cloud_seen '^GET .*rk=1 20[06]')"
: >"$T/cloud/log"
echo "${CLOUD/127.0.0.1/localhost}" >"$T/cloud/redirect"
check_not "a redirect to another host is not followed" \
	penstock mount s3://bucket/train/ "$MNT" --endpoint "$CLOUD" \
	--cache-dir "$T/cache-away" --log "$T/away.log"
equal "no request is sent to the other host" 0 "$(cloud_seen 'rk=1')"
rm "$T/cloud/redirect"
unset AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY

# Keys that live for seconds only: one request renews them for all reads, and no read fails.
echo 6 >"$T/cloud/ttl"
check "a mount with keys of 6 s succeeds" mount_s3
end=$((SECONDS + 60))
while (($(cloud_seen 'the-role 200') < 3 && SECONDS < end)); do
	ps_run read_tree random "$MNT" 2
	((rc == 0)) || break
	forget_data
done
equal "reads go on after the keys have expired" "0 " "$rc $out"
at_least "the keys were renewed" 3 "$(cloud_seen 'security-credentials/the-role 200')"
equal "the keys were renewed before they expired" 0 "$(cloud_seen '/bucket.* 40[0-9]')"
umount_penstock

# A metadata server that hangs: the old keys are used, then reads fail by their deadline, then they work
# again.
echo 4 >"$T/cloud/ttl"
check "a mount with keys of 4 s succeeds" mount_s3 --timeout 3s
touch "$T/cloud/hang.imds"
no_key_is_left() {
	forget_data
	! cat "$MNT/shard-000000.tar" >"$T/cat.out"
}
check "reads fail once all keys have expired" wait_until 60 no_key_is_left
took=$(milliseconds cat "$MNT/shard-000001.tar")
at_most "a read fails by its deadline, 3 s and slack for a slow machine (ms)" 25000 "$took"
rm "$T/cloud/hang.imds"
check "reads succeed once the metadata server answers" wait_until 60 read_tree 1m
no_secrets
umount_penstock
rm "$T/cloud/ttl"

# A key that is replaced in its file; the store refuses the old one.
export AWS_EC2_METADATA_DISABLED=true AWS_PROFILE=base
check "a mount with the keys of a file succeeds" mount_s3
echo "AKIANEW hush/new" >"$T/cloud/keys"
printf '[base]\naws_access_key_id = AKIANEW\naws_secret_access_key = hush/new\n' >"$HOME/.aws/next"
mv "$HOME/.aws/next" "$HOME/.aws/credentials"
check "reads go on with the new keys" read_tree random
at_least "the old keys were refused" 1 "$(cloud_seen '/bucket/train/.* 403')"
check "the log has the name of the new key" grep -q "access key AKIANEW" "$T/penstock.log"
umount_penstock
