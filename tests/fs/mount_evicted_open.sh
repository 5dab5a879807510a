#!/usr/bin/env bash
# The room of a file that was evicted while the kernel reads it for programs counts until the last of them has
# closed it, also if the one for whom it was opened first has gone.
. "$(dirname "$0")/../lib.sh"
requires mount nginx

mkdir -p "$T/www"
random_file "$T/www/f.bin" 8000000
start_nginx
mount_penstock "$ORIGIN/"
[[ $(stats .passthrough.active) == true ]] || skip_all "the kernel passes nothing through here"
cat "$MNT/f.bin" >/dev/null
check "is passed through" wait_until 20 "$BASH" \
	-c "[[ \$(getfattr -n user.penstock.state --only-values '$MNT/f.bin') == cached ]]"
exec 7<"$MNT/f.bin"
equal "by one" 1 "$(stats .passthrough.open)"
check "is evicted" penstock evict "$MNT" f.bin
exec 8<"$MNT/f.bin"
equal "by two" 2 "$(stats .passthrough.open)"
exec 7<&-
check "the first has gone" wait_until 20 jq -e ".passthrough.open == 1" "$MNT/.penstock/stats"
at_least "its room counts" 8000000 "$(stats .cache.held_bytes)"
check "the second reads on" cmp /dev/fd/8 "$T/www/f.bin"
exec 8<&-
check "then it is free" wait_until 20 jq -e ".cache.held_bytes == 0" "$MNT/.penstock/stats"
