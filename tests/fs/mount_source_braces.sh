#!/usr/bin/env bash
# SOURCE with braces is expanded as WebDataset does.
. "$(dirname "$0")/../lib.sh"
requires mount nginx jq

make_shards "$T/www/train" 12 50000
make_shards "$T/www/val" 3 50000
start_nginx
mount_penstock "$ORIGIN/train/shard-{000000..000011}.tar"
equal "twelve shards" 12 "$(find "$MNT" -type f | wc -l)"
shard=$(find "$MNT" -name shard-000007.tar)
check "with their bytes" cmp "$shard" "$T/www/train/shard-000007.tar"
umount_penstock

CACHE=$T/cache2
mount_penstock "$ORIGIN/{train,val}/shard-{000000..000002}.tar"
equal "a set and a range" 6 "$(find "$MNT" -type f | wc -l)"
for set in train val; do
	check "$set's first" cmp "$(find "$MNT" -path "*$set/shard-000000.tar")" "$T/www/$set/shard-000000.tar"
done
umount_penstock

CACHE=$T/cache3
mount_penstock "$ORIGIN/train/shard-{000008..000015}.tar"
check "those that are not there are counted" wait_until 10 jq -e '.mounts[0].missing == 4' "$MNT/.penstock/stats"
equal "and named" "shard-000012.tar shard-000013.tar shard-000014.tar shard-000015.tar" \
	"$(stats '.mounts[0].missing_names | sort | join(" ")')"
check "for people, too" grep -q "missing .*4 files .*shard-00001" <(penstock status "$MNT")
equal "the others are shown" 4 "$(find "$MNT" -type f | wc -l)"
umount_penstock

# Blanks and bytes beyond ASCII need not be percent-encoded.
mkdir "$T/www/a b"
for i in 0 1; do random_file "$T/www/a b/"$'\xc3\xa4 \xff-'"$i.tar" 100000 "$i"; done
CACHE=$T/cache4
check "a URL with blanks and raw bytes" mount_penstock "$ORIGIN/a b/"$'\xc3\xa4 \xff-{0..1}.tar'
check "shows the file" cmp "$T/www/a b/"$'\xc3\xa4 \xff-1.tar' "$MNT/"$'\xc3\xa4 \xff-1.tar'
equal "its URL is percent-encoded" "$ORIGIN/a%20b/%c3%a4%20%ff-1.tar" \
	"$(getfattr --only-values -n user.penstock.url "$MNT/"$'\xc3\xa4 \xff-1.tar')"
