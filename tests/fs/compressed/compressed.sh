#!/usr/bin/env bash
# Compressed shards of every form are shown with their decoded bytes and size; --raw shows them as they are.
. "$(dirname "$0")/../../lib.sh"
requires mount nginx zstd

"$python" "$top_srcdir/tests/fs/compressed/make_compressed.py" "$T/www" "$T/plain"
for packed in one.tar.zst piped.tar.zst frames.tar.zst seekable.tar.zst; do
	equal "zstd decodes $packed to the plain bytes" "$(sha256sum <"$T/plain/one.tar")" \
		"$(zstd -dqc "$T/www/$packed" | sha256sum)"
done
sha_manifest "$T/plain" >"$T/manifest"
start_nginx

check "a mount of compressed shards succeeds" mount_penstock "$ORIGIN/"
origin_forget
equal "the names are those of the decoded files" "$(cd "$T/plain" && find . -type f | sort)" \
	"$(cd "$MNT" && find . -type f | sort)"
equal "listing fetches no data" 0 "$(origin_bytes)"
equal "the sizes are those of the decoded files" "$(cd "$T/plain" && stat -c '%n %s' -- *)" \
	"$(cd "$MNT" && stat -c '%n %s' -- *)"
check "the bytes are those of the decoded files" read_tree 1m
# Shards whose sizes had to be found by decoding were fetched once; of the others, headers or tables were
# fetched twice.
at_most "each shard was fetched once" \
	$(($(du -bc "$T"/www/* | tail -n 1 | cut -f 1) + 14 * 160000)) "$(origin_bytes)"
# A read may touch the ends of two frames, and need both; nothing else is decoded again.
at_most "each shard was decoded once" $(($(du -bc "$T"/plain/*.tar | tail -n 1 | cut -f 1) * 105 / 100)) \
	"$(stats .inflate.plain_bytes)"
equal "the attribute url is the shard's URL" "$ORIGIN/one.tar.zst" \
	"$(getfattr --absolute-names --only-values -n user.penstock.url "$MNT/one.tar")"
equal "the attribute encoding of a .zst shard" \
	zstd "$(getfattr --absolute-names --only-values -n user.penstock.encoding "$MNT/one.tar")"
equal "the attribute encoding of a .tgz shard" \
	gzip "$(getfattr --absolute-names --only-values -n user.penstock.encoding "$MNT/members.tar")"
equal "a file that is shown as it is has no encoding" "" \
	"$(getfattr --absolute-names --only-values -n user.penstock.encoding "$MNT/notes.json.gz")"
equal "the attribute state is cached" \
	cached "$(getfattr --absolute-names --only-values -n user.penstock.state "$MNT/one.tar")"
check "random reads get the same bytes" read_tree random
umount_penstock
check "the checksums of what is cached are right" penstock verify --cache-dir "$CACHE"

# Sizes are remembered, and decoded bytes are in the cache.
check "a second mount succeeds" mount_penstock "$ORIGIN/"
origin_forget
equal "a second mount has the sizes" \
	"$(cd "$T/plain" && stat -c '%n %s' -- *)" "$(cd "$MNT" && stat -c '%n %s' -- *)"
check "a second mount has the bytes" read_tree 1m
equal "a second mount fetches nothing" 0 "$(origin_bytes)"
check "evict takes the shown name" penstock evict "$MNT" one.tar
equal "the evicted file is not cached" \
	remote "$(getfattr --absolute-names --only-values -n user.penstock.state "$MNT/one.tar")"
check "warm fetches the evicted file" penstock warm -q "$MNT" one.tar
equal "the warmed file is cached" \
	cached "$(getfattr --absolute-names --only-values -n user.penstock.state "$MNT/one.tar")"
umount_penstock
check "evict --cache-dir takes the shard's name" penstock evict --cache-dir "$CACHE" 'piped.tar.zst'

CACHE=$T/cache-raw
check "a mount with -o raw succeeds" mount_penstock "$ORIGIN/" -o raw
sha_manifest "$T/www" >"$T/manifest"
check "-o raw shows the shards' own bytes" read_tree 1m
equal "-o raw shows the shards' own names" \
	"$(cd "$T/www" && find . -type f | sort)" "$(cd "$MNT" && find . -type f | sort)"
umount_penstock
CACHE=$T/cache
check "--raw mounts on the cache that has the decoded bytes" mount_penstock "$ORIGIN/" --raw
check "--raw shows the shards' own bytes" read_tree 1m
