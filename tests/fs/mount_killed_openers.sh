#!/usr/bin/env bash
# A process that is killed while it opens a file holds nothing: the file can be evicted, and takes
# no room.
. "$(dirname "$0")/../lib.sh"
requires mount nginx
preload=$top_builddir/tests/fs/.libs/libpreload.so
[[ -e $preload ]] || skip_all "there is no $preload"
! sanitized "$top_builddir/penstock" || skip_all "a sanitizer wants to be the first library"

mkdir -p "$T/www"
random_file "$T/www/a.bin" 3000000 1
start_nginx
export PENSTOCK_TEST_KILL=$T/kill
LD_PRELOAD=$preload mount_penstock "$ORIGIN/" --no-passthrough
check "a file is read and cached" cmp "$MNT/a.bin" "$T/www/a.bin"
touch "$T/kill"
for i in {1..20}; do
	check_not "killed in open ($i)" head -c 1 "$MNT/a.bin"
done
rm "$T/kill"
equal "nobody has evicted data" 0 "$(stats .cache.held_bytes)"
check "it is evicted" penstock evict "$MNT" a.bin
equal "and its room is free: nobody holds it" 0 "$(stats .cache.held_bytes)"
check "it is read again" cmp "$MNT/a.bin" "$T/www/a.bin"
