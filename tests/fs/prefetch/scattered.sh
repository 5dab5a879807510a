#!/usr/bin/env bash
# A file whose scattered readers wait again and again is fetched as a whole, once, and into free room only.
. "$(dirname "$0")/../../lib.sh"
requires mount nginx

MB=1048576
mkdir -p "$T/www" "$T/link"
for name in model other kept named; do
	random_file "$T/www/$name.bin" $((48 * MB))
done
start_nginx
echo 0.02 >"$T/link/delay"
python3 "$top_srcdir/tests/fs/reads/narrow_link.py" "$T/link" "${ORIGIN#http://}" &
check "a far origin is there" wait_until 10 test -s "$T/link/port"
FAR=http://127.0.0.1:$(<"$T/link/port")/json

cat >"$T/scattered.py" <<'PYTHON'
"""scattered.py FILE ORIGINAL N [STAY]: reads N pages here and there through a mapping, as a program that maps a model
does; compares them; with STAY keeps the file open for that many seconds."""
import mmap
import random
import sys
import time

with open(sys.argv[1], "rb") as f, open(sys.argv[2], "rb") as g:
    mapping = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)
    mapping.madvise(mmap.MADV_RANDOM)
    places = random.Random(7).sample(range(len(mapping) // 65536), int(sys.argv[3]))
    for place in places:
        g.seek(place * 65536)
        if mapping[place * 65536:place * 65536 + 4096] != g.read(4096):
            sys.exit("a page differs")
    time.sleep(float(sys.argv[4]) if len(sys.argv) > 4 else 0)
PYTHON
scattered() { python3 "$T/scattered.py" "$MNT/$1.bin" "$T/www/$1.bin" "${@:2}"; } # NAME N [STAY]
fetched() { origin_bytes "/json/$1.bin"; }
is_whole() { (($(fetched "$1") == 48 * MB)); }

mount_penstock "$FAR/" --cache-size 1G
check "a few scattered reads" scattered model 7 0.5
check "do not fetch the file" test "$(fetched model)" -le $((8 * 65536))
check "many scattered reads are right" scattered model 60 5
check "and the whole file was fetched, each byte once" is_whole model

check "the file is evicted" penstock evict "$MNT" model.bin
origin_forget
check "scattered reads of an evicted file are right" scattered model 60 0.5
check "and it is not fetched as a whole again" test "$(fetched model)" -le $((61 * 65536))

penstock plan "$MNT" --job test <<<other.bin >"$T/plan.out" &
plan=$!
check "a plan begins" wait_until 20 is_whole other
check "a file of a dataset with plans is read" scattered kept 60 0.5
check "and not fetched as a whole" test "$(fetched kept)" -le $((61 * 65536))
kill "$plan"
wait "$plan" || true
umount_penstock

# The file is more than a quarter of the cache: it has no room of its own.
CACHE=$T/small
origin_forget
mount_penstock "$FAR/" --cache-size 80M
check "another file fills the cache" cmp "$MNT/other.bin" "$T/www/other.bin"
check "a file without room is read" scattered kept 60 0.5
check "and not fetched as a whole" test "$(fetched kept)" -le $((61 * 65536))
umount_penstock

CACHE=$T/options
origin_forget
mount_penstock "$FAR/" --cache-size 1G --whole none
check "with --whole none, scattered reads are right" scattered model 60 0.5
check "and fetch nothing else" test "$(fetched model)" -le $((61 * 65536))
umount_penstock
CACHE=$T/options2
origin_forget
mount_penstock "$FAR/" --cache-size 1G --whole '*named*'
check "one read of a file that --whole names" scattered named 1 5
check "fetches the whole file" wait_until 10 is_whole named
check "one read of another" scattered model 1 0.5
check "does not" test "$(fetched model)" -le $((2 * 65536))
umount_penstock
CACHE=$T/options3
origin_forget
mount_penstock "$FAR/" --cache-size 40M --whole '*named*'
check "one read of such a file that the cache cannot hold" scattered named 1 5
check "fetches nothing else" test "$(fetched named)" -le $((2 * 65536))
umount_penstock
