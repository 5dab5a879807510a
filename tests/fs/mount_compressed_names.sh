#!/usr/bin/env bash
# Names: where an x.tar stands beside an x.tar.zst, a thousand compressed shards, a shard that changes.
. "$(dirname "$0")/../lib.sh"
requires mount zstd

mkdir -p "$T/www/sub"
random_file "$T/www/both.tar" 5000
random_file "$T/one" 7000
zstd -qc "$T/one" >"$T/www/both.tar.zst"
zstd -qc "$T/one" >"$T/www/sub/both.tar.zst"
gzip -c "$T/one" >"$T/www/sub/both.tar.gz"
zstd -qc "$T/one" >"$T/www/only.tar.zst"
check "mounts" mount_penstock "$T/www/" --revalidate open
check "a file that is there keeps its name" cmp "$MNT/both.tar" "$T/www/both.tar"
check "and the compressed one is shown as it is" cmp "$MNT/both.tar.zst" "$T/www/both.tar.zst"
check "which the log says" grep -q 'both.tar.*: shown as it is' "$T/penstock.log"
equal "two compressed ones: one is shown as what it holds" 2 "$(find "$MNT/sub" -type f | wc -l)"
check "whichever" cmp "$MNT/sub/both.tar" "$T/one"
check "others are not concerned" cmp "$MNT/only.tar" "$T/one"
ls -i "$MNT" >"$T/numbers"
umount_penstock
check "mounts again" mount_penstock "$T/www/" --revalidate open
equal "with the same names and numbers" "$(cat "$T/numbers")" "$(ls -i "$MNT")"

# Another version of a shard is another file, with another size.
random_file "$T/two" 90000
zstd -qc "$T/two" >"$T/new" && mv "$T/new" "$T/www/only.tar.zst"
check "a shard that changed" wait_until 10 cmp "$MNT/only.tar" "$T/two"
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
check "mounts a thousand" mount_penstock "$T/many/"
# shellcheck disable=SC2012 # what ls -l shows is what is tested
seen=$(ls -l "$MNT" | awk 'NR > 1 {print $5}' | tr '\n' ' ')
equal "ls -l has the sizes" "$(for ((i = 0; i < 1000; i++)); do printf '%d ' $((1000 + 5 * i)); done)" "$seen"
before=$(stats .origin.requests)
# shellcheck disable=SC2012 # what ls -l shows is what is tested
seen=$(ls -l "$MNT" | awk 'NR > 1 {print $5}' | tail -n 1)
equal "and again" 5995 "$seen"
equal "without the origin" "$before" "$(stats .origin.requests)"
