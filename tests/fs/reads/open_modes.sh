#!/usr/bin/env bash
# The open modes of files: incomplete files are opened direct or through the page cache, by the access
# pattern; complete files are passed through, also while older handles and mappings of them exist.
. "$(dirname "$0")/../../lib.sh"
requires mount nginx root jq

mkdir -p "$T/www"
for i in {01..20}; do
	random_file "$T/www/$i.bin" 5000001 "$i"
done
start_nginx
mount_penstock "$ORIGIN/"
[[ $(stats .passthrough.active) == true ]] || skip_all "no passthrough here: $(stats .passthrough.reason)"

opens() { stats ".mounts[0].modes | [.direct.opens, .cached.opens, .passed.opens, .upgrades] | join(\" \")"; }
is_cached() { [[ $(getfattr --absolute-names --only-values -n user.penstock.state "$MNT/$1") == cached ]]; }
same() { cmp "$MNT/$1" "$T/www/$1"; }

# opened WHAT COUNTS: checks the opens since the last call: direct, cached, passed through, sent to an alias
# (another node id of the same file).
seen="0 0 0 0"
opened() {
	local now
	now=$(opens)
	equal "$1: direct, cached, passed, upgrades" "$2" \
		"$(paste -d' ' <(tr ' ' '\n' <<<"$seen") <(tr ' ' '\n' <<<"$now") | awk '{printf "%s%d", sep, $2 - $1; sep = " "}')"
	seen=$now
}

# upgraded WHAT: checks that one open was sent to an alias since the last call. (It is the first open of the
# complete file, which may be one of warm.)
upgraded() {
	local now
	now=$(opens)
	equal "$1: upgrades" 1 "$((${now##* } - ${seen##* }))"
	seen=$now
}

check "a cold file is read in large pieces" same 01.bin
opened "large reads of a cold file" "1 0 0 0"
check "the file becomes complete" wait_until 10 is_cached 01.bin
check "the complete file is right" same 01.bin
opened "the complete file" "0 0 1 0"

# An old direct handle that is mapped only after others have the file passed through.
exec 7<"$MNT/04.bin"
head -c 1000 <&7 >/dev/null
seen=$(opens)
timeout 20 penstock warm -q "$MNT" 04.bin
ino=$(stat -c %i "$MNT/04.bin")
check "beside a direct handle a complete file is right" same 04.bin
upgraded "a complete file beside a direct handle"
check "the complete file is right again beside a direct handle" same 04.bin
opened "the alias" "0 0 1 0"
equal "the inode number stays the same" \
	"$ino $ino" "$(stat -L -c %i /proc/self/fd/7) $(stat -c %i "$MNT/04.bin")"
equal "the old direct handle reads on" "$(tail -c +1001 "$T/www/04.bin" | sha256sum)" "$(sha256sum <&7)"
check "the old direct handle can be mapped and opened again" "$python" - "$T/www/04.bin" <<'PY'
import mmap, os, sys
want = open(sys.argv[1], "rb").read()
for flags in mmap.MAP_SHARED, mmap.MAP_PRIVATE:
    assert mmap.mmap(7, 0, flags=flags, prot=mmap.PROT_READ)[:] == want
fd = os.open("/proc/self/fd/7", os.O_RDONLY)
assert os.pread(fd, len(want), 0) == want
PY
exec 7<&-

# A mapping of a cold file, in several processes, across its completion.
cat >"$T/map.py" <<'PY'
import mmap, os, sys, time
path, real = sys.argv[1:]
want = open(real, "rb").read()
fd = os.open(path, os.O_RDONLY)
m = mmap.mmap(fd, 0, prot=mmap.PROT_READ)
assert m[4000000:4000100] == want[4000000:4000100]
assert os.pread(fd, 10240, 77) == want[77:10317]
pids = []
for _ in range(3):
    if (pid := os.fork()) == 0:
        n = mmap.mmap(os.open(path, os.O_RDONLY), 0, prot=mmap.PROT_READ)
        os._exit(n[:] != want)
    pids.append(pid)
assert m[:] == want
assert not any([os.waitpid(pid, 0)[1] for pid in pids])
for _ in range(200):
    if os.getxattr(path, "user.penstock.state") == b"cached":
        break
    time.sleep(0.05)
other = os.open(path, os.O_RDONLY)
n = mmap.mmap(other, 0, prot=mmap.PROT_READ)
assert m[:] == n[:] == os.pread(other, len(want), 0) == os.pread(fd, len(want), 0) == want
PY
check "a cold file is mapped by four, completed, and mapped again" "$python" "$T/map.py" "$MNT/07.bin" \
	"$T/www/07.bin"
wait_until 10 is_cached 07.bin
seen=$(opens)

# A reader of small pieces gets the kernel's read-ahead, from the second file on. The files are apart, so
# that none was fetched as the next one.
small() {
	"$python" - "$@" <<'PY'
import os, sys
size = int(sys.argv[1])
for path in sys.argv[2:]:
    fd = os.open(path, os.O_RDONLY)
    while os.read(fd, size):
        pass
    os.close(fd)
PY
}
small 1048576 "$MNT/10.bin"
seen=$(opens)
small 10240 "$MNT/20.bin" "$MNT/17.bin"
opened "10 KiB reads of two cold files" "1 1 0 0"
small 10240 "$MNT/14.bin"
opened "another process" "0 1 0 0"
small 1048576 "$MNT/12.bin" "$MNT/02.bin"
opened "1 MiB reads of two more" "1 1 0 0"

# An old cached handle.
umount_penstock
rm -rf "$CACHE"
mount_penstock "$ORIGIN/" --cold-reads cached
exec 7<"$MNT/09.bin"
head -c 1000 <&7 >/dev/null
seen=$(opens)
timeout 20 penstock warm -q "$MNT" 09.bin
check "beside a cached handle a complete file is right" same 09.bin
upgraded "a complete file beside a cached handle"
equal "the old cached handle reads on" "$(tail -c +1001 "$T/www/09.bin" | sha256sum)" "$(sha256sum <&7)"
exec 7<&-
check_not "an unknown value of --cold-reads is refused" penstock mount "$ORIGIN/" "$T/other" --cold-reads fast
