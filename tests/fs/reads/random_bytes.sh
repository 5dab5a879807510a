#!/usr/bin/env bash
# Random reads of a large cold file fetch at most 2.3 times what they read. What was fetched is not fetched
# again, neither by the same reads nor after a kill.
. "$(dirname "$0")/../../lib.sh"
requires mount nginx

NBYTES=5000000000 # larger than what is fetched as a whole for scattered readers
mkdir -p "$T/www"
truncate -s $NBYTES "$T/www/big.bin"
start_nginx

# The same 200 reads of 128 KiB each time.
random_reads() {
	"$python" - "$MNT/big.bin" <<'PY'
import os, random, sys
rng = random.Random(1)
fd = os.open(sys.argv[1], os.O_RDONLY)
size = os.fstat(fd).st_size
for _ in range(200):
    offset = rng.randrange(size - 131072)
    if len(os.pread(fd, 131072, offset)) != 131072:
        sys.exit("short read at %d" % offset)
PY
}

mount_penstock "$ORIGIN/"
origin_forget
check "200 random reads succeed" random_reads
at_most "at most 2.3 bytes are fetched for each byte read" $((200 * 131072 * 23 / 10)) "$(origin_bytes)"
first=$(origin_bytes)
check "the same reads succeed again" random_reads
equal "the same reads fetch nothing" "$first" "$(origin_bytes)"

# Data is written before the index, so served bytes are in the index after a moment.
sleep 3
kill_penstock
mount_penstock "$ORIGIN/"
origin_forget
check "the same reads succeed after a kill" random_reads
equal "the same reads fetch nothing after a kill" 0 "$(origin_bytes)"
