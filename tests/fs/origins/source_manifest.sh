#!/usr/bin/env bash
# SOURCE that is a manifest, at the origin or local (@file), names the files.
. "$(dirname "$0")/../../lib.sh"
requires mount nginx

make_shards "$T/www/train" 3 50000
start_nginx
cat >"$T/www/list.txt" <<END
# a comment

$ORIGIN/train/shard-000000.tar
$ORIGIN/train/shard-000002.tar
END
mount_penstock "$ORIGIN/list.txt"
equal "a manifest at the origin gives two shards" 2 "$(find "$MNT" -type f | wc -l)"
check "the shards of a manifest at the origin have the right bytes" \
	cmp "$(find "$MNT" -name shard-000002.tar)" "$T/www/train/shard-000002.tar"
umount_penstock

cp "$T/www/list.txt" "$T/local.txt"
CACHE=$T/cache2
mount_penstock "@$T/local.txt"
equal "a local manifest gives two shards" 2 "$(find "$MNT" -type f | wc -l)"
check "the local manifest's shards have their bytes" \
	cmp "$(find "$MNT" -name shard-000000.tar)" "$T/www/train/shard-000000.tar"
umount_penstock

# A size in the manifest is accepted; without a version it is not used.
echo "$ORIGIN/train/shard-000001.tar $(stat -c %s "$T/www/train/shard-000001.tar")" >"$T/sized.txt"
CACHE=$T/cache3
mount_penstock "@$T/sized.txt"
check "a shard with its size in the manifest has its bytes" \
	cmp "$(find "$MNT" -name shard-000001.tar)" "$T/www/train/shard-000001.tar"
umount_penstock

# A manifest has no versions: a change of a file is seen when it is opened.
CACHE=$T/cache2
random_file "$T/www/train/shard-000002.tar" 60000 other
check "warm succeeds with a file that has changed" timeout 60 penstock warm "@$T/local.txt" \
	--cache-dir "$CACHE" --revalidate open
origin_forget
mount_penstock "@$T/local.txt"
check "the changed file has its new bytes" \
	cmp "$(find "$MNT" -name shard-000002.tar)" "$T/www/train/shard-000002.tar"
equal "warm had fetched all of the changed file" \
	0 "$(grep -c 'GET /train/shard-000002' "$T/nginx/access.log" || true)"
