#!/usr/bin/env bash
# stat shows size, time of Last-Modified, blocks for all bytes, read-only modes; owner and modes follow the
# options.
. "$(dirname "$0")/../../lib.sh"
requires mount nginx jq

make_tree "$T/www"
touch -d "2019-05-06 07:08:09 UTC" "$T/www/shard-000000.tar"
start_nginx
mount_penstock "$ORIGIN/"
equal "the size is that of the origin's file" \
	"$(stat -c %s "$T/www/shard-000000.tar")" "$(stat -c %s "$MNT/shard-000000.tar")"
equal "mtime is Last-Modified" 1557126489 "$(stat -c %Y "$MNT/shard-000000.tar")"
for f in shard-000000.tar sub/deep/0.bin sub/deep/1.bin sub/deep/1048577.bin; do
	size=$(stat -c %s "$T/www/$f")
	equal "st_blocks of $f" $(((size + 511) / 512)) "$(stat -c %b "$MNT/$f")"
done
equal "files are 0444" 444 "$(stat -c %a "$MNT/shard-000000.tar")"
equal "folders are 0555" 555 "$(stat -c %a "$MNT/sub")"
equal "the mount's root is 0555" 555 "$(stat -c %a "$MNT")"
equal "the owner is the user who mounted" "$EUID:$(id -g)" "$(stat -c %u:%g "$MNT/shard-000000.tar")"
equal "files and folders have their types" \
	"regular file,directory" "$(stat -c %F "$MNT/shard-000000.tar"),$(stat -c %F "$MNT/sub")"
equal "stat and a listing show the same inode number" \
	"$(stat -c %i "$MNT/sub/deep/1.bin")" "$(find "$MNT" -name 1.bin -printf %i)"
equal "each file has its own inode number" 9 \
	"$(find "$MNT" \( -name '*.bin' -o -name '*.tar' \) -printf '%i\n' | sort -u | wc -l)"
check_not "stat of a missing name fails" stat "$MNT/nothing"
check_not "stat of a name below a file fails" stat "$MNT/shard-000000.tar/x"
check "names of 255 bytes are answered" bash -c "! stat '$MNT/$(printf 'x%.0s' {1..255})' 2>/dev/null"
before=$(find "$MNT" -printf '%p %i %s %T@\n' | sort)
umount_penstock

mount_penstock "$ORIGIN/"
equal "after a restart inode numbers, sizes and times are the same" \
	"$before" "$(find "$MNT" -printf '%p %i %s %T@\n' | sort)"
umount_penstock

mount_penstock "$ORIGIN/" -o uid=1234,gid=2345,file-mode=0440,dir-mode=0550
equal "the options uid and gid are applied" 1234:2345 "$(stat -c %u:%g "$MNT/shard-000000.tar")"
equal "the option file-mode is applied" 440 "$(stat -c %a "$MNT/shard-000000.tar")"
equal "the option dir-mode is applied" 550 "$(stat -c %a "$MNT/sub")"
