#!/usr/bin/env bash
# Two readers of one cold shard fetch its bytes once, to within 1 %.
. "$(dirname "$0")/../../lib.sh"
requires mount nginx

mkdir -p "$T/www"
random_file "$T/www/big.tar" 40000000
sha_manifest "$T/www" >"$T/manifest"
start_nginx

# /limit/ sends 20 MB/s to each request, so both readers are busy for a while.
mount_penstock "$ORIGIN/limit/"
origin_forget
check "two readers at once get the right bytes" read_tree 1m "$MNT" 2
at_most "two readers fetch the file once" 40400000 "$(origin_bytes)"
at_least "two readers fetch the whole file" 40000000 "$(origin_bytes)"
umount_penstock

CACHE=$T/cache2
mount_penstock "$ORIGIN/limit/"
origin_forget
check "sixteen random readers get the right bytes" read_tree random "$MNT" 16
at_most "sixteen readers fetch the file once" 40400000 "$(origin_bytes)"
