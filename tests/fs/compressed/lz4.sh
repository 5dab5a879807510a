#!/usr/bin/env bash
# x.tar.lz4 is shown as x.tar: frames of the lz4 program, several in a row, skippable ones among
# them; damage is EIO.
. "$(dirname "$0")/../../lib.sh"
requires mount nginx lz4 tar

make_shards "$T/plain" 3 3000000
mkdir "$T/www"
lz4 -qc -B4 -BD "$T/plain/shard-000000.tar" >"$T/www/one.tar.lz4"
lz4 -qc --content-size "$T/plain/shard-000000.tar" >"$T/www/sized.tar.lz4"
{
	head -c 1000000 "$T/plain/shard-000000.tar" | lz4 -qc
	printf '\x53\x2a\x4d\x18\x05\x00\x00\x00hello'
	tail -c +1000001 "$T/plain/shard-000000.tar" | lz4 -qc --no-frame-crc
} >"$T/www/frames.tar.lz4"
{ head -c 900000 "$T/www/one.tar.lz4"; printf 'damage'; tail -c +900007 \
	"$T/www/one.tar.lz4"; } >"$T/www/damaged.tar.lz4"
head -c 1000000 "$T/www/one.tar.lz4" >"$T/www/cut.tar.lz4"
{ cat "$T/www/one.tar.lz4"; echo garbage; } >"$T/www/garbage.tar.lz4"
echo '{}' | lz4 -qc >"$T/www/x.json.lz4"
start_nginx
check "a mount of .tar.lz4 shards succeeds" mount_penstock "$ORIGIN/"
equal "the names are those of the decoded files" \
	"cut.tar damaged.tar frames.tar garbage.tar one.tar sized.tar x.json.lz4" \
	"$(cd "$MNT" && echo *)"
for name in one sized frames; do
	equal "$name: the size is that of the decoded file" \
		"$(stat -c %s "$T/plain/shard-000000.tar")" "$(stat -c %s "$MNT/$name.tar")"
	check "$name: the bytes are those of the decoded file" \
		cmp "$MNT/$name.tar" "$T/plain/shard-000000.tar"
done
equal "the attribute encoding is lz4" \
	lz4 "$(getfattr --absolute-names --only-values -n user.penstock.encoding "$MNT/one.tar")"
for name in damaged cut garbage; do
	check_not "$name: a damaged shard cannot be read" cmp "$MNT/$name.tar" "$T/plain/shard-000000.tar"
done
