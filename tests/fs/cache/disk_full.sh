#!/usr/bin/env bash
# A cache on a disk that fills up: reads and lookups are right and never fail with EIO, also after a start on
# a full disk. Once there is room, files are cached again.
. "$(dirname "$0")/../../lib.sh"
requires mount nginx root

mkdir -p "$T/www/later" "$T/small"
mount -t tmpfs -o size=80m tmpfs "$T/small" 2>/dev/null || skip_all "a tmpfs cannot be mounted here"
for i in 1 2 3 4 5 6; do
	random_file "$T/www/$i.bin" 12000000 "$i"
done
sha_manifest "$T/www" >"$T/manifest"
random_file "$T/www/later/7.bin" 3000000 7
for i in $(seq 100); do
	ln "$T/www/later/7.bin" "$T/www/later/again-$i.bin"
done
start_nginx
CACHE=$T/small/cache

# Another program takes the rest of the disk.
fill_disk() {
	dd if=/dev/zero of="$T/small/other" bs=1M 2>/dev/null || true
}
cached() {
	[[ $(getfattr -n user.penstock.state --only-values "$1") == cached ]]
}

check "a mount with a quota larger than the disk succeeds" \
	mount_penstock "$ORIGIN/" --cache-size 1G --min-free 1 \
	--revalidate open
check "more files than the disk holds are read" read_tree 1m
fill_disk
drop_page_cache
check "files are read with a full disk" read_tree 1m
check "four random readers are right with a full disk" read_tree random "$MNT" 4
check "a file that is new to the cache is found and read" cmp "$MNT/later/7.bin" "$T/www/later/7.bin"
random_file "$T/new.bin" 2000000 8
mv "$T/new.bin" "$T/www/later/again-100.bin"
check "a file that has changed is read in its new version" \
	wait_until 30 cmp "$MNT/later/again-100.bin" "$T/www/later/again-100.bin"
rm "$T/small/other"
# A partly cached file keeps room for its missing part.
check "evict makes room" penstock evict "$MNT"
# A file that was read before may still be in the kernel's or the daemon's memory, so each try reads another
# one.
again=0
another_is_cached() {
	again=$((again + 1))
	cat "$MNT/later/again-$again.bin" >/dev/null && cached "$MNT/later/again-$again.bin"
}
check "a file is cached once there is room" wait_until 30 another_is_cached
fill_disk
check "umount with a full disk succeeds" umount_penstock
fill_disk
check "a mount with a full disk succeeds" mount_penstock "$ORIGIN/" --cache-size 1G --min-free 1
check "a mount with a full disk has the right bytes" read_tree 1m
check "umount succeeds" umount_penstock
rm "$T/small/other"
check "a mount with room on the disk succeeds" mount_penstock "$ORIGIN/" --cache-size 1G --min-free 1
check "a mount with room on the disk has the right bytes" read_tree 1m
