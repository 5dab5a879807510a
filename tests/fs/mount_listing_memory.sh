#!/usr/bin/env bash
# A listing takes little memory: 64 MiB and 100 bytes a file at most, however long the page is.
. "$(dirname "$0")/../lib.sh"
requires mount nginx

files=50000
mkdir -p "$T/www/page"
"$python" - "$T/www/page/index.html" $files <<'PY'
import sys

with open(sys.argv[1], "w") as f:
    f.write("[\n")
    for i in range(int(sys.argv[2])):
        f.write(("," if i else "") + f'{{"name":"{"a-long-name-" * 8}{i:06d}.tar","type":"file","size":7,'
                f'"mtime":"Sat, 21 Nov 2026 16:41:00 GMT","note":"{"x" * 1400}"}}\n')
    f.write("]\n")
PY
start_nginx
mount_penstock "$ORIGIN/page/"
pid=$(stats .pid)
equal "all are there" $files "$(stats '.mounts[0].files')"
if ldd "$top_builddir/penstock" 2>/dev/null | grep -Eq 'lib[at]san'; then
	skip "memory" "a sanitizer has its own"
else
	at_most "peak memory (KiB), of a page of $(stat -c %s "$T/www/page/index.html") bytes" \
		$((64 * 1024 + files * 100 / 1024)) "$(awk '/^VmHWM:/ {print $2}' "/proc/$pid/status")"
fi
umount_penstock
