#!/usr/bin/env bash
# The cache's disk becomes read-only while programs read: they get right bytes and never an error, and the
# next mount uses what was in the cache.
. "$(dirname "$0")/../lib.sh"
requires mount nginx root mkfs.ext4

mkdir -p "$T/www/more"
for i in 1 2 3 4; do
	random_file "$T/www/$i.bin" 9000000 "$i"
	random_file "$T/www/more/$i.bin" 3000000 "1$i"
done
sha_manifest "$T/www" >"$T/manifest"
start_nginx
make_disk "$T/disk" 300M errors=remount-ro
trigger=/sys/fs/ext4/$(basename "$(findmnt -no SOURCE "$T/disk")")/trigger_fs_error
[[ -w $trigger ]] || skip_all "this kernel's ext4 cannot be made to fail"
CACHE=$T/disk/cache

mount_penstock "$ORIGIN/"
check "reads into the cache" cmp "$MNT/1.bin" "$T/www/1.bin"
check "which is safe after a few seconds" wait_until 20 jq -e .cache.synced "$MNT/.penstock/stats"
"$python" -c 'import os, sys; os.pread(os.open(sys.argv[1], os.O_RDONLY), 1 << 20, 2 << 20)' "$MNT/2.bin"
echo 1 >"$trigger"
check_not "the disk takes no more" touch "$T/disk/x"
drop_page_cache
check "what was cached is right" cmp "$MNT/1.bin" "$T/www/1.bin"
check "so is all the rest, of which nobody knew the size" read_tree 1m
drop_page_cache
check "by four at random, for longer than it takes to try the disk again" read_tree random "$MNT" 4
sleep 2.5
check "names are found" ls -lR "$MNT"
drop_page_cache
check "and read" read_tree 1m
# A write of data or one of the index: whichever met it first.
equal "status tells what the disk says" "Read-only file system" "$(stats .cache.disk_error)"
check "unmounts" umount_penstock

umount "$T/disk"
mount_disk "$T/disk"
origin_forget
check "mounts on the disk that is well again" mount_penstock "$ORIGIN/"
check "and is right" read_tree 1m
equal "what was cached is not fetched again" 0 "$(origin_bytes /1.bin)"
check "the rest is cached now" wait_until 20 "$BASH" \
	-c "[[ \$(getfattr -n user.penstock.state --only-values '$MNT/3.bin') == cached ]]"
