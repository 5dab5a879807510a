#!/usr/bin/env bash
# A mount shows the commit that its branch had when it was listed, also for files that are not fetched yet.
# The next mount shows the new commit and fetches only what has changed. Expired signed URLs are asked for
# again, once.
. "$(dirname "$0")/../../lib.sh"
. "$top_srcdir/tests/fs/origins/hub_lib.sh"
requires mount

start_hub
old=$(commit a) new=$(commit b)
for name in same changed; do random_file "$old/$name.tar" 9000000 "$name"; done
random_file "$old/gone.tar" 9000000
random_file "$new/same.tar" 9000000 same
random_file "$new/changed.tar" 9000000 other
random_file "$new/made.tar" 5000
point main a

mount_penstock hf://acme/shards
tell hold 3000000
exec 5<"$MNT/changed.tar"
head -c 2000000 <&5 >"$T/part"
check "the first part of a file is read" cmp "$T/part" <(head -c 2000000 "$old/changed.tar")
point main b
tell generation 1 # signed URLs have expired
forget hold
cat <&5 >>"$T/part"
exec 5<&-
check "the rest is of the same commit, though the branch has moved" cmp "$T/part" "$old/changed.tar"
check "a file that was not opened yet is of the same commit" cmp "$MNT/gone.tar" "$old/gone.tar"
check "a file that has not changed is right" cmp "$MNT/same.tar" "$old/same.tar"
at_least "an expired URL was refused" 1 "$(asked CDN GET changed.tar 403)"
equal "a new URL was asked for once" 2 "$(asked HUB HEAD /changed.tar)"
umount_penstock

forget requests.log
mount_penstock hf://acme/shards
equal "the next mount lists the new commit" "changed.tar made.tar same.tar" "$(cd "$MNT" && echo *)"
check "the changed file is the new one" cmp "$MNT/changed.tar" "$new/changed.tar"
check "the unchanged file is right" cmp "$MNT/same.tar" "$new/same.tar"
equal "the unchanged file was not fetched again" 0 "$(asked CDN GET same.tar)"
umount_penstock

# A URL that is always refused is an error and not a loop.
rm -rf "$CACHE"
mount_penstock hf://acme/shards
tell generation 2
cat "$MNT/made.tar" >/dev/null
forget requests.log
tell unsignable
check_not "a file that the CDN always refuses cannot be read" cat "$MNT/same.tar"
at_most "that file was asked for a few times only" 6 "$(asked HUB HEAD /same.tar)"
forget unsignable
check "the refused file is read once the CDN sends it" wait_until 20 cmp -s "$MNT/same.tar" "$new/same.tar"
tell shift x
check "another ETag of the CDN does not make another file" cmp "$MNT/changed.tar" "$new/changed.tar"
umount_penstock

# Requests that the CDN has not answered end with the mount.
rm -rf "$CACHE"
mount_penstock hf://acme/shards
tell hold 3000000
cat "$MNT/same.tar" >/dev/null &
reader=$!
waits() { (($(stats .reads.waiting) > 0)); }
check "a read waits for the CDN" wait_until 20 waits
kill "$reader"
wait "$reader" || true
start=$SECONDS
check "the mount ends when its reader has gone" umount_penstock
at_most "umount does not wait for the CDN (s)" 10 $((SECONDS - start))
