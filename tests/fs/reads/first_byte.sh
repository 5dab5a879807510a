#!/usr/bin/env bash
# The first byte of a cold shard costs one request if the listing has the size, and two if not.
. "$(dirname "$0")/../../lib.sh"
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
check "the first byte of a listed shard is read" first_byte s-2.tar
umount_penstock
equal "a listed shard needs no HEAD" 0 "$(requests HEAD /json/s-2.tar)"
at_least "a listed shard is read by GETs" 1 "$(requests GET /json/s-2.tar)"
equal "the preceding shard was not requested" 0 "$(($(requests HEAD /json/s-1.tar) + $(requests GET /json/s-1.tar)))"

CACHE=$T/cache2
mount_penstock "$ORIGIN/s-{0..3}.tar"
check "the first byte of a shard without a listed size is read" first_byte s-2.tar
umount_penstock
equal "a shard without a listed size needs one HEAD" 1 "$(requests HEAD /s-2.tar)"

CACHE=$T/cache3
mount_penstock "$ORIGIN/json/" --revalidate open
check "the first byte of a shard that is revalidated at each open is read" first_byte s-1.tar
umount_penstock
# The request is a GET of one byte, which also proves that these credentials may read the shard.
equal "a shard that is revalidated needs one more request" 1 \
	"$(awk '$2 == "/json/s-1.tar" && ($1 == "HEAD" || $5 == "bytes=0-0")' "$T/nginx/access.log" | wc -l)"
