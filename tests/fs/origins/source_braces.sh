#!/usr/bin/env bash
# SOURCE with braces is expanded as WebDataset does.
. "$(dirname "$0")/../../lib.sh"
requires mount nginx jq

make_shards "$T/www/train" 12 50000
make_shards "$T/www/val" 3 50000
start_nginx
mount_penstock "$ORIGIN/train/shard-{000000..000011}.tar"
equal "braces give twelve shards" 12 "$(find "$MNT" -type f | wc -l)"
shard=$(find "$MNT" -name shard-000007.tar)
check "a shard has its bytes" cmp "$shard" "$T/www/train/shard-000007.tar"
umount_penstock

CACHE=$T/cache2
mount_penstock "$ORIGIN/{train,val}/shard-{000000..000002}.tar"
equal "a set and a range give six shards" 6 "$(find "$MNT" -type f | wc -l)"
for set in train val; do
	check "the first shard of $set has its bytes" cmp "$(find "$MNT" -path "*$set/shard-000000.tar")" \
		"$T/www/$set/shard-000000.tar"
done
umount_penstock

join() { timeout 30 penstock mount "$@" --cache-dir "$CACHE"; }
mkdir "$T/joined"
CACHE=$T/cache3
mount_penstock "$ORIGIN/train/shard-{000008..000015}.tar" 2>"$T/err"
check "missing shards are counted" wait_until 10 jq -e '.mounts[0].missing == 4' \
	"$MNT/.penstock/stats"
equal "missing shards are named" "shard-000012.tar shard-000013.tar shard-000014.tar shard-000015.tar" \
	"$(stats '.mounts[0].missing_names | sort | join(" ")')"
equal "missing shards do not count as files" 4 "$(stats '.mounts[0].files')"
check "status shows the missing shards" grep -q "missing .*4 files .*shard-00001" <(penstock status "$MNT")
equal "the other shards are shown" 4 "$(find "$MNT" -type f | wc -l)"
text="4 of 8 listed files are missing at the origin, first: shard-000012.tar, shard-000013.tar, shard-000014.tar"
equal "mount reports the missing shards in one line" "penstock mount: warning: $text" "$(cat "$T/err")"
equal "the log reports the missing shards once" 1 "$(grep -c "warning: list: .*: $text" "$T/penstock.log")"
equal "an attribute of the root reports the missing shards" \
	"$text" "$(getfattr --only-values -n user.penstock.missing "$MNT")"
equal "the root lists that attribute" \
	user.penstock.missing "$(getfattr -m - "$MNT" 2>/dev/null | grep missing)"
check_not "no file has that attribute" getfattr -n user.penstock.missing "$MNT/shard-000008.tar"
join "$ORIGIN/train/shard-{000008..000015}.tar" "$T/joined" 2>"$T/err"
equal "a mount that joins reports the missing shards" "penstock mount: warning: $text" "$(cat "$T/err")"
penstock umount "$T/joined"
rc=0
join "$ORIGIN/train/shard-{000008..000015}.tar" "$T/joined" --missing fail >"$T/out" 2>&1 || rc=$?
equal "a mount that joins with --missing fail is refused" "1 1" "$rc $(grep -cF "$text" "$T/out")"
umount_penstock
rc=0
mount_penstock "$ORIGIN/train/shard-{000008..000015}.tar" --missing fail >"$T/out" 2>&1 || rc=$?
equal "a first mount with --missing fail is refused, although the names are stored" \
	"1 1" "$rc $(grep -cF "$text" "$T/out")"
check_not "the refused mount leaves no mount" is_mounted
penstock mount train="$ORIGIN/train/shard-{000008..000015}.tar" val="$ORIGIN/val/shard-{000000..000002}.tar" \
	"$MNT" --cache-dir "$CACHE" --log "$T/penstock.log" 2>/dev/null
equal "several sources: the root's attribute names the source" "train: $text" \
	"$(getfattr --only-values -n user.penstock.missing "$MNT")"
check_not "several sources: the folder of a complete source has no attribute" \
	getfattr -n user.penstock.missing "$MNT/val"
umount_penstock
CACHE=$T/cache4
mount_penstock "$ORIGIN/train/shard-{000000..000011}.tar" --missing fail 2>"$T/err"
equal "a complete source is not reported" "" "$(cat "$T/err")"
check_not "a complete source has no such attribute" getfattr -n user.penstock.missing "$MNT"
umount_penstock

# Blanks and bytes beyond ASCII need not be percent-encoded.
mkdir "$T/www/a b"
for i in 0 1; do random_file "$T/www/a b/"$'\xc3\xa4 \xff-'"$i.tar" 100000 "$i"; done
CACHE=$T/cache4
check "a mount of a URL with blanks and raw bytes succeeds" \
	mount_penstock "$ORIGIN/a b/"$'\xc3\xa4 \xff-{0..1}.tar'
check "a mount of a URL with blanks and raw bytes shows the file" \
	cmp "$T/www/a b/"$'\xc3\xa4 \xff-1.tar' "$MNT/"$'\xc3\xa4 \xff-1.tar'
equal "the file's URL is percent-encoded" "$ORIGIN/a%20b/%c3%a4%20%ff-1.tar" \
	"$(getfattr --only-values -n user.penstock.url "$MNT/"$'\xc3\xa4 \xff-1.tar')"
