#!/usr/bin/env bash
# Every file read through mmap, with pages in random order, has the origin's bytes: cold, warm and after a
# restart.
. "$(dirname "$0")/../../lib.sh"
requires mount nginx

make_tree "$T/www"
start_nginx
check "the mount succeeds" mount_penstock "$ORIGIN/"
check "mappings of cold files have the right bytes" read_tree mmap
drop_page_cache
check "mappings of cached files have the right bytes" read_tree mmap
umount_penstock
mount_penstock "$ORIGIN/"
check "mappings have the right bytes after a restart" read_tree mmap
