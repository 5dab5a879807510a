#!/usr/bin/env bash
# Tables of members that are made from the indexes beside the shards are the same as those of a scan, and only
# the indexes and a few chunks are fetched.
. "$(dirname "$0")/../../lib.sh"
requires mount loader nginx jq zstd

W=$T/www
SHARDS=6
NBYTES=12000000

# entries: prints name, type and size of each shown file or folder, except for indexes.
entries() {
	(cd "$MNT" && find . -mindepth 1 -path ./.penstock -prune -o -name '*.psx' \
		-o -type d -printf '%p %y\n' -o -printf '%p %y %s %l\n' | sort)
}
# sums DIR: prints the checksum and the name of each file in DIR.
sums() {
	(cd "$1" && find . -type f -print0 | sort -z | xargs -0 -r sha256sum)
}
# like_tar SHARD: succeeds if the shard's folder has the files that tar extracts from the shard.
like_tar() {
	rm -rf "$T/x"
	mkdir "$T/x"
	tar xf "$W/$1.tar" -C "$T/x"
	diff <(sums "$T/x") <(sums "$MNT/$1")
}
# fresh WHAT [OPTION...]: checks that the source can be mounted, with an empty cache and log.
fresh() {
	CACHE=$(mktemp -d "$T/cache-XXXXXX")
	origin_forget
	: >"$T/penstock.log"
	check "$1" mount_penstock "$ORIGIN/json/" --members "${@:2}"
}
by_index() { stats .mounts[0].members.by_index; }

