#!/usr/bin/env bash
# A redirect is paid once and not for each range; when its target goes away, the new one is found.
. "$(dirname "$0")/../lib.sh"
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
check "what is cached of it goes, and what is known of its place stays" penstock evict "$MNT" a.tar
touch "$T/nginx/moved"
check "all of it, though it has moved meanwhile" cmp "$MNT/a.tar" "$T/www/a.tar"
check "a file that has moved before" cmp "$MNT/b.tar" "$T/www/b.tar"
umount_penstock
at_least "its old place was asked, and refused" 1 \
	"$(awk '$1 == "GET" && $2 == "/old/a.tar" && $3 == 403' "$T/nginx/access.log" | wc -l)"
at_least "several ranges came from the new place" 4 "$(ranges /new/b.tar)"
# Those that are under way together do not know yet.
at_most "fewer were redirected" "$(($(ranges /new/b.tar) * 3 / 4))" "$(redirected b.tar)"

# Some servers write a name into Location as it is. What this one is asked for in the end has the same bytes.
odd=$'blank \xc3\xa4 \xff +&.tar'
random_file "$T/www/$odd" 300000
CACHE=$T/cache-odd
check "a redirect to a name that is not percent-encoded is followed" mount_penstock "$ORIGIN/raw/$odd"
check "to the file's bytes" cmp "$T/www/$odd" "$MNT/$odd"
umount_penstock
