#!/usr/bin/env bash
# Different credentials on one cache, for web servers, the Hub and Google: mounts that may list and not read
# get no bytes that others have cached; those that may read fetch nothing twice.
# shellcheck disable=SC2317 # called by other functions
. "$(dirname "$0")/../../lib.sh"
. "$top_srcdir/tests/fs/origins/hub_lib.sh"
. "$(dirname "$0")/../../cloud/cloud.sh"
requires mount nginx

mkdir -p "$T/www" "$T/m1" "$T/m2"
random_file "$T/www/f.bin" 3000000
start_nginx
mount_at() { # DIR SOURCE OPTION...
	local MNT=$1
	shift
	mount_penstock "$@" --timeout 10s
}
unmount_at() { local MNT=$1 && umount_penstock; }

# The functions one, two and lister run a command with credentials: one and two may read, lister may only
# list.
shares() { # WHAT SOURCE FILE TRUTH FETCHED: FILE below each mount must be TRUTH; FETCHED prints a count
	local what=$1 source=$2 file=$3 truth=$4 fetched=$5
	check "$what: the first credentials mount" one mount_at "$T/m1" "$source"
	check "$what: the first credentials read" cmp "$T/m1/$file" "$truth"
	forget_fetched
	check "$what: other credentials mount" two mount_at "$T/m2" "$source"
	check "$what: other credentials read" cmp "$T/m2/$file" "$truth"
	at_most "$what: other credentials fetch one byte at most" 1 "$($fetched)"
	unmount_at "$T/m2"
	check "$what: credentials that may only list mount" lister mount_at "$T/m2" "$source"
	check "$what: credentials that may only list see the name" test -e "$T/m2/$file"
	check_not "$what: credentials that may only list cannot read" cmp "$T/m2/$file" "$truth"
	check "$what: the first mount still reads" cmp "$T/m1/$file" "$truth"
	unmount_at "$T/m2"
	unmount_at "$T/m1"
}

# A header.
one() { "$@" --header "X-Token: one"; }
two() { "$@" --header "X-Token: two"; }
lister() { "$@" --header "X-Token: wrong"; }
forget_fetched() { origin_forget; }
listed_bytes() { origin_bytes /listed/f.bin; }
shares "a header" "$ORIGIN/listed/" f.bin "$T/www/f.bin" listed_bytes

# Signed URLs, for GET only: without a valid signature there is no access.
one() { "$@"; }
check "a signed URL: mounts" mount_at "$T/m1" "$ORIGIN/signed/f.bin?signature=one"
check "a signed URL: reads" cmp "$T/m1/f.bin" "$T/www/f.bin"
origin_forget
check "a URL with another signature mounts" mount_at "$T/m2" "$ORIGIN/signed/f.bin?signature=two"
check "the URL with another signature reads" cmp "$T/m2/f.bin" "$T/www/f.bin"
at_most "only the bytes that prove the access are fetched" 2 "$(origin_bytes)"
unmount_at "$T/m2"
check_not "a wrong signature cannot mount" mount_at "$T/m2" "$ORIGIN/signed/f.bin?signature=three"
check_not "a URL without a signature cannot mount" mount_at "$T/m2" "$ORIGIN/signed/f.bin"
unmount_at "$T/m1"

# Without credentials one answer is enough until revalidation; with credentials it is valid for --grant-ttl.
asked_for() { # OPTION...: counts the requests of two opens of a cached file, more than --grant-ttl apart
	CACHE=$T/cache-asked
	rm -rf "$CACHE"
	HOME=$T mount_at "$T/m1" "$ORIGIN/json/" --grant-ttl 1s --no-passthrough "$@"
	cat "$T/m1/f.bin" >/dev/null
	origin_forget
	for _ in 1 2; do
		sleep 1.2
		head -c 1 "$T/m1/f.bin" >/dev/null
	done
	grep -c '/f.bin ' "$T/nginx/access.log" || true
	unmount_at "$T/m1"
	CACHE=$T/cache
}
equal "without credentials cached files are opened without a request" 0 "$(asked_for)"
equal "with credentials each open takes one request" 2 "$(asked_for --header 'X-Any: thing')"
equal "with --grant-ttl open each open takes one request" 2 "$(asked_for --grant-ttl open)"

# The Hub.
start_hub
main=$(commit a)
random_file "$main/a.tar" 3000000
point main a
one() { HF_TOKEN=hf_one "$@"; }
two() { HF_TOKEN=hf_two "$@"; }
lister() { HF_TOKEN=hf_lister "$@"; }
tell lister hf_lister
forget_fetched() { : >"$hub/requests.log"; }
from_cdn() { asked CDN GET; }
shares "the Hub" hf://acme/shards a.tar "$main/a.tar" from_cdn
random_file "$main/b.tar" 3000000
for i in {1..20}; do
	head -c 2000 /dev/urandom >"$main/$i.bin"
done
check "a set of files: mounts" one mount_at "$T/m1" hf://acme/shards
check "a set of files: the first credentials read" sha256sum "$T"/m1/*.bin
: >"$hub/requests.log"
check "a set of files: other credentials mount" two mount_at "$T/m2" hf://acme/shards
check "a set of files: other credentials read" sha256sum "$T"/m2/*.bin
at_most "one proof is enough for a repository" 2 "$(asked HUB HEAD)"
unmount_at "$T/m2"
unmount_at "$T/m1"

# Google: HMAC keys.
start_cloud
mkdir -p "$T/cloud/bucket/train"
cp "$T/www/f.bin" "$T/cloud/bucket/train/"
printf 'GOOG1ONE hush/one\nGOOG1TWO hush/two\nGOOG1LIST hush/list\n' >"$T/cloud/keys"
echo "GOOG1LIST get" >"$T/cloud/deny"
google() { # KEY SECRET COMMAND...
	GS_ACCESS_KEY_ID=$1 GS_SECRET_ACCESS_KEY=$2 "${@:3}" --endpoint "$CLOUD"
}
one() { google GOOG1ONE hush/one "$@"; }
two() { google GOOG1TWO hush/two "$@"; }
lister() { google GOOG1LIST hush/list "$@"; }
forget_fetched() { : >"$T/cloud/who.log"; }
gets() { grep -c ' GET /bucket/train/' "$T/cloud/who.log" || true; }
shares "Google" gs://bucket/train/ f.bin "$T/www/f.bin" gets
no_secrets hush hf_one hf_two hf_lister # three bytes alone may be in any file
