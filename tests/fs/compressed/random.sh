#!/usr/bin/env bash
# Random reads of a seekable shard fetch only the frames that they touch; many readers of any shard cost one
# decompression; after a kill in the middle bytes are right and verify finds no error.
. "$(dirname "$0")/../../lib.sh"
requires mount nginx zstd slow

make=("$python" "$top_srcdir/tests/fs/compressed/make_compressed.py" --one)
mkdir -p "$T/www" "$T/plain"
random_file "$T/plain/big.tar" 33554432 # random bytes: no frame becomes smaller
"${make[@]}" seekable.tar.zst "$T/plain/big.tar" "$T/www/seek.tar.zst"
"${make[@]}" frames.tar.zst "$T/plain/big.tar" "$T/www/frames.tar.zst"
"${make[@]}" one.tar.zst "$T/plain/big.tar" "$T/www/one.tar.zst"
"${make[@]}" piped.tar.zst "$T/plain/big.tar" "$T/www/piped.tar.zst"
"${make[@]}" plain.tar.gz "$T/plain/big.tar" "$T/www/gz.tar.gz"
start_nginx

# compare NAME OFFSET NBYTES: these bytes of a mounted file are right.
compare() {
	"$python" -c 'import os, sys
name, offset, nbytes = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
read = [os.pread(os.open(path, os.O_RDONLY), nbytes, offset) for path in (name, sys.argv[4])]
sys.exit(read[0] != read[1] or len(read[0]) != nbytes)' "$MNT/$1" "$2" "$3" "$T/plain/big.tar"
}

check "a mount of compressed shards succeeds" mount_penstock "$ORIGIN/"
stat "$MNT/seek.tar" >/dev/null
origin_forget
for i in 3 17 30; do
	check "4 KiB of frame $i are read" compare seek.tar $((i * 1048576 + 500000)) 4096
done
wait_until 10 [ "$(origin_bytes)" -gt 3000000 ] || true
at_most "three frames were fetched" $((3 * 1048576 + 3 * 200)) "$(origin_bytes)"
check "another part of a fetched frame is read" compare seek.tar $((17 * 1048576 + 100000)) 4096
at_most "nothing more was fetched" $((3 * 1048576 + 3 * 200)) "$(origin_bytes)"

# The first read of a shard with many frames makes a table of the frames.
cmp "$MNT/frames.tar" "$T/plain/big.tar"
penstock evict "$MNT" frames.tar
umount_penstock
check "a second mount succeeds" mount_penstock "$ORIGIN/"
stat "$MNT/frames.tar" >/dev/null
origin_forget
check "4 KiB of a shard whose frames have no table in the file are read" compare frames.tar 20000000 4096
at_most "only their frame was fetched" 1500000 "$(origin_bytes)"
umount_penstock

for name in one piped gz; do
	CACHE=$T/cache-$name
	check "a mount for readers of $name.tar succeeds" mount_penstock "$ORIGIN/limit/"
	origin_forget
	printf '%s  ./%s.tar\n' "$(sha256sum <"$T/plain/big.tar" | cut -d ' ' -f 1)" "$name" >"$T/manifest"
	check "eight readers of $name.tar get the right bytes" read_tree 1m "$MNT" 8
	size=$(stat -c %s "$T/www/$name".*)
	at_most "$name.tar was fetched once" $((size + 160000)) "$(origin_bytes)"
	at_most "$name.tar was decoded once" 33554432 "$(stats .inflate.plain_bytes)"
	umount_penstock
done

# A kill in the middle of decompressing: while the size is being found, and while a reader reads.
some_decoded() { (($(stats .inflate.plain_bytes) > 8000000)); }
for name in piped one; do
	CACHE=$T/cache-kill-$name
	mount_penstock "$ORIGIN/limit/"
	cat "$MNT/$name.tar" >/dev/null 2>&1 &
	reader=$!
	check "$name.tar is being decoded" wait_until 20 some_decoded
	sleep 0.5 # the index follows the written data after a moment
	kill_penstock
	wait "$reader" || true
	check "a mount after the kill succeeds" mount_penstock "$ORIGIN/"
	check "$name.tar has the right bytes" cmp "$MNT/$name.tar" "$T/plain/big.tar"
	umount_penstock
	check "verify finds no error after the kill" penstock verify --cache-dir "$CACHE"
done
