#!/usr/bin/env bash
# A cache on a disk that fills up: reads and lookups go on and are right, they never fail with EIO, also after
# a start on a full disk; once there is room again, files are cached again by themselves.
. "$(dirname "$0")/../lib.sh"
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

# Another program takes what is left.
fill_disk() {
	dd if=/dev/zero of="$T/small/other" bs=1M 2>/dev/null || true
}
cached() {
	[[ $(getfattr -n user.penstock.state --only-values "$1") == cached ]]
}

check "mounts with a quota larger than the disk" mount_penstock "$ORIGIN/" --cache-size 1G --min-free 1 \
	--revalidate open
check "reads more than the disk holds" read_tree 1m
fill_disk
drop_page_cache
check "reads on a full disk" read_tree 1m
check "by four, in random order" read_tree random "$MNT" 4
check "what was never asked for before is found and read" cmp "$MNT/later/7.bin" "$T/www/later/7.bin"
random_file "$T/new.bin" 2000000 8
mv "$T/new.bin" "$T/www/later/again-100.bin"
check "what has changed there since is read as it is now" \
	wait_until 30 cmp "$MNT/later/again-100.bin" "$T/www/later/again-100.bin"
rm "$T/small/other"
# What is cached in part keeps the room that the rest of it will need.
check "room is made" penstock evict "$MNT"
# What was read before may still be in memory, the kernel's or the daemon's: each time another.
again=0
another_is_cached() {
	again=$((again + 1))
	cat "$MNT/later/again-$again.bin" >/dev/null && cached "$MNT/later/again-$again.bin"
}
check "is cached once there is room" wait_until 30 another_is_cached
fill_disk
check "unmounts with a full disk" umount_penstock
fill_disk
check "mounts with a full disk" mount_penstock "$ORIGIN/" --cache-size 1G --min-free 1
check "and is right" read_tree 1m
check "unmounts" umount_penstock
rm "$T/small/other"
check "mounts again" mount_penstock "$ORIGIN/" --cache-size 1G --min-free 1
check "and is right as ever" read_tree 1m
