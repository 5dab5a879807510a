#!/usr/bin/env bash
# Python's tarfile and zipfile read files of a mount, as a stream and at random.
. "$(dirname "$0")/../../lib.sh"
requires mount nginx

make_shards "$T/www" 2 2500000
"$python" -m zipfile -c "$T/www/z.zip" "$T/www/shard-000000.tar"
start_nginx
mount_penstock "$ORIGIN/"
compare() {
	"$python" - "$T/www" "$MNT" <<'PY'
import sys, tarfile, zipfile
www, mnt = sys.argv[1:]
for mode in "r:", "r|", "r:*":
    with tarfile.open(f"{www}/shard-000001.tar", "r:") as a, tarfile.open(f"{mnt}/shard-000001.tar", mode) as b:
        n = 0
        for x, y in zip(a, b, strict=True):
            assert (x.name, x.size) == (y.name, y.size), (x, y)
            assert a.extractfile(x).read() == b.extractfile(y).read(), x
            n += 1
        assert n > 10, n
with tarfile.open(f"{mnt}/shard-000000.tar") as b:
    for member in reversed(b.getmembers()):
        assert len(b.extractfile(member).read()) == member.size
with zipfile.ZipFile(f"{mnt}/z.zip") as z:
    assert z.testzip() is None
PY
}
check "tarfile and zipfile read the right bytes (cold)" compare
check "tarfile and zipfile read the right bytes (warm)" compare
