#!/usr/bin/env bash
# tar, sha256sum, cp --sparse, cmp, find, dd and rsync-like copies work on a mount, unmodified.
. "$(dirname "$0")/../../lib.sh"
requires mount nginx

make_shards "$T/www" 3 2500000
start_nginx
mount_penstock "$ORIGIN/"
shard="shard-000001.tar"
equal "tar tf lists the same files" \
	"$(tar tf "$T/www/$shard" | sha256sum)" "$(tar tf "$MNT/$shard" | sha256sum)"
mkdir "$T/x1" "$T/x2"
tar xf "$T/www/$shard" -C "$T/x1"
check "tar xf succeeds" tar xf "$MNT/$shard" -C "$T/x2"
check "tar xf extracts the same files" diff -r "$T/x1" "$T/x2"
check "tar cf of the mount has the same bytes" \
	bash -c "tar cf - -C '$MNT' . | tar xf - -C '$T' && cmp '$T/$shard' '$T/www/$shard'"
equal "sha256sum is the same" "$(sha256sum <"$T/www/$shard")" "$(sha256sum <"$MNT/$shard")"
for sparse in always auto never; do
	check "cp --sparse=$sparse succeeds" cp --sparse="$sparse" "$MNT/$shard" "$T/copy"
	check "cp --sparse=$sparse copies all bytes" cmp "$T/copy" "$T/www/$shard"
done
check "cp -a of the tree succeeds" cp -a "$MNT" "$T/tree"
check "cp -a copies the tree" diff -r "$T/tree" "$T/www"
check "dd with O_DIRECT succeeds" dd if="$MNT/$shard" of="$T/direct" bs=1M iflag=direct
check "dd with O_DIRECT copies all bytes" cmp "$T/direct" "$T/www/$shard"
equal "tail reads the same bytes" \
	"$(tail -c 12345 "$T/www/$shard" | sha256sum)" "$(tail -c 12345 "$MNT/$shard" | sha256sum)"
