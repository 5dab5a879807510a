#!/usr/bin/env bash
# --members with hostile names of members: each is shown, or hidden and counted, and no name or link leads out
# of its shard.
. "$(dirname "$0")/../lib.sh"
requires mount jq python3

mkdir -p "$T/src" "$T/other"
check "the tars are written" "$python" "$top_srcdir/tests/fs/make_members.py" make "$T/src"
echo "not for readers" >"$T/outside"
mount_penstock "$T/src" --members
check "each member is shown, or hidden, as it should be" \
	"$python" "$top_srcdir/tests/fs/make_members.py" compare "$MNT"
equal "the hidden members are counted" "$("$python" "$top_srcdir/tests/fs/make_members.py" hidden)" \
	"$(stats .mounts[0].members.hidden)"
check "penstock status says why the first is hidden" grep -q \
	'^  hidden    42 members; the first: .*: ' <(penstock status "$MNT")
check_not "no link leads to a file outside of its shard" grep -rqs "not for readers" "$MNT"
check_not "a name of more than 255 bytes is not found" stat "$MNT/names/$(printf 'n%.0s' {1..256})"
equal "a link to a link shows a path without links" data/a "$(readlink "$MNT/links/sym-of-sym")"
equal "the size of a link is the length of its target" 6 "$(stat -c %s "$MNT/links/sym-of-sym")"
equal "a hard link is a file of its own with the same bytes" "1 AAA" \
	"$(stat -c %h "$MNT/links/hard") $(cat "$MNT/links/hard")"
