#!/usr/bin/env bash
# Compressed shards of every form are shown as what they hold, with its size; --raw shows them as they are.
. "$(dirname "$0")/../lib.sh"
requires mount nginx zstd

"$python" "$top_srcdir/tests/fs/make_compressed.py" "$T/www" "$T/plain"
for packed in one.tar.zst piped.tar.zst frames.tar.zst seekable.tar.zst; do
	equal "$packed is made as zstd reads it" "$(sha256sum <"$T/plain/one.tar")" \
		"$(zstd -dqc "$T/www/$packed" | sha256sum)"
done
sha_manifest "$T/plain" >"$T/manifest"
start_nginx

check "mounts" mount_penstock "$ORIGIN/"
origin_forget
equal "the names are those of what they hold" "$(cd "$T/plain" && find . -type f | sort)" \
	"$(cd "$MNT" && find . -type f | sort)"
equal "to list them asks the origin for no data" 0 "$(origin_bytes)"
equal "their sizes are right" "$(cd "$T/plain" && stat -c '%n %s' -- *)" \
	"$(cd "$MNT" && stat -c '%n %s' -- *)"
check "and their bytes" read_tree 1m
# Of those whose size had to be found out by decoding nothing came twice; of the others a header did, or a
# table.
at_most "each came once" $(($(du -bc "$T"/www/* | tail -n 1 | cut -f 1) + 14 * 160000)) "$(origin_bytes)"
# A read may touch the ends of two frames, and need both; nothing else is decoded again.
at_most "each was decoded once" $(($(du -bc "$T"/plain/*.tar | tail -n 1 | cut -f 1) * 105 / 100)) \
	"$(stats .inflate.plain_bytes)"
equal "the URL is the shard's" "$ORIGIN/one.tar.zst" \
	"$(getfattr --absolute-names --only-values -n user.penstock.url "$MNT/one.tar")"
equal "the encoding" zstd "$(getfattr --absolute-names --only-values -n user.penstock.encoding "$MNT/one.tar")"
equal "of another" gzip "$(getfattr --absolute-names --only-values -n user.penstock.encoding "$MNT/members.tar")"
equal "of a file that is shown as it is" "" \
	"$(getfattr --absolute-names --only-values -n user.penstock.encoding "$MNT/notes.json.gz")"
equal "the state" cached "$(getfattr --absolute-names --only-values -n user.penstock.state "$MNT/one.tar")"
check "a random reader gets the same" read_tree random
umount_penstock
check "the checksums of what is cached are right" penstock verify --cache-dir "$CACHE"

# What was found out is remembered, and what was decoded is in the cache.
check "mounts again" mount_penstock "$ORIGIN/"
origin_forget
equal "the sizes are known" "$(cd "$T/plain" && stat -c '%n %s' -- *)" "$(cd "$MNT" && stat -c '%n %s' -- *)"
check "and the bytes are there" read_tree 1m
equal "without the origin" 0 "$(origin_bytes)"
check "evict takes the shown name" penstock evict "$MNT" one.tar
equal "and it is gone" remote "$(getfattr --absolute-names --only-values -n user.penstock.state "$MNT/one.tar")"
check "warm brings it back" penstock warm -q "$MNT" one.tar
equal "whole" cached "$(getfattr --absolute-names --only-values -n user.penstock.state "$MNT/one.tar")"
umount_penstock
check "evict of the folder takes the shard's name" penstock evict --cache-dir "$CACHE" 'piped.tar.zst'

CACHE=$T/cache-raw
check "mounts as they are" mount_penstock "$ORIGIN/" -o raw
sha_manifest "$T/www" >"$T/manifest"
check "their own bytes" read_tree 1m
equal "their own names" "$(cd "$T/www" && find . -type f | sort)" "$(cd "$MNT" && find . -type f | sort)"
umount_penstock
CACHE=$T/cache
check "on the cache that had them decoded, too" mount_penstock "$ORIGIN/" --raw
check "their own bytes again" read_tree 1m
