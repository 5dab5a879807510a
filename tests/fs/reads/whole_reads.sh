#!/usr/bin/env bash
# Complete files that are not passed through: a thread that reads in pieces of 512 KiB and more reads its next
# files direct; all other threads read through the page cache.
. "$(dirname "$0")/../../lib.sh"
requires mount root jq

mkdir -p "$T/www"
for i in {1..6}; do
	random_file "$T/www/$i.bin" 12000001 "$i"
done
mount_penstock "$T/www" --no-passthrough
check "all is cached" timeout 60 penstock warm -q "$MNT"
opens() { stats '.mounts[0].modes | "\(.direct.opens) \(.cached.opens)"'; }
[[ $(cat "/sys/class/bdi/$(stat -c '%Hd:%Ld' "$MNT")/read_ahead_kb" 2>/dev/null) == 4096 ]] ||
	skip_all "the mount's read-ahead is not raised"

# opened WHAT BYTES COUNTS: one thread reads all files in pieces of BYTES. COUNTS: how many it has opened
# direct, and through the page cache.
opened() {
	drop_page_cache
	local before after
	before=$(opens)
	check "$1: the bytes are right" "$python" - "$2" "$MNT" "$T/www" <<'PY'
import os, sys
block, mnt, www = int(sys.argv[1]), *sys.argv[2:]
for i in range(1, 7):
    want, at = open(f"{www}/{i}.bin", "rb").read(), 0
    fd = os.open(f"{mnt}/{i}.bin", os.O_RDONLY)
    while piece := os.pread(fd, block, at):
        assert piece == want[at:at + len(piece)], (i, at)
        at += len(piece)
    assert at == len(want), i
    os.close(fd)
PY
	after=$(opens)
	equal "$1: direct, cached" "$3" "$((${after% *} - ${before% *})) $((${after#* } - ${before#* }))"
}
opened "reads of 1 MiB" 1048576 "5 1"
opened "reads of 128 KiB, a size that shows only in the second file" 131072 "1 5"
opened "reads of 10 KiB" 10240 "0 6"
before=$(opens)
for i in {1..6}; do
	check "a program of its own for file $i gets the right bytes" cmp "$MNT/$i.bin" "$T/www/$i.bin"
done
direct() { stats .mounts[0].modes.direct.opens; }
equal "a thread that was not seen before reads through the page cache" "${before% *}" "$(direct)"
before=$(direct)
check "maps after large reads are right" "$python" - "$MNT" "$T/www" <<'PY'
import mmap, os, sys
mnt, www = sys.argv[1:]
for turn in range(3):
    for i in range(1, 7):
        want = open(f"{www}/{i}.bin", "rb").read()
        fd = os.open(f"{mnt}/{i}.bin", os.O_RDONLY)
        if turn == 0:
            assert b"".join(iter(lambda: os.read(fd, 1 << 20), b"")) == want
        else:
            assert mmap.mmap(fd, 0, prot=mmap.PROT_READ)[:] == want
        os.close(fd)
PY
at_most "and soon cached: at most 8 files of 18 are direct" $((before + 8)) "$(direct)"
umount_penstock

for how in direct cached; do
	mount_penstock "$T/www" --no-passthrough --cold-reads "$how"
	opened "reads of 1 MiB with --cold-reads $how" 1048576 "0 6"
	umount_penstock
done
