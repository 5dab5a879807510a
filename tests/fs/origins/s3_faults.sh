#!/usr/bin/env bash
# With a real S3 server that is busy or whose data changes: SlowDown, a wrong clock, credentials that are
# exchanged, objects that are overwritten, and pinned versions.
PS_TEST_TIMEOUT=${PS_TEST_TIMEOUT:-300}
. "$(dirname "$0")/../../lib.sh"
requires slow
. "$(dirname "$0")/../../rgw.sh"
requires mount nginx-lua
requires_rgw

bucket() {
	"$python" "$top_srcdir/tests/fs/origins/s3_bucket.py" "$@"
}

# Starts a proxy in front of the server; the proxy leaves signatures intact. While $T/proxy/slow exists, it
# answers two of three requests with 503 SlowDown.
start_proxy() {
	local dir=$T/proxy ndk lua try
	mkdir -p "$dir/tmp"
	ndk=$(ps_nginx_module ndk_http_module)
	lua=$(ps_nginx_module ngx_http_lua_module)
	for try in 1 2 3 4 5; do
		proxy_port=$(free_port)
		cat >"$dir/nginx.conf" <<-CONF
			${ndk:+load_module $ndk; }load_module $lua;
			$( ((EUID != 0)) || echo "user root;")
			worker_processes 1; pid nginx.pid; error_log $dir/error.log notice; daemon on; env PS_TEST_DIR;
			events { worker_connections 1024; }
			http {
			access_log $dir/access.log;
			client_body_temp_path tmp/b; proxy_temp_path tmp/p; fastcgi_temp_path tmp/f;
			uwsgi_temp_path tmp/u; scgi_temp_path tmp/s; lua_shared_dict counters 1m;
			server {
			listen 127.0.0.1:$proxy_port; merge_slashes off;
			location / {
				access_by_lua_block {
					local f = io.open("$dir/slow")
					if not f then return end
					f:close()
					if ngx.shared.counters:incr("n", 1, 0) % 3 == 0 then return end
					ngx.status = 503
					ngx.header["Content-Type"] = "application/xml"
					ngx.print("<?xml version='1.0'?><Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>")
					return ngx.exit(503)
				}
				proxy_pass $S3; proxy_http_version 1.1; proxy_set_header Connection "";
				proxy_set_header Host \$http_host; proxy_buffering off;
			}
			} }
		CONF
		if nginx -p "$dir/" -c "$dir/nginx.conf" >"$dir/start.log" 2>&1; then
			return
		fi
	done
	die "the proxy starts" "try $try" "$(cat "$dir/start.log")"
}

start_rgw
start_proxy
bucket pages shards 20
bucket large shards large/one.tar 12

mounts() { # WHAT SOURCE OPTION...
	local what=$1
	shift
	CACHE=$T/cache-$((++mounts_made))
	check "$what: mounts" mount_penstock "$@" --endpoint "${ENDPOINT-$S3}"
}
mounts_made=0

: >"$T/proxy/slow"
ENDPOINT=http://127.0.0.1:$proxy_port mounts "SlowDown" s3://shards/page/ --timeout 120s
check "SlowDown: the bytes are right" bash \
	-c "cat '$MNT'/0000[0-5] | grep -c 'this is page/0000[0-5]' | grep -x 6"
check "SlowDown: requests were repeated" test "$(stats .origin.retries)" -gt 0
check "SlowDown: requests were refused" grep -q '" 503 ' "$T/proxy/access.log"
rm "$T/proxy/slow"
umount_penstock

# A wall clock that is an hour off. The mount runs in the foreground (the last -f), because faketime waits
# only for the process that it starts.
if command -v faketime >/dev/null && ! sanitized "$top_builddir/penstock"; then
	for off in +1h -1h; do
		mkdir -p "$MNT"
		DONT_FAKE_MONOTONIC=1 FAKETIME_DONT_FAKE_MONOTONIC=1 faketime \
			-f "$off" penstock mount s3://shards/page/ "$MNT" \
			--cache-dir "$T/cache-clock$off" --endpoint "$S3" -f >"$T/clock.log" 2>&1 &
		clock=$!
		check "a clock $off: mounts" wait_until 60 is_mounted
		check "a clock $off: the bytes are right" bucket compare shards page/ "$MNT"
		check "a clock $off: the log reports it" \
			grep -Eq "clock is .*3(599|60[0-9]) s off" "$T/clock.log"
		umount_penstock
		wait "$clock" || true
	done
else
	skip "a wrong clock" "faketime is not installed, or does not work with a sanitizer"
fi

# Credentials in a file are exchanged while a file is being read; the old ones are deleted at once.
key=$AWS_ACCESS_KEY_ID secret=$AWS_SECRET_ACCESS_KEY
unset AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY
printf '[default]\naws_access_key_id = %s\naws_secret_access_key = %s\n' "$key" \
	"$secret" >"$AWS_SHARED_CREDENTIALS_FILE"
mounts "credentials from a file" s3://shards/
exec 7<"$MNT/large/one.tar"
check "credentials from a file: a file is read" dd bs=64K count=1 of=/dev/null <&7
new_secret=anothersecretkey00000000000000000000002
check "a second key is made" rgw_admin key create --uid=test --key-type=s3 --access-key=TESTACCESSKEY0000002 \
	--secret-key="$new_secret"
printf '[default]\naws_access_key_id = TESTACCESSKEY0000002\naws_secret_access_key = %s\n' "$new_secret" \
	>"$T/new-credentials"
mv "$T/new-credentials" "$AWS_SHARED_CREDENTIALS_FILE"
check "the first key is deleted" rgw_admin key rm --uid=test --key-type=s3 --access-key="$key"
export AWS_ACCESS_KEY_ID=TESTACCESSKEY0000002 AWS_SECRET_ACCESS_KEY=$new_secret
check "credentials exchanged while reading: the open file is read to its end" cat <&7
exec 7<&-
check "credentials exchanged while reading: other files are read" bucket compare shards page/ "$MNT/page"
umount_penstock

bucket put shards change/a.txt "first"
mounts "an object that is overwritten" s3://shards/change/ --revalidate open
equal "an object that is overwritten: the old bytes are read before" first "$(cat "$MNT/a.txt")"
bucket put shards change/a.txt "second, and longer"
equal "an object that is overwritten: the new bytes are read after" "second, and longer" "$(cat "$MNT/a.txt")"
umount_penstock

bucket versioned kept
bucket put kept a.txt "first"
bucket put kept gone.txt "soon gone"
mounts "pinned versions" s3://kept/ --pin-versions --revalidate open
bucket put kept a.txt "second"
bucket delete kept gone.txt
equal "pinned versions: an overwritten object keeps its old bytes" first "$(cat "$MNT/a.txt")"
equal "pinned versions: a deleted object keeps its bytes" "soon gone" "$(cat "$MNT/gone.txt")"
url=$(getfattr --only-values -n user.penstock.url "$MNT/a.txt")
umount_penstock
version=${url#*versionId=}
version=${version%%&*}
mounts "one version of an object" "s3://kept/a.txt?versionId=$version"
equal "one version of an object: its bytes" first "$(cat "$MNT/a.txt")"
umount_penstock

check_not "no secret is in a log or a cache" grep -rlaF --exclude-dir=rgw -e "$secret" -e "$new_secret" "$T"