make_shards "$W" "$SHARDS" "$NBYTES"
start_nginx
size=$(cat "$W"/*.tar | wc -c)
fresh "a mount without indexes succeeds"
entries >"$T/scanned"
at_least "a mount without indexes shows members" 1000 "$(wc -l <"$T/scanned")"
equal "without indexes no table is made from an index" 0 "$(by_index)"
umount_penstock
at_least "without indexes all shards are fetched" "$size" "$(origin_bytes)"

check "indexes are made" penstock-loader index "$W"/*.tar
fresh "a mount with indexes succeeds"
check "a mount with indexes shows the same names" diff "$T/scanned" <(entries)
equal "all tables are made from indexes" "$SHARDS" "$(by_index)"
equal "no index is refused" "" "$(grep 'cannot be used' "$T/penstock.log")"
# For each shard, its index and at most three chunks are fetched: the first, and one or two with its last
# member and its end.
most=$(($(cat "$W"/*.psx | wc -c) + SHARDS * 3 * 65536 + 10000))
at_most "only the indexes and a few chunks are fetched" "$most" "$(origin_bytes)"
check "the members of the first shard have the bytes of the tar" like_tar shard-000000
check "the members of the last shard have the bytes of the tar" like_tar shard-000005
equal "members have the time of their shard" "$(stat -c %Y "$W/shard-000000.tar")" \
	"$(stat -c %Y "$MNT/shard-000000/s000-000000.cls")"
entries >"$T/entries"
umount_penstock
check "a second mount on that cache succeeds" mount_penstock "$ORIGIN/json/" --members
check "the second mount shows the same names" diff "$T/entries" <(entries)
umount_penstock

# Shards whose index lists all members (yes-*), and shards whose index is refused (no-*): it lacks members, is
# damaged or old, or belongs to another shard. The mount shows what a scan shows.
W=$T/www/cases
mkdir -p "$W" "$T/www/plain"
"$python" - "$W" <<-'PYTHON'
	import io, os, random, sys, tarfile
	os.chdir(sys.argv[1])
	rng = random.Random(1)
	def info(name, kind=tarfile.REGTYPE, link="", size=0):
	    i = tarfile.TarInfo(name)
	    i.type, i.linkname, i.size, i.mtime = kind, link, size, 1_600_000_000
	    return i
	def make(name, members, format=tarfile.GNU_FORMAT):
	    with tarfile.open(name, "w", format=format) as t:
	        for m in members:
	            if isinstance(m, tarfile.TarInfo):
	                t.addfile(m)
	            else:
	                t.addfile(info(m[0], size=len(m[1])), io.BytesIO(m[1]))
	def samples(n, suffixes=("jpg", "cls"), folder="", most=3000):
	    names = ["%s%05d.%s" % (folder, i, s) for i in range(n) for s in suffixes]
	    return [(name, rng.randbytes(rng.randrange(most))) for name in names]
	s = samples(100)
	make("yes-plain.tar", s)
	make("yes-pax.tar", samples(50, folder="p/" * 80) + [("\u00e9/\u00fc.x.y", b"1")], tarfile.PAX_FORMAT)
	make("yes-long.tar", samples(50, folder="l/" * 100), tarfile.GNU_FORMAT)
	make("yes-deep.tar", samples(50, folder="./A/b.c/d/"))
	make("yes-empty.tar", [])
	make("yes-one.tar", [("a.b", b"")])
	make("yes-twice.tar", s[:20] + [("00003.cls", b"again")] + s[30:40])
	make("yes-stands-in-the-way.tar", [("a.b", b"1"), ("a.b/c.d", b"2")])
	make("yes-hidden.tar", s[:10] + [("x/../y.z", b"hidden")])
	make("yes-bytes.tar", [("\udcff\udcfe.x", b"1")])
	odd = {
	    "folder": info("f", tarfile.DIRTYPE),
	    "link": info("l.jpg", tarfile.SYMTYPE, "00001.jpg"),
	    "hard": info("h.jpg", tarfile.LNKTYPE, "00001.jpg"),
	    "fifo": info("f.p", tarfile.FIFOTYPE),
	    "none": ("README", b"text"),
	    "empty": ("E", b""),
	    "tools": ("__x__/y.json", b"1"),
	    "capital": ("b.JPG", b"1"),
	    "bad": ("b.__bad__", b"1"),
	}
	for name, m in odd.items():
	    for where, at in {"begin": 0, "within": 41, "between": 42, "end": len(s)}.items():
	        if name != "hard" or at:
	            make("no-%s-%s.tar" % (name, where), s[:at] + [m] + s[at:])
	make("no-many-members.tar", s + [("many.%d" % i, b"%d" % i) for i in range(70)])
	make("no-field-twice.tar", s[:3] + [s[2]] + s[3:])
	data = open("yes-plain.tar", "rb").read()
	with tarfile.open("yes-plain.tar") as t:
	    last = t.getmembers()[-1]
	end = last.offset_data + (last.size + 511 & -512)
	open("no-end.tar", "wb").write(data[:end])
	for name, tail in {"yes-end-one": 512, "yes-end-two": 1024, "yes-end-many": 99 * 512}.items():
	    open(name + ".tar", "wb").write(data[:end] + bytes(tail))
	open("yes-end-more.tar", "wb").write(data[:end] + bytes(1024) + data)
	for name in ("yes-zstd", "maybe-gzip", "no-zstd-damaged", "no-compressed-folder"):
	    other = open("no-folder-end.tar", "rb").read()
	    open(name + ".tar", "wb").write(other if name == "no-compressed-folder" else data)
	for name in ("no-damaged", "no-cut", "no-other", "no-nothing", "no-lines", "no-text", "no-older"):
	    open(name + ".tar", "wb").write(data)
	# The indexes are made from these no-stale-* tars. After that each is replaced by stale-*, which is as
	# long. All but stale-first begin with the same member as the tar that they replace.
	make("no-stale-end.tar", [("a.x", b"1"), ("b.x", bytes(600)), ("c.x", bytes(1200))])
	make("no-stale-name.tar", [("a.x", b"1"), ("b.x", bytes(600)), ("c.x", bytes(1200))])
	make("no-stale-more.tar", [("a.x", b"1"), ("b.x", bytes(600))])
	make("no-stale-first.tar", [("a.x", b"1"), ("b.x", bytes(600))])
	make("stale-end", [("a.x", b"1"), ("b.x", bytes(1200)), ("c.x", bytes(600))])
	make("stale-name", [("a.x", b"1"), ("b.x", bytes(600)), ("d.x", bytes(1200))])
	make("stale-more", [("a.x", b"1"), ("b.x", bytes(600)), ("c.x", b"")])
	make("stale-first", [("A.x", b"1"), ("b.x", bytes(600))])
	open("lines.jsonl", "w").write("{}\n{}\n")
PYTHON
mkdir "$T/dir"
cp -r "$top_srcdir/cache/members" "$T/dir"
tar cf "$W/no-of-tar.tar" -C "$T" dir
tar cf "$W/no-of-tar-files.tar" -C "$T/dir/members" . # "./" itself is a folder
zstd -q --rm "$W/yes-zstd.tar" "$W/no-zstd-damaged.tar" "$W/no-compressed-folder.tar"
gzip "$W/maybe-gzip.tar"
# The command fails, as some shards have bad samples.
penstock-loader index "$W"/*.tar "$W"/*.tar.* "$W/lines.jsonl" >"$T/index.out" 2>&1 || true
"$python" - "$W" <<-'PYTHON'
	import os, struct, sys
	os.chdir(sys.argv[1])
	def read(name):
	    with open(name, "rb") as f:
	        return bytearray(f.read())
	def write(name, data):
	    with open(name, "wb") as f:
	        f.write(data)
	def sum_of(before, data): # base/psx.h
	    mask, prime = 2**64 - 1, 0x9E3779B97F4A7C15
	    x = (before ^ len(data)) * prime & mask
	    for i in range(0, len(data) - 7, 8):
	        x = (x ^ struct.unpack_from("<Q", data, i)[0]) * prime & mask
	        x ^= x >> 29
	    x = (x ^ struct.unpack("<Q", data[len(data) // 8 * 8 :].ljust(8, b"\0"))[0]) * prime & mask
	    return x ^ x >> 32
	plain = read("yes-plain.tar.psx")
	for name in ("no-damaged.tar.psx", "no-zstd-damaged.tar.zst.psx"):
	    data = read(name)
	    data[len(data) // 2] ^= 4
	    write(name, data)
	write("no-cut.tar.psx", plain[:-8])
	write("no-other.tar.psx", read("yes-one.tar.psx"))
	write("no-nothing.tar.psx", b"")
	write("no-text.tar.psx", b"<html>not here</html>")
	for name in ("end", "name", "more", "first"):
	    os.rename("stale-" + name, "no-stale-" + name + ".tar")
	data = read("lines.jsonl.psx") # an index of text lines, with the sizes of this shard
	data[8:24] = plain[8:24]
	n = struct.unpack_from("<H", data, 44)[0]
	struct.pack_into("<Q", data, 56, sum_of(sum_of(0, data[:56]), data[64 : 96 + 32 * n]))
	write("no-lines.tar.psx", data)
	os.remove("lines.jsonl.psx")
	os.remove("lines.jsonl")
	data = read("no-older.tar.psx") # as older versions wrote an index
	assert data[46:48] == b"\3\0"
	data[46] = 0
	n = struct.unpack_from("<H", data, 44)[0]
	struct.pack_into("<Q", data, 56, sum_of(sum_of(0, data[:56]), data[64 : 96 + 32 * n]))
	write("no-older.tar.psx", data)
PYTHON
without=
# Each shard has a folder of its own, so that none is prefetched because another one was opened.
for shard in "$W"/*.tar "$W"/*.tar.gz "$W"/*.tar.zst; do
	name=${shard##*/}
	[[ -e $shard.psx ]] || without+=" $name"
	mkdir "$W/${name%%.tar*}" "$T/www/plain/${name%%.tar*}"
	ln "$shard" "$T/www/plain/${name%%.tar*}/"
	mv "$shard" "$shard.psx" "$W/${name%%.tar*}/"
