#!/usr/bin/env bash
# stat shows size, time of Last-Modified, full blocks, read-only modes; owner and modes follow the options.
. "$(dirname "$0")/../lib.sh"
requires mount nginx jq

make_tree "$T/www"
touch -d "2019-05-06 07:08:09 UTC" "$T/www/shard-000000.tar"
start_nginx
mount_penstock "$ORIGIN/"
equal "size" "$(stat -c %s "$T/www/shard-000000.tar")" "$(stat -c %s "$MNT/shard-000000.tar")"
equal "mtime is Last-Modified" 1557126489 "$(stat -c %Y "$MNT/shard-000000.tar")"
for f in shard-000000.tar sub/deep/0.bin sub/deep/1.bin sub/deep/1048577.bin; do
	size=$(stat -c %s "$T/www/$f")
	equal "st_blocks of $f" $(((size + 511) / 512)) "$(stat -c %b "$MNT/$f")"
done
equal "files are 0444" 444 "$(stat -c %a "$MNT/shard-000000.tar")"
equal "folders are 0555" 555 "$(stat -c %a "$MNT/sub")"
equal "the root, too" 555 "$(stat -c %a "$MNT")"
equal "the owner is who mounted" "$EUID:$(id -g)" "$(stat -c %u:%g "$MNT/shard-000000.tar")"
equal "types" "regular file,directory" "$(stat -c %F "$MNT/shard-000000.tar"),$(stat -c %F "$MNT/sub")"
equal "an inode number stays" "$(stat -c %i "$MNT/sub/deep/1.bin")" "$(find "$MNT" -name 1.bin -printf %i)"
equal "and is another for another file" 9 \
	"$(find "$MNT" \( -name '*.bin' -o -name '*.tar' \) -printf '%i\n' | sort -u | wc -l)"
check_not "a name that is not there" stat "$MNT/nothing"
check_not "nor below a file" stat "$MNT/shard-000000.tar/x"
check "names of 255 bytes are answered" bash -c "! stat '$MNT/$(printf 'x%.0s' {1..255})' 2>/dev/null"
before=$(find "$MNT" -printf '%p %i %s %T@\n' | sort)
umount_penstock

mount_penstock "$ORIGIN/"
equal "after a restart all of it is the same" "$before" "$(find "$MNT" -printf '%p %i %s %T@\n' | sort)"
umount_penstock

mount_penstock "$ORIGIN/" -o uid=1234,gid=2345,file-mode=0440,dir-mode=0550
equal "uid and gid options" 1234:2345 "$(stat -c %u:%g "$MNT/shard-000000.tar")"
equal "file-mode" 440 "$(stat -c %a "$MNT/shard-000000.tar")"
equal "dir-mode" 550 "$(stat -c %a "$MNT/sub")"
