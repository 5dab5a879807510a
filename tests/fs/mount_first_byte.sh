#!/usr/bin/env bash
# The first byte of a cold shard costs no request but its own if the listing has the size, and one more
# where not.
. "$(dirname "$0")/../lib.sh"
requires mount nginx

mkdir -p "$T/www"
for i in 0 1 2 3; do
	random_file "$T/www/s-$i.tar" 4194304
done
start_nginx

requests() { # METHOD PATH
	awk -v method="$1" -v path="$2" '$1 == method && $2 == path' "$T/nginx/access.log" | wc -l
}
first_byte() { head -c 1 "$MNT/$1" | cmp - <(head -c 1 "$T/www/$1"); }

mount_penstock "$ORIGIN/json/"
check "the first byte of a listed shard" first_byte s-2.tar
umount_penstock
equal "costs no HEAD" 0 "$(requests HEAD /json/s-2.tar)"
at_least "the GET has it" 1 "$(requests GET /json/s-2.tar)"
equal "nobody asked for other shards" 0 "$(($(requests HEAD /json/s-1.tar) + $(requests GET /json/s-1.tar)))"

CACHE=$T/cache2
mount_penstock "$ORIGIN/s-{0..3}.tar"
check "the first byte of one whose size nobody told" first_byte s-2.tar
umount_penstock
equal "costs one HEAD" 1 "$(requests HEAD /s-2.tar)"

CACHE=$T/cache3
mount_penstock "$ORIGIN/json/" --revalidate open
check "the first byte of one that is confirmed at each open" first_byte s-1.tar
umount_penstock
# That is a GET of a byte, which proves that these credentials may read it, too.
equal "costs one request, too" 1 \
	"$(awk '$2 == "/json/s-1.tar" && ($1 == "HEAD" || $5 == "bytes=0-0")' "$T/nginx/access.log" | wc -l)"
