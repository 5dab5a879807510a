#!/usr/bin/env bash
# Shards that are damaged, declare wrong sizes or are too large give a clean error with the reason, and never
# wrong bytes. Other shards are served.
. "$(dirname "$0")/../../lib.sh"
requires mount zstd slow

"$python" "$top_srcdir/tests/fs/compressed/make_compressed.py" "$T/good" "$T/plain" 3000000
mkdir -p "$T/www"
"$python" - "$T/good" "$T/www" <<-'PYTHON'
	import struct, subprocess, sys
	good, out = sys.argv[1:]
	def read(name): return open(f"{good}/{name}", "rb").read()
	def write(name, data): open(f"{out}/{name}", "wb").write(data)
	def flip(data, at): return data[:at] + bytes([data[at] ^ 0x40]) + data[at + 1 :]
	for form in ("one.tar.zst", "piped.tar.zst", "frames.tar.zst", "seekable.tar.zst", "plain.tar.gz"):
	    data = read(form)
	    end = ".tar." + form.split(".")[-1]
	    kind = form.split(".")[0]
	    write(f"{kind}-flipped{end}", flip(data, len(data) * 2 // 3))
	    write(f"{kind}-cut{end}", data[: len(data) * 2 // 3])
	    write(f"{kind}-garbage{end}", data + b"garbage that is no frame")
	one = read("one.tar.zst")
	# The header's content size (4 bytes, after magic, descriptor and perhaps window) is less, or more,
	# than the frame holds.
	at = 6 if not one[4] & 0x20 else 5
	size = struct.unpack_from("<I", one, at)[0]
	assert size == 3000000
	for name, lie in (("less", size - 1), ("far-less", 1000000), ("more", size + 1), ("much-more", 1 << 30)):
	    write(f"says-{name}.tar.zst", one[:at] + struct.pack("<I", lie) + one[at + 4 :])
	# A seek table with a frame that holds more than it says, and the next one less.
	seek = bytearray(read("seekable.tar.zst"))
	frames = struct.unpack_from("<I", seek, len(seek) - 9)[0]
	table = len(seek) - 9 - 8 * frames
	for frame, by in ((0, -1000), (1, 1000)):
	    plain = struct.unpack_from("<I", seek, table + 8 * frame + 4)[0]
	    struct.pack_into("<I", seek, table + 8 * frame + 4, plain + by)
	write("table-lies.tar.zst", bytes(seek))
	write("not-zstd.tar.zst", b"this is no zstd file, by no means" * 100)
	write("not-gzip.tar.gz", b"this is no gzip file, by no means" * 100)
	write("short.tar.gz", b"no")
	write("nothing.tar.zst", b"")
	write("nothing-at-all.tar.gz", b"")
	zeros = subprocess.run("head -c 3G /dev/zero | zstd -q -c", shell=True, stdout=subprocess.PIPE, check=True).stdout
	write("bomb.tar.zst", zeros)
	open(f"{out}/good.tar.zst", "wb").write(one)
PYTHON

check "mounts" mount_penstock "$T/www/" --cache-size 256M
for packed in "$T"/www/*; do
	name=${packed##*/}
	name=${name%.*}
	[[ $name != good.tar ]] || continue
	rc=0
	timeout 60 cat "$MNT/$name" >"$T/read" 2>"$T/error" || rc=$?
	equal "$name: reading fails" 1 "$rc"
	check "$name: bytes before the error are right" cmp -n "$(stat -c %s "$T/read")" "$T/read" \
		"$T/plain/one.tar"
	check "$name: not all bytes are read" [ "$(stat -c %s "$T/read")" -lt 3000000 ]
	check "$name: the log has the reason" grep \
		-q "${packed##*/}: at offset [0-9]* ([0-9]* when decoded): " "$T/penstock.log"
	check "$name: the file's attribute has the reason" \
		grep -q "${packed##*/}: at offset [0-9]* ([0-9]* when decoded): " \
		<<<"$(getfattr --absolute-names --only-values -n user.penstock.error "$MNT/$name" 2>&1)"
	at_most "$name: the cache is within its quota" 268435456 "$(stats .cache.used_bytes)"
done
for reason in "not-gzip.tar.gz: .*not in the gzip format" "short.tar.gz: .*not in the gzip format" \
	"plain-garbage.tar.gz: .*garbage after its end" "nothing-at-all.tar.gz: .*it is empty" \
	"nothing.tar.zst: .*it is empty" \
	"table-lies.tar.zst: .*a frame ends where the table of frames has no end" \
	"says-far-less.tar.zst: .*its header declares 1000000 bytes, but it holds"; do
	check "the log says $reason" grep -q "$reason" "$T/penstock.log"
done
check "the log says what is wrong with the bomb" grep -q 'bomb.tar.zst: .*more than the cache' \
	"$T/penstock.log"
check "the attribute of a flipped shard has the reason" grep \
	-q 'damaged' <<<"$(getfattr --absolute-names --only-values -n user.penstock.error "$MNT/one-flipped.tar")"
equal "a file that cannot be decoded has the size 0" 0 "$(stat -c %s "$MNT/not-gzip.tar")"
rc=0
penstock warm "$MNT" not-gzip.tar >"$T/warm" 2>&1 || rc=$?
check "warm of that file fails" [ "$rc" -ne 0 ]
check "warm reports the reason" grep -qi "not-gzip.tar: .*gzip" "$T/warm"
check_not "warm does not report the error code alone" grep -q "Input/output error" "$T/warm"
check "the statistics have the last error" grep -q 'when decoded' <<<"$(stats .origin.last_error)"
check "a good shard is served" cmp "$MNT/good.tar" "$T/plain/one.tar"
check "frames before a damaged one can be read" cmp -n 700000 "$MNT/seekable-flipped.tar" "$T/plain/one.tar"
umount_penstock
check "verify finds no error in the cache" penstock verify --cache-dir "$CACHE"
