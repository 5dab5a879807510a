#!/usr/bin/env bash
# Names of compressed shards: an x.tar beside an x.tar.zst, a thousand shards, a shard that changes.
. "$(dirname "$0")/../../lib.sh"
requires mount zstd

mkdir -p "$T/www/sub"
random_file "$T/www/both.tar" 5000
random_file "$T/one" 7000
zstd -qc "$T/one" >"$T/www/both.tar.zst"
zstd -qc "$T/one" >"$T/www/sub/both.tar.zst"
gzip -c "$T/one" >"$T/www/sub/both.tar.gz"
zstd -qc "$T/one" >"$T/www/only.tar.zst"
check "a mount of x.tar and x.tar.zst succeeds" mount_penstock "$T/www/" --revalidate open
check "both.tar is the uncompressed file" cmp "$MNT/both.tar" "$T/www/both.tar"
check "both.tar.zst is shown as it is" cmp "$MNT/both.tar.zst" "$T/www/both.tar.zst"
check "the log says that it is shown as it is" grep -q 'both.tar.*: shown as it is' "$T/penstock.log"
equal "of a .zst and a .gz, one is shown as it is" 2 "$(find "$MNT/sub" -type f | wc -l)"
check "the other one is shown decoded" cmp "$MNT/sub/both.tar" "$T/one"
check "other shards are shown decoded" cmp "$MNT/only.tar" "$T/one"
ls -i "$MNT" >"$T/numbers"
umount_penstock
check "a second mount succeeds" mount_penstock "$T/www/" --revalidate open
equal "a second mount has the same names and inode numbers" "$(cat "$T/numbers")" "$(ls -i "$MNT")"

# Another version of a shard is another file, with another size.
random_file "$T/two" 90000
zstd -qc "$T/two" >"$T/new" && mv "$T/new" "$T/www/only.tar.zst"
check "a shard that changed has its new bytes" wait_until 10 cmp "$MNT/only.tar" "$T/two"
umount_penstock

mkdir "$T/many"
"$python" - "$T/many" "$T/one" <<-'PYTHON'
	import os, subprocess, sys
	out, one = sys.argv[1:]
	data = open(one, "rb").read()
	names = []
	for i in range(1000):
	    with open(f"{out}/{i:04}.tar", "wb") as f:
	        f.write(data[: 1000 + 5 * i])
	    names.append(f"{out}/{i:04}.tar")
	subprocess.run(["zstd", "-q", "--rm", *names], check=True)
PYTHON
CACHE=$T/cache-many
check "a mount of a thousand shards succeeds" mount_penstock "$T/many/"
# shellcheck disable=SC2012 # this tests what ls -l shows
seen=$(ls -l "$MNT" | awk 'NR > 1 {print $5}' | tr '\n' ' ')
equal "ls -l has the sizes" "$(for ((i = 0; i < 1000; i++)); do printf '%d ' $((1000 + 5 * i)); done)" "$seen"
before=$(stats .origin.requests)
# shellcheck disable=SC2012 # this tests what ls -l shows
seen=$(ls -l "$MNT" | awk 'NR > 1 {print $5}' | tail -n 1)
equal "a second ls -l has the sizes" 5995 "$seen"
equal "a second ls -l makes no request" "$before" "$(stats .origin.requests)"
