#!/usr/bin/env bash
# A redirect is followed once and not for each range; when its target moves, the new one is found.
. "$(dirname "$0")/../../lib.sh"
requires mount nginx

mkdir -p "$T/www"
random_file "$T/www/a.tar" 40000000
random_file "$T/www/b.tar" 40000000
start_nginx

redirected() { awk -v path="/hub/$1" '$1 == "GET" && $2 == path' "$T/nginx/access.log" | wc -l; }
ranges() { awk -v path="$1" '$1 == "GET" && $2 == path && $3 == 206' "$T/nginx/access.log" | wc -l; }

printf '%s\n' "$ORIGIN/hub/a.tar 40000000" "$ORIGIN/hub/b.tar 40000000" >"$T/list.txt"
mount_penstock "@$T/list.txt"
check "the first half of a file is read" cmp -n 20000000 "$MNT/a.tar" "$T/www/a.tar"
check "evict drops the cached bytes, and keeps the redirect's target" penstock evict "$MNT" a.tar
touch "$T/nginx/moved"
check "the file is read although its target has moved" cmp "$MNT/a.tar" "$T/www/a.tar"
check "a file that moved before it was opened is read" cmp "$MNT/b.tar" "$T/www/b.tar"
umount_penstock
at_least "the old target refused a request" 1 \
	"$(awk '$1 == "GET" && $2 == "/old/a.tar" && $3 == 403' "$T/nginx/access.log" | wc -l)"
at_least "several ranges came from the new target" 4 "$(ranges /new/b.tar)"
# Requests that are in flight together do not know the target yet.
at_most "fewer requests than ranges were redirected" "$(($(ranges /new/b.tar) * 3 / 4))" "$(redirected b.tar)"

# Some servers write a name into Location without percent-encoding.
odd=$'blank \xc3\xa4 \xff +&.tar'
random_file "$T/www/$odd" 300000
CACHE=$T/cache-odd
check "a redirect to a name that is not percent-encoded is followed" mount_penstock "$ORIGIN/raw/$odd"
check "a redirect to a name that is not percent-encoded leads to the file's bytes" cmp "$T/www/$odd" "$MNT/$odd"
umount_penstock

# A server with a login page sets a cookie, and sends the request back to where it was.
CACHE=$T/cache-cookie
rc=0
penstock mount "$ORIGIN/cookie/a.tar" "$MNT" --cache-dir "$CACHE" --timeout 5s >"$T/out" 2>&1 || rc=$?
equal "a server that wants a cookie is an error" 1 "$rc"
check "which says how to send one" grep -q -- "use --header 'Cookie: NAME=VALUE'" "$T/out"
check "with the cookie it works" mount_penstock "$ORIGIN/cookie/a.tar" --header "Cookie: login=1"
check "and the bytes are right" cmp "$MNT/a.tar" "$T/www/a.tar"
umount_penstock
