#!/usr/bin/env bash
# A file that is evicted while programs have it open by passthrough counts in the quota until the last program
# has closed it, also after the first one has.
. "$(dirname "$0")/../../lib.sh"
requires mount nginx

mkdir -p "$T/www"
random_file "$T/www/f.bin" 8000000
start_nginx
mount_penstock "$ORIGIN/"
[[ $(stats .passthrough.active) == true ]] || skip_all "there is no passthrough here"
cat "$MNT/f.bin" >/dev/null
check "the file is cached" wait_until 20 "$BASH" \
	-c "[[ \$(getfattr -n user.penstock.state --only-values '$MNT/f.bin') == cached ]]"
exec 7<"$MNT/f.bin"
equal "one descriptor is passed through" 1 "$(stats .passthrough.open)"
check "the file is evicted" penstock evict "$MNT" f.bin
exec 8<"$MNT/f.bin"
equal "two descriptors are passed through" 2 "$(stats .passthrough.open)"
exec 7<&-
check "the first descriptor is closed" wait_until 20 jq -e ".passthrough.open == 1" "$MNT/.penstock/stats"
at_least "the evicted file counts as held" 8000000 "$(stats .cache.held_bytes)"
check "the second descriptor can be read" cmp /dev/fd/8 "$T/www/f.bin"
exec 8<&-
check "the room is free when the last descriptor is closed" \
	wait_until 20 jq -e ".cache.held_bytes == 0" "$MNT/.penstock/stats"
