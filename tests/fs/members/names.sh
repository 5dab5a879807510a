#!/usr/bin/env bash
# --members with hostile names of members: each is shown, or hidden and counted, and no name or link leads out
# of its shard.
. "$(dirname "$0")/../../lib.sh"
requires mount jq python3 getfattr

mkdir -p "$T/src" "$T/other"
check "the tars are written" "$python" "$top_srcdir/tests/fs/members/make_members.py" make "$T/src"
echo "not for readers" >"$T/outside"
mount_penstock "$T/src" --members
check "each member is shown, or hidden, as it should be" \
	"$python" "$top_srcdir/tests/fs/members/make_members.py" compare "$MNT"
equal "the hidden members are counted" "$("$python" "$top_srcdir/tests/fs/members/make_members.py" hidden)" \
	"$(stats .mounts[0].members.hidden)"
check "penstock status says why the first is hidden" grep -q \
	'^  hidden    42 members; the first: .*: ' <(penstock status "$MNT")
check_not "no link leads to a file outside of its shard" grep -rqs "not for readers" "$MNT"
check_not "a name of more than 255 bytes is not found" stat "$MNT/names/$(printf 'n%.0s' {1..256})"
equal "a link to a link shows a path without links" data/a "$(readlink "$MNT/links/sym-of-sym")"
equal "the size of a link is the length of its target" 6 "$(stat -c %s "$MNT/links/sym-of-sym")"
equal "a hard link is a file of its own with the same bytes" "1 AAA" \
	"$(stat -c %h "$MNT/links/hard") $(cat "$MNT/links/hard")"
umount_penstock

# Folders and links have the times that the tar gives them; a folder without a header has the shard's.
mkdir -p "$T/times/in" "$T/times-src"
echo x >"$T/times/in/file"
ln -s file "$T/times/in/link"
tar -C "$T/times" -cf "$T/times-src/t.tar" --mtime=@1500000000 in
tar -C "$T/times" -cf "$T/times-src/u.tar" --mtime=@1500000000 in/file
touch -d @1600000000 "$T/times-src"/*.tar
CACHE=$T/cache-times
mount_penstock "$T/times-src" --members
equal "a folder and a link have the times of the tar" "1500000000 1500000000" \
	"$(stat -c %Y "$MNT/t/in" "$MNT/t/in/link" | xargs)"
equal "a folder without a header has the time of the shard" 1600000000 "$(stat -c %Y "$MNT/u/in")"
umount_penstock

# What follows the end mark is not shown, as with tar; the shard's folder says so.
cat "$T/times-src/t.tar" "$T/times-src/u.tar" >"$T/times-src/joined.tar"
CACHE=$T/cache-joined
mount_penstock "$T/times-src" --members
equal "the members before the end mark are shown" "file link" "$(cd "$MNT/joined/in" && echo *)"
check "the folder's error says that more follows the end mark" grep -q \
	'after the end mark, at offset 10240, are not shown' \
	<(getfattr --absolute-names --only-values -n user.penstock.error "$MNT/joined")
equal "a shard that ends with its end mark has no error" "" \
	"$(getfattr --absolute-names --only-values -n user.penstock.error "$MNT/t" 2>/dev/null)"
