#!/usr/bin/env bash
# Compressed shards of a folder on this machine: if headers of frames and blocks give the size, it takes no
# decoding, and damage is still found by readers.
. "$(dirname "$0")/../lib.sh"
requires mount zstd

"$python" "$top_srcdir/tests/fs/make_compressed.py" "$T/www" "$T/plain"
sha_manifest "$T/plain" >"$T/manifest"
check "mounts" mount_penstock "$T/www/"
equal "a shard of many frames shows its size" "$(stat -c %s "$T/plain/frames.tar")" \
	"$(stat -c %s "$MNT/frames.tar")"
equal "without being decoded" 0 "$(stats .inflate.plain_bytes)"
equal "all sizes are right" "$(cd "$T/plain" && stat -c '%n %s' -- *)" "$(cd "$MNT" && stat -c '%n %s' -- *)"
check "and all bytes" read_tree 1m
check "for a random reader, too" read_tree random
umount_penstock

# A block in the middle is damaged: its header, so that no walk comes past it, or what it holds.
size=$(stat -c %s "$T/www/frames.tar.zst")
cut=$T/www/frames-cut.tar.zst
head -c $((size - 5)) "$T/www/frames.tar.zst" >"$cut"
cp "$T/www/frames.tar.zst" "$T/www/frames-holed.tar.zst"
dd if=/dev/zero of="$T/www/frames-holed.tar.zst" bs=1 seek=$((size / 2)) count=3000 conv=notrunc status=none
CACHE=$T/cache-damaged
check "mounts with damaged ones beside" mount_penstock "$T/www/"
check_not "one that ends in the middle of a frame cannot be read" cat "$MNT/frames-cut.tar"
check_not "nor one with a hole" cat "$MNT/frames-holed.tar"
check "the good ones can" cmp "$T/plain/frames.tar" "$MNT/frames.tar"
