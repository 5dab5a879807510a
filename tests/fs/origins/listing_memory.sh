#!/usr/bin/env bash
# A listing takes at most 64 MiB and 100 bytes a file of memory, however long the page or the manifest is.
. "$(dirname "$0")/../../lib.sh"
requires mount nginx

files=50000
mkdir -p "$T/www/page"
"$python" - "$T/www" $files <<'PY'
import os
import sys

long, count = "a-long-name-" * 8, int(sys.argv[2])
with open(sys.argv[1] + "/page/index.html", "w") as f:
    f.write("[\n")
    for i in range(count):
        f.write(("," if i else "") + f'{{"name":"{long}{i:06d}.tar","type":"file","size":7,'
                f'"mtime":"Sat, 21 Nov 2026 16:41:00 GMT","note":"{"x" * 1400}"}}\n')
    f.write("]\n")
# A manifest has no versions: its files are asked for, and must exist.
os.mkdir(sys.argv[1] + "/shards")
with open(sys.argv[1] + "/shard", "w") as f:
    f.write("a shard")
with open(sys.argv[1] + "/list.txt", "w") as f:
    for i in range(count):
        os.link(sys.argv[1] + "/shard", f"{sys.argv[1]}/shards/{i:06d}.tar")
        f.write(f"shards/{i:06d}.tar 7 # {'x' * 1500}\n")
PY
start_nginx
sed "s|^shards/|$ORIGIN/shards/|" "$T/www/list.txt" >"$T/local.txt"

# takes_little NAME SOURCE FILE: FILE is the text that is listed.
takes_little() {
	CACHE=$T/cache-$1
	mount_penstock "$2"
	equal "all files of a $1 are listed" $files "$(stats '.mounts[0].files')"
	if sanitized "$top_builddir/penstock"; then
		skip "memory of a $1" "a sanitizer takes memory of its own"
	else
		at_most "peak memory (KiB), of a $1 of $(stat -c %s "$3") bytes" \
			$((64 * 1024 + files * 100 / 1024)) \
			"$(awk '/^VmHWM:/ {print $2}' "/proc/$(stats .pid)/status")"
	fi
	umount_penstock
}
takes_little page "$ORIGIN/page/" "$T/www/page/index.html"
takes_little manifest "$ORIGIN/list.txt" "$T/www/list.txt"
takes_little local-manifest "@$T/local.txt" "$T/local.txt"
