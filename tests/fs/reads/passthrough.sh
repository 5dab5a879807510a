#!/usr/bin/env bash
# Complete files are read by passthrough. Whatever happens meanwhile, a reader gets the right bytes and no
# EIO.
. "$(dirname "$0")/../../lib.sh"
requires mount nginx root

mkdir -p "$T/www"
for i in 1 2 3; do
	random_file "$T/www/$i.bin" 9000000 "$i"
done
sha_manifest "$T/www" >"$T/manifest"
start_nginx

status() { penstock status "$MNT" --json | jq -r "$1"; }
state() { getfattr --absolute-names --only-values -n user.penstock.state "$MNT/$1"; }
is_cached() { [[ $(state "$1") == cached ]]; }
same() { cmp "$MNT/$1" "$T/www/$1"; }

mount_penstock "$ORIGIN/"
[[ $(status .passthrough.active) == true ]] || skip_all "no passthrough here: $(status .passthrough.reason)"

# The file becomes complete while an older handle is open.
exec 7<"$MNT/1.bin"
check "a cold file is right" same 1.bin
check "the file becomes complete" wait_until 10 is_cached 1.bin
check "a second handle beside an old one reads the right bytes" same 1.bin
exec 7<&-
sleep 0.3
before=$(status .passthrough.opens)
check "a complete file is right" same 1.bin
at_least "the complete file was passed through" $((before + 1)) "$(status .passthrough.opens)"
read_by_daemon=$(status .reads.bytes)
check "the complete file is right again" same 1.bin
equal "the daemon served none of its bytes" "$read_by_daemon" "$(status .reads.bytes)"
equal "no passed-through handle is left" \
	0 "$(wait_until 5 bash -c "[ \"\$(penstock status '$MNT' --json | jq .passthrough.open)\" = 0 ]"; status .passthrough.open)"

# A mapping outlives its descriptor and keeps the mode.
check "a mapping of the cold file is right beside later handles" \
	"$python" - "$MNT/2.bin" "$T/www/2.bin" <<'PY'
import mmap, os, subprocess, sys, time
path, real = sys.argv[1:]
want = open(real, "rb").read()
fd = os.open(path, os.O_RDONLY)
m = mmap.mmap(fd, 0, prot=mmap.PROT_READ)
os.close(fd)
assert m[:] == want
for _ in range(100):
    if os.getxattr(path, "user.penstock.state") == b"cached":
        break
    time.sleep(0.1)
for _ in range(20):
    assert open(path, "rb").read() == want
assert m[5000000:] == want[5000000:]
m.close()
for _ in range(20):
    with open(path, "rb") as f:
        p = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)
        assert p[:] == want and f.read() == want
        p.close()
PY

# Eviction of a passed-through file: readers keep their bytes, and so do handles that are opened meanwhile.
check "3.bin is warmed" timeout 20 penstock warm "$MNT" 3.bin
exec 7<"$MNT/3.bin"
dd bs=1000 count=1 status=none <&7 >/dev/null
check "3.bin is evicted" timeout 20 penstock evict "$MNT" 3.bin
check "a handle beside that of the evicted file reads the right bytes" same 3.bin
equal "the old handle reads on" "$(tail -c +1001 "$T/www/3.bin" | sha256sum)" "$(sha256sum <&7)"
exec 7<&-
sleep 0.3
check "once the old handle is closed, the file is fetched again" same 3.bin

# Many opens and closes while the mode changes.
check "evict of all files succeeds" timeout 20 penstock evict "$MNT"
hammer() {
	local n pids=()
	for n in 1 2 3 4; do
		(for _ in $(seq 40); do same "$((RANDOM % 3 + 1)).bin" || exit 1; done) &
		pids+=($!)
	done
	for n in "${pids[@]}"; do
		wait "$n" || return 1
	done
}
check "four readers get the right bytes while files become complete" hammer
umount_penstock

mount_penstock "$ORIGIN/" --no-passthrough
equal "passthrough can be turned off" false "$(status .passthrough.active)"
check "without passthrough all bytes are right" read_tree 1m
