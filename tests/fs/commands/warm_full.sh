#!/usr/bin/env bash
# A cache on a full disk: warm and status name the disk, not the quota. Once there is room, both see that at
# once, and data that was kept in memory is written to the disk.
. "$(dirname "$0")/../../lib.sh"
requires mount nginx root jq

mkdir -p "$T/www" "$T/small"
mount -t tmpfs -o size=60m tmpfs "$T/small" 2>/dev/null || skip_all "a tmpfs cannot be mounted here"
for i in 1 2 3; do
	random_file "$T/www/$i.bin" 8000000 "$i"
done
sha_manifest "$T/www" >"$T/manifest"
start_nginx
CACHE=$T/small/cache
full() { [[ $(stats .cache.disk_error) == "No space left on device" ]]; }
takes_data() { [[ -z $(stats .cache.disk_error) ]]; }

mount_penstock "$ORIGIN/" --cache-size 1G --min-free 0
check "the disk takes data at first" takes_data
equal "status does not mention the disk" 0 "$(penstock status "$MNT" | grep -c '^  disk' || true)"
dd if=/dev/zero of="$T/small/other" bs=1M 2>/dev/null || true
check "files are read with a full disk" read_tree 1m
check "the statistics report the full disk" wait_until 30 full
at_least "the statistics have the time of the error" 1 "$(stats .cache.disk_error_at)"
check "status shows the full disk" grep -q "^  disk .*No space left on device" <(penstock status "$MNT")
rc=0
timeout 100 penstock warm "$MNT" >"$T/out" 2>&1 || rc=$?
equal "warm with a full disk fails" 1 "$rc"
check "the error names the disk" grep -q "1.bin: No space left on device: $CACHE" "$T/out"
check_not "the error does not name the quota" grep -q -- --cache-size "$T/out"
rm "$T/small/other"
# Without warm, data in memory would wait for half a minute.
check "warm succeeds as soon as there is room" timeout 20 penstock warm "$MNT"
check "the statistics no longer report a full disk" wait_until 30 takes_data
check "the bytes are right" read_tree 1m
umount_penstock

# A cache that cannot be created.
dd if=/dev/zero of="$T/small/other" bs=1M 2>/dev/null || true
dd if=/dev/zero of="$T/small/more" bs=4k 2>/dev/null || true
mkdir "$T/small/late" 2>/dev/null || true
CACHE=$T/small/late
rc=0
mount_penstock "$ORIGIN/" --min-free 0 >"$T/out" 2>&1 || rc=$?
equal "a mount whose cache has no room fails" 1 "$rc"
check "the error says where room is missing, and how much is needed" \
	grep -q "cache directory $CACHE: No space left on device.* MiB" \
	"$T/out"
