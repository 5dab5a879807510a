#!/usr/bin/env bash
# Compressed shards of a folder on this machine: if headers of frames and blocks give the size, nothing is
# decoded to find it, and readers still find damage.
. "$(dirname "$0")/../../lib.sh"
requires mount zstd

"$python" "$top_srcdir/tests/fs/compressed/make_compressed.py" "$T/www" "$T/plain"
sha_manifest "$T/plain" >"$T/manifest"
check "a mount of compressed shards succeeds" mount_penstock "$T/www/"
equal "a shard of many frames shows its size" "$(stat -c %s "$T/plain/frames.tar")" \
	"$(stat -c %s "$MNT/frames.tar")"
equal "a shard of many frames is not decoded to show its size" 0 "$(stats .inflate.plain_bytes)"
equal "all sizes are right" "$(cd "$T/plain" && stat -c '%n %s' -- *)" "$(cd "$MNT" && stat -c '%n %s' -- *)"
check "all bytes are right" read_tree 1m
check "random reads get the right bytes" read_tree random
umount_penstock

# One shard ends in the middle of a frame; the other has a hole, headers of blocks included.
size=$(stat -c %s "$T/www/frames.tar.zst")
cut=$T/www/frames-cut.tar.zst
head -c $((size - 5)) "$T/www/frames.tar.zst" >"$cut"
cp "$T/www/frames.tar.zst" "$T/www/frames-holed.tar.zst"
dd if=/dev/zero of="$T/www/frames-holed.tar.zst" bs=1 seek=$((size / 2)) count=3000 conv=notrunc status=none
CACHE=$T/cache-damaged
check "a mount with damaged shards succeeds" mount_penstock "$T/www/"
check_not "a shard that ends in the middle of a frame cannot be read" cat "$MNT/frames-cut.tar"
check_not "a shard with a hole cannot be read" cat "$MNT/frames-holed.tar"
check "a good shard can be read" cmp "$T/plain/frames.tar" "$MNT/frames.tar"
