#!/usr/bin/env bash
# Two readers of one cold shard cost the origin its bytes once, to 1 %.
. "$(dirname "$0")/../lib.sh"
requires mount nginx

mkdir -p "$T/www"
random_file "$T/www/big.tar" 40000000
sha_manifest "$T/www" >"$T/manifest"
start_nginx

# /limit/ gives each request 20 MB/s, so both readers are at work for a while.
mount_penstock "$ORIGIN/limit/"
origin_forget
check "two readers side by side" read_tree 1m "$MNT" 2
at_most "cost the origin the file once" 40400000 "$(origin_bytes)"
at_least "and no less" 40000000 "$(origin_bytes)"
umount_penstock

CACHE=$T/cache2
mount_penstock "$ORIGIN/limit/"
origin_forget
check "sixteen readers in random order" read_tree random "$MNT" 16
at_most "cost the origin the file once, too" 40400000 "$(origin_bytes)"