done
equal "each shard has an index" "" "$without"

# mount_cases WHAT FOLDER: checks that FOLDER can be mounted, with an empty cache.
mount_cases() {
	CACHE=$(mktemp -d "$T/cache-XXXXXX")
	: >"$T/penstock.log"
	check "$1" mount_penstock "$ORIGIN/json/$2/" --members
}
mount_cases "a mount of these shards without their indexes succeeds" plain
entries >"$T/scanned"
equal "without these indexes no table is made from an index" 0 "$(by_index)"
umount_penstock
mount_cases "a mount of these shards with their indexes succeeds" cases
check "a mount of these shards with their indexes shows the same names" diff "$T/scanned" <(entries)
refused() {
	sed -n 's/.*members: .*\/\([^/]*\)\/[^/]*: the shard is read, because its index.*/\1/p' "$T/penstock.log" | sort
}
names() { find "$W" -mindepth 1 -maxdepth 1 -name "$1-*" -printf '%f\n' | sort; }
equal "indexes that lack members, are damaged or old, or belong to another shard, are refused" \
	"$(names no)" "$(refused)"
equal "all other indexes are used" "$(names yes | wc -l)" "$(by_index)"
check "members of a table from an index have the bytes of the tar" like_tar yes-plain/yes-plain
check "members in folders have the bytes of the tar" like_tar yes-deep/yes-deep
check "members with long names have the bytes of the tar" like_tar yes-pax/yes-pax
umount_penstock

