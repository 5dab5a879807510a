#!/usr/bin/env bash
# penstock verify finds nothing in a sound cache, finds a flipped byte and drops its block; the mount then
# fetches the block again.
. "$(dirname "$0")/../../lib.sh"
requires mount nginx

mkdir -p "$T/www"
random_file "$T/www/f.bin" 9000000
sha_manifest "$T/www" >"$T/manifest"
start_nginx
mount_penstock "$ORIGIN/"
read_tree 1m
umount_penstock
check "a sound cache verifies" timeout 60 penstock verify --cache-dir "$CACHE"

data=$(find "$CACHE/data" -type f -size +1000k)
equal "the cache has one data file" 1 "$(wc -l <<<"$data")"
"$python" - "$data" <<'PY'
import sys
with open(sys.argv[1], "r+b") as f:
    f.seek(5_000_000)
    byte = f.read(1)[0]
    f.seek(5_000_000)
    f.write(bytes([byte ^ 4]))
PY
check "the byte is flipped" bash -c "! cmp -s '$data' '$T/www/f.bin'"
rc=0
timeout 60 penstock verify --cache-dir "$CACHE" >"$T/out" 2>&1 || rc=$?
equal "verify fails" 1 "$((rc > 0 && rc < 124))"
check "verify names the file" grep -q 'f\.bin' "$T/out"
check "a second verify succeeds, as the block is dropped" timeout 60 penstock verify --cache-dir "$CACHE"
origin_forget
mount_penstock "$ORIGIN/"
check "the mount serves right bytes" read_tree 1m
at_most "the mount fetches only the bad block and the read-ahead" 5000000 "$(origin_bytes /f.bin)"
at_least "the mount fetches the bad block" 1000000 "$(origin_bytes /f.bin)"

check_not "verify of a folder that is not a cache fails" penstock verify --cache-dir "$T/www"
check_not "verify of a missing folder fails" penstock verify --cache-dir "$T/nothing"
