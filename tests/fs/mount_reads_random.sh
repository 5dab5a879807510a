#!/usr/bin/env bash
# Every file read by scattered preads of odd sizes is the origin's: cold, warm, after a restart.
. "$(dirname "$0")/../lib.sh"
requires mount nginx

make_tree "$T/www"
start_nginx
check "mounts" mount_penstock "$ORIGIN/"
check "cold" read_tree random
drop_page_cache
check "from the cache's files" read_tree random
umount_penstock
mount_penstock "$ORIGIN/"
check "after a restart" read_tree random
