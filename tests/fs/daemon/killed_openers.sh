#!/usr/bin/env bash
# A process that is killed while it opens a file does not hold the file: it can be evicted, and its room is
# freed.
. "$(dirname "$0")/../../lib.sh"
requires mount nginx
preload=$top_builddir/tests/fs/daemon/.libs/libpreload.so
[[ -e $preload ]] || skip_all "$preload is not built"
! sanitized "$top_builddir/penstock" || skip_all "a sanitizer wants to be the first library"

mkdir -p "$T/www"
random_file "$T/www/a.bin" 3000000 1
start_nginx
export PENSTOCK_TEST_KILL=$T/kill
LD_PRELOAD=$preload mount_penstock "$ORIGIN/" --no-passthrough
check "a file is read and cached" cmp "$MNT/a.bin" "$T/www/a.bin"
touch "$T/kill"
for i in {1..20}; do
	check_not "an open fails as if its process was killed ($i)" head -c 1 "$MNT/a.bin"
done
rm "$T/kill"
equal "no evicted data is held before evict" 0 "$(stats .cache.held_bytes)"
check "the file is evicted" penstock evict "$MNT" a.bin
equal "no evicted data is held after evict" 0 "$(stats .cache.held_bytes)"
check "the file is read again" cmp "$MNT/a.bin" "$T/www/a.bin"
