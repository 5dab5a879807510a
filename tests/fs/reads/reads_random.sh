#!/usr/bin/env bash
# Every file read by random preads of odd sizes has the origin's bytes: cold, warm and after a restart.
. "$(dirname "$0")/../../lib.sh"
requires mount nginx

make_tree "$T/www"
start_nginx
check "the mount succeeds" mount_penstock "$ORIGIN/"
check "random reads of cold files have the right bytes" read_tree random
drop_page_cache
check "random reads of cached files have the right bytes" read_tree random
umount_penstock
mount_penstock "$ORIGIN/"
check "random reads have the right bytes after a restart" read_tree random
