#!/usr/bin/env bash
# Complete files are passed through by the kernel; whatever happens meanwhile, a reader sees the right bytes
# and no EIO.
. "$(dirname "$0")/../lib.sh"
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

# Complete while a cached handle is open: more handles stay in its mode.
exec 7<"$MNT/1.bin"
check "a cold file reads right" same 1.bin
check "it becomes complete" wait_until 10 is_cached 1.bin
check "a second handle beside an old cached one" same 1.bin
exec 7<&-
sleep 0.3
before=$(status .passthrough.opens)
check "a complete file reads right" same 1.bin
at_least "it was passed through" $((before + 1)) "$(status .passthrough.opens)"
read_by_daemon=$(status .reads.bytes)
check "and again" same 1.bin
equal "the daemon served none of it" "$read_by_daemon" "$(status .reads.bytes)"
equal "no handle is left" 0 "$(wait_until 5 bash -c "[ \"\$(penstock status '$MNT' --json | jq .passthrough.open)\" = 0 ]"; status .passthrough.open)"

# A mapping outlives its descriptor and keeps the mode.
check "a mapping made while cold lives on beside later handles" "$python" - "$MNT/2.bin" "$T/www/2.bin" <<'PY'
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

# Eviction while passed through: readers keep the bytes, and so do handles opened beside them.
check "3.bin is warmed" timeout 20 penstock warm "$MNT" 3.bin
exec 7<"$MNT/3.bin"
dd bs=1000 count=1 status=none <&7 >/dev/null
check "it is evicted" timeout 20 penstock evict "$MNT" 3.bin
check "a handle beside an evicted, passed through one" same 3.bin
equal "the old handle reads on" "$(tail -c +1001 "$T/www/3.bin" | sha256sum)" "$(sha256sum <&7)"
exec 7<&-
sleep 0.3
check "after it, the file is fetched again" same 3.bin

# Many opens and closes across the change of mode.
check "evict all" timeout 20 penstock evict "$MNT"
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
check "four readers open and close while files become complete" hammer
umount_penstock

mount_penstock "$ORIGIN/" --no-passthrough
equal "it can be turned off" false "$(status .passthrough.active)"
check "and reads are right" read_tree 1m
