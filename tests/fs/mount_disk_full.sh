#!/usr/bin/env bash
# A cache on a disk that fills up: reads go on and are right, they never fail with EIO.
. "$(dirname "$0")/../lib.sh"
requires mount nginx root

mkdir -p "$T/www" "$T/small"
mount -t tmpfs -o size=48m tmpfs "$T/small" 2>/dev/null || skip_all "a tmpfs cannot be mounted here"
for i in 1 2 3 4 5 6; do
	random_file "$T/www/$i.bin" 12000000 "$i"
done
sha_manifest "$T/www" >"$T/manifest"
start_nginx
CACHE=$T/small/cache
check "mounts with a quota larger than the disk" mount_penstock "$ORIGIN/" --cache-size 1G --min-free 1
check "reads more than the disk holds" read_tree 1m
# Somebody else takes what is left.
dd if=/dev/zero of="$T/small/other" bs=1M 2>/dev/null || true
drop_page_cache
check "reads on a full disk" read_tree 1m
check "by four, in random order" read_tree random "$MNT" 4
check "unmounts" umount_penstock
rm "$T/small/other"
check "mounts again" mount_penstock "$ORIGIN/" --cache-size 1G --min-free 1
check "and is right" read_tree 1m
