#!/usr/bin/env bash
# The cache's disk becomes read-only while programs read: they get right bytes and never an error, and the
# next mount uses what was in the cache.
. "$(dirname "$0")/../../lib.sh"
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
check "a file is read and cached" cmp "$MNT/1.bin" "$T/www/1.bin"
check "the cached file is on the disk after a few seconds" \
	wait_until 20 jq -e .cache.synced "$MNT/.penstock/stats"
"$python" -c 'import os, sys; os.pread(os.open(sys.argv[1], os.O_RDONLY), 1 << 20, 2 << 20)' "$MNT/2.bin"
echo 1 >"$trigger"
check_not "the disk refuses writes" touch "$T/disk/x"
drop_page_cache
check "the cached file is right" cmp "$MNT/1.bin" "$T/www/1.bin"
check "files whose sizes were unknown are right" read_tree 1m
drop_page_cache
check "four random readers are right while the disk is tried again" read_tree random "$MNT" 4
sleep 2.5
check "names are found" ls -lR "$MNT"
drop_page_cache
check "all files are right when read again" read_tree 1m
# The error is that of a write of data or of the index, whichever came first.
equal "the statistics have the disk's error" "Read-only file system" "$(stats .cache.disk_error)"
check "umount succeeds" umount_penstock

check "the disk is free soon" wait_until 30 umount "$T/disk" # the daemon may still be ending
mount_disk "$T/disk"
origin_forget
check "a mount on the repaired disk succeeds" mount_penstock "$ORIGIN/"
check "files on the repaired disk are right" read_tree 1m
equal "the cached file is not fetched again" 0 "$(origin_bytes /1.bin)"
check "other files are cached now" wait_until 20 "$BASH" \
	-c "[[ \$(getfattr -n user.penstock.state --only-values '$MNT/3.bin') == cached ]]"
