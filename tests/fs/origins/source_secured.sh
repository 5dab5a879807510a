#!/usr/bin/env bash
# Basic authentication, header options, redirects and TLS with a private CA work; without them the error says
# what to do.
. "$(dirname "$0")/../../lib.sh"
requires mount nginx

make_tree "$T/www"
start_nginx

refused() { # WHAT WORDS SOURCE OPTION...
	local what=$1 words=$2 rc=0
	shift 2
	CACHE=$T/cache-refused mount_penstock "$@" >"$T/out" 2>&1 || rc=$?
	equal "$what: fails" 1 "$((rc != 0))"
	equal "$what: in one line" 1 "$(wc -l <"$T/out")"
	check "$what: the line says why" grep -Eqi "$words" "$T/out"
	check_not "$what: nothing is mounted" is_mounted
}

works() {
	local what=$1
	shift
	CACHE=$T/cache-$((++works))
	check "$what: mounts" mount_penstock "$@"
	check "$what: right bytes" read_tree 1m
	umount_penstock
}
works=0

refused "basic auth without a password" '401|refuse|user|password|denied' "$ORIGIN/basic/"
refused "basic auth with a wrong password" '401|refuse|user|password|denied' "$ORIGIN/basic/" \
	--user user:wrong
works "basic auth by option" "$ORIGIN/basic/" --user user:pass:word
works "basic auth in the URL" "http://user:pass%3Aword@127.0.0.1:${ORIGIN##*:}/basic/"
export PENSTOCK_USER_PASSWORD=user:pass:word
works "basic auth from the environment" "$ORIGIN/basic/"
unset PENSTOCK_USER_PASSWORD

refused "a header is missing" '403|refuse|denied' "$ORIGIN/token/"
works "a header" "$ORIGIN/token/" --header "X-Token: secret"
printf 'X-Other: x\nX-Token: secret\n' >"$T/headers"
chmod 640 "$T/headers"
works "headers of a file" "$ORIGIN/token/" --header @"$T/headers"
check_not "a header file that others cannot read gives no warning" grep -qF "$T/headers" "$T/penstock.log"
chmod 644 "$T/headers"
CACHE=$T/cache-open check "a mount with a header file that all may read succeeds" \
	mount_penstock "$ORIGIN/token/" \
	--header @"$T/headers"
check "the log warns of that header file" \
	grep -q "warning: option header: $T/headers: every user of this machine may read it" \
	"$T/penstock.log"
umount_penstock

works "redirects" "$ORIGIN/redir/"

refused "TLS with an unknown CA" 'certificate|CA|TLS|SSL' "$ORIGIN_TLS/"
works "TLS with a private CA" "$ORIGIN_TLS/" --cacert "$T/nginx/ca.pem"
works "TLS with --insecure" "$ORIGIN_TLS/" --insecure

check_not "no secret is in the log" grep -Eq 'pass(:|%3A|%3a)word|X-Token: secret|user:wrong' \
	"$T/penstock.log"
check_not "no secret is in a command line" \
	bash -c "tr '\0' ' ' < /proc/*/cmdline 2>/dev/null | grep -q 'penstock.*pass:word'"
secret_in_caches() { grep -rlE 'pass:word|pass%3Aword|X-Token: secret' "$T"/cache-*; }
check_not "no secret is in a cache" secret_in_caches
