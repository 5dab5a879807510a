#!/usr/bin/env bash
# Different credentials on one cache at web servers, the Hub and Google: mounts that may list, and not read,
# are handed nothing that others have brought into the cache; those that may read fetch nothing twice.
# shellcheck disable=SC2317 # functions that others call
. "$(dirname "$0")/../lib.sh"
. "$top_srcdir/tests/fs/hub.sh"
. "$(dirname "$0")/../cloud/cloud.sh"
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

# WHO-READS WHO-READS-TOO WHO-LISTS are functions that run a command with these credentials; FILE: below each
# mount.
shares() { # WHAT SOURCE FILE TRUTH FETCHED
	local what=$1 source=$2 file=$3 truth=$4 fetched=$5
	check "$what: mounts" one mount_at "$T/m1" "$source"
	check "$what: reads" cmp "$T/m1/$file" "$truth"
	forget_fetched
	check "$what: other credentials mount" two mount_at "$T/m2" "$source"
	check "$what: and read" cmp "$T/m2/$file" "$truth"
	at_most "$what: of which a byte was fetched at most" 1 "$($fetched)"
	unmount_at "$T/m2"
	check "$what: who may list mounts" lister mount_at "$T/m2" "$source"
	check "$what: sees the name" test -e "$T/m2/$file"
	check_not "$what: and reads nothing" cmp "$T/m2/$file" "$truth"
	check "$what: the first goes on" cmp "$T/m1/$file" "$truth"
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

# A signature, of GET alone: without a valid one there is no access.
one() { "$@"; }
check "a signed URL: mounts" mount_at "$T/m1" "$ORIGIN/signed/f.bin?signature=one"
check "a signed URL: reads" cmp "$T/m1/f.bin" "$T/www/f.bin"
origin_forget
check "another signature mounts" mount_at "$T/m2" "$ORIGIN/signed/f.bin?signature=two"
check "and reads" cmp "$T/m2/f.bin" "$T/www/f.bin"
at_most "of which bytes were fetched that prove it" 2 "$(origin_bytes)"
unmount_at "$T/m2"
check_not "a wrong signature does not" mount_at "$T/m2" "$ORIGIN/signed/f.bin?signature=three"
check_not "nor does none" mount_at "$T/m2" "$ORIGIN/signed/f.bin"
unmount_at "$T/m1"

# Without credentials one answer is enough until the version is confirmed; with any it holds for --grant-ttl.
asked_for() { # OPTION...: requests of two opens of what is cached, longer apart than --grant-ttl
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
equal "with some each takes one" 2 "$(asked_for --header 'X-Any: thing')"
equal "so it does without, where each open is to ask" 2 "$(asked_for --grant-ttl open)"

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
check "a set of files: is read" sha256sum "$T"/m1/*.bin
: >"$hub/requests.log"
check "a set of files: other credentials mount" two mount_at "$T/m2" hf://acme/shards
check "a set of files: and read" sha256sum "$T"/m2/*.bin
at_most "one proof is enough of a repository" 2 "$(asked HUB HEAD)"
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
no_secrets hush hf_
