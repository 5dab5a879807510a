#!/usr/bin/env bash
# tar, sha256sum, cp --sparse, cmp, find, dd and rsync-like copies work on a mount, unmodified.
. "$(dirname "$0")/../lib.sh"
requires mount nginx

make_shards "$T/www" 3 2500000
start_nginx
mount_penstock "$ORIGIN/"
shard="shard-000001.tar"
equal "tar tf" "$(tar tf "$T/www/$shard" | sha256sum)" "$(tar tf "$MNT/$shard" | sha256sum)"
mkdir "$T/x1" "$T/x2"
tar xf "$T/www/$shard" -C "$T/x1"
check "tar xf" tar xf "$MNT/$shard" -C "$T/x2"
check "gives the same files" diff -r "$T/x1" "$T/x2"
check "tar cf of the mount" bash -c "tar cf - -C '$MNT' . | tar xf - -C '$T' && cmp '$T/$shard' '$T/www/$shard'"
equal "sha256sum" "$(sha256sum <"$T/www/$shard")" "$(sha256sum <"$MNT/$shard")"
for sparse in always auto never; do
	check "cp --sparse=$sparse" cp --sparse="$sparse" "$MNT/$shard" "$T/copy"
	check "copies all" cmp "$T/copy" "$T/www/$shard"
done
check "cp -a of the tree" cp -a "$MNT" "$T/tree"
check "copies the tree" diff -r "$T/tree" "$T/www"
check "dd with O_DIRECT" dd if="$MNT/$shard" of="$T/direct" bs=1M iflag=direct
check "copies all of it" cmp "$T/direct" "$T/www/$shard"
equal "tail" "$(tail -c 12345 "$T/www/$shard" | sha256sum)" "$(tail -c 12345 "$MNT/$shard" | sha256sum)"
