#!/usr/bin/env bash
# The power fails while files are fetched: the next start serves right bytes, keeps data that is older than
# five seconds, checks other blocks before it serves them, and passes a file through once it is checked.
. "$(dirname "$0")/../../lib.sh"
requires mount nginx root mkfs.ext4

mkdir -p "$T/www"
random_file "$T/www/old.bin" 30000000 1
random_file "$T/www/new.bin" 30000000 2
random_file "$T/www/half.bin" 30000000 3
sha_manifest "$T/www" >"$T/manifest"
start_nginx
make_disk "$T/disk" 400M
CACHE=$T/disk/cache

mount_penstock "$ORIGIN/"
check "a file is read" cmp "$MNT/old.bin" "$T/www/old.bin"
check "the file is on the disk after a few seconds" wait_until 20 jq -e .cache.synced "$MNT/.penstock/stats"
cat "$MNT/new.bin" >/dev/null
head -c 10000000 "$MNT/half.bin" >/dev/null
cut_power "$T/disk"
kill_penstock
umount "$T/disk"
mount_disk "$T/disk"

origin_forget
check "a mount after the power cut succeeds" mount_penstock "$ORIGIN/"
check "the file that was on the disk is right" cmp "$MNT/old.bin" "$T/www/old.bin"
equal "the file that was on the disk is not fetched again" 0 "$(origin_bytes /old.bin)"
check "all files are right" read_tree 1m
drop_page_cache
check "two random readers get the right bytes" read_tree random "$MNT" 2
if [[ $(stats .passthrough.active) == true ]]; then
	passed() { local before; before=$(stats .opens.passed) && cat "$MNT/old.bin" >/dev/null &&
		(($(stats .opens.passed) > before)); }
	check "a checked file is passed through" wait_until 20 passed
fi
umount_penstock
check "verify finds no error" penstock verify --cache-dir "$CACHE"