# The index of an earlier version of the shard that agrees with both ends of the shard: no byte of another
# member is served.
mkdir -p "$T/www/stale"
swapped() {
	"$python" - "$1" "$2" "$3" <<'PY'
import io, sys, tarfile
with tarfile.open(sys.argv[1], "w", format=tarfile.USTAR_FORMAT) as tar:
    for name, size in ("a.jpg", 100), ("b.jpg", int(sys.argv[2])), ("c.jpg", int(sys.argv[3])), ("d.jpg", 100):
        info = tarfile.TarInfo(name)
        info.size = size
        tar.addfile(info, io.BytesIO(name[:1].encode() * size))
PY
}
swapped "$T/www/stale/x.tar" 1000 5000
check "the index is made" penstock-loader index "$T/www/stale/x.tar"
swapped "$T/www/stale/x.tar" 5000 1000
CACHE=$T/cache-stale
mount_penstock "$ORIGIN/json/stale/" --members
equal "a stale index that agrees with both ends of the shard is used" \
	"a.jpg b.jpg c.jpg d.jpg 1" "$(cd "$MNT/x" && echo * "$(by_index)")"
equal "a member that is where the index says is read" 100 "$(wc -c <"$MNT/x/d.jpg")"
check_not "a member that is not there is an error" cat "$MNT/x/c.jpg"
check "the log says what to do" grep -q "x.tar: the index beside the shard belongs to another version" "$T/penstock.log"
umount_penstock
mount_penstock "$ORIGIN/json/stale/" --members
equal "the next mount reads the shard instead" "100 5000 1000 100" \
	"$(cd "$MNT/x" && for f in *; do tr -cd "${f:0:1}" <"$f" | wc -c; done | xargs)"
umount_penstock

# The daemon ends although an open of a shard, or a read of an index, gets no answer.
making() { [[ $(stats .mounts[0].members.making) == 1 ]]; }
# ends_while_making WHAT [OPTION...]: mounts, and ends the daemon while the origin answers nothing.
ends_while_making() {
	CACHE=$(mktemp -d "$T/cache-XXXXXX")
	check "$1: mounts" mount_penstock "$ORIGIN/json/cases/" --members "${@:2}"
	kill -STOP "$worker"
	ls "$MNT/yes-plain/yes-plain" >/dev/null 2>&1 &
	check "$1: a table is being made" wait_until 10 making
	kill -TERM "$(daemon_pid)"
	check "$1: the daemon ends without waiting for the table" wait_until 10 no_daemon
	kill -CONT "$worker"
}
read -r worker <"/proc/$(cat "$T/nginx/nginx.pid")/task/$(cat "$T/nginx/nginx.pid")/children" || true
ends_while_making "reading the index"
ends_while_making "opening the shard" --revalidate open
