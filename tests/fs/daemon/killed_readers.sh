#!/usr/bin/env bash
# A program that waits for an origin without an answer ends at once when it is killed, however it reads.
. "$(dirname "$0")/../../lib.sh"
requires mount nginx-lua

mkdir -p "$T/www"
for i in {01..40}; do
	truncate -s 20M "$T/www/$i.bin"
done
start_nginx

cat >"$T/reader.py" <<'PY'
import mmap, os, sys
path, how = sys.argv[1:]
fd = os.open(path, os.O_RDONLY | (os.O_DIRECT if how == "odirect" else 0))
if how in ("read", "small"):
    os.read(fd, 3 << 20 if how == "read" else 10240)
elif how == "odirect":
    os.readv(fd, [mmap.mmap(-1, 1 << 20)])
elif how == "sendfile":
    os.sendfile(os.open("/dev/null", os.O_WRONLY), fd, 0, 1 << 20)
else:
    mmap.mmap(fd, 0, flags=mmap.MAP_SHARED if how == "mmap" else mmap.MAP_PRIVATE, prot=mmap.PROT_READ)[5000000]
PY

for cold in direct cached; do
	mount_penstock "$ORIGIN/stall/" --timeout 100s --cold-reads "$cold"
	touch "$T/nginx/stall"
	files=(04 31 12 25 08 36) # not consecutive, as the next file may be prefetched
	for how in read small odirect mmap private sendfile; do
		"$python" "$T/reader.py" "$MNT/${files[0]}.bin" "$how" 2>"$T/reader.log" &
		reader=$!
		files=("${files[@]:1}")
		check "$cold, $how: the reader waits" wait_until 10 "$BASH" \
			-c "(( \$(jq .reads.waiting '$MNT/.penstock/stats') > 0 ))"
		sleep 0.2
		kill -KILL "$reader"
		at_most "$cold, $how: the killed reader ends (ms)" 2000 \
			"$(milliseconds wait_until 20 "$BASH" -c "! kill -0 $reader")"
		wait "$reader" 2>/dev/null || true
		# A read-ahead belongs to no process, and continues to wait.
		[[ $cold == cached || $how != @(read|small|odirect) ]] ||
			check "$cold, $how: the read of the killed reader ends" wait_until 5 "$BASH" \
			-c "jq -e '.reads.waiting == 0' '$MNT/.penstock/stats'"
		rm "$T/nginx/stall"
		wait_until 20 "$BASH" -c "jq -e '.reads.waiting == 0' '$MNT/.penstock/stats'" || true
		touch "$T/nginx/stall"
	done

	# A second mapping of the same file must not wait for the pages of the first one.
	"$python" "$T/reader.py" "$MNT/20.bin" mmap 2>"$T/reader.log" &
	reader=$!
	check "$cold: a mapping waits" wait_until 10 "$BASH" \
		-c "(( \$(jq .reads.waiting '$MNT/.penstock/stats') > 0 ))"
	"$python" "$T/reader.py" "$MNT/20.bin" mmap 2>"$T/reader.log" &
	other=$!
	sleep 0.5
	kill -KILL "$other" "$reader"
	at_most "$cold: a killed process with a second mapping ends (ms)" 2000 \
		"$(milliseconds wait_until 20 "$BASH" -c "! kill -0 $other")"
	wait "$other" "$reader" 2>/dev/null || true
	rm "$T/nginx/stall"
	umount_penstock
	rm -rf "$CACHE"
done
