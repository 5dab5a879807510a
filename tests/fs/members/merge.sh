#!/usr/bin/env bash
# --members=merge shows the members of all shards in one tree: once all tables are known, at once after a
# restart or a kill, and with the changes of the shards after a refresh.
. "$(dirname "$0")/../../lib.sh"
requires mount nginx jq getfattr python3

# shard NAME FILE=TEXT...
shard() {
	local name=$1 pair
	shift
	rm -rf "$T/make"
	mkdir "$T/make"
	for pair; do
		mkdir -p "$T/make/$(dirname "${pair%%=*}")"
		echo "${pair#*=}" >"$T/make/${pair%%=*}"
	done
	(cd "$T/make" && tar -cf "$T/www/$name.tar" --sort=name -- *)
}
content() {
	(cd "$MNT" && find . -type f | sort | while read -r f; do echo "${f#./}=$(cat "$f")"; done | xargs)
}
has_content() { [[ $(content) == "$1" ]]; }

mkdir -p "$T/www/sub"
shard a cat/1=a1 cat/2=a2 dog/1=d1 both=file-of-a
shard b cat/3=b3 cat/2=b2 bird/1=x
shard sub/c dog/2=d2 both/in-folder=c
echo "no shard" >"$T/www/notes.txt"
start_nginx
remedy="the merged tree cannot be read yet (EAGAIN), because the members of 3 shards are not known; run penstock\
 warm --members $MNT"
mount_penstock "$ORIGIN/json/" --members=merge >"$T/out" 2>&1
equal "mount says what to do" "penstock mount: warning: $remedy" "$(cat "$T/out")"
check "so does the log" grep -qF "warning: mount: $MNT: $remedy" "$T/penstock.log"
mkdir "$T/m9"
penstock mount "$ORIGIN/json/" "$T/m9" --members=merge --cache-dir "$CACHE" >"$T/out" 2>&1
equal "and the mount of a daemon that runs" "penstock mount: warning: ${remedy/$MNT/$T/m9}" "$(cat "$T/out")"
penstock umount "$T/m9"
rc=0
ls "$MNT" >"$T/out" 2>&1 || rc=$?
equal "before the tables are known a listing says to try again" "2 1" \
	"$rc $(grep -c "Resource temporarily unavailable" "$T/out")"
equal "the folder says what to do" "the members of 3 shards are not known yet: penstock warm --members $MNT" \
	"$(getfattr --absolute-names --only-values -n user.penstock.error "$MNT")"
check "status says what to do" \
	grep -qx "  merged    not yet: penstock warm --members $MNT" <(penstock status "$MNT")
check "the folder itself is there" test -d "$MNT"
equal "warm --members makes the tables" "9 files in 3 shards" "$(penstock warm --members "$MNT")"
all="bird/1=x both/in-folder=c cat/1=a1 cat/2=b2 cat/3=b3 dog/1=d1 dog/2=d2"
equal "all members are in one tree; the later shard wins, and a folder hides a file" "$all" "$(content)"
equal "the tree has the folders of all shards" "bird both cat dog" "$(cd "$MNT" && echo *)"
equal "the attribute shard of a member is its shard's URL" "$ORIGIN/json/b.tar" \
	"$(getfattr --absolute-names --only-values -n user.penstock.shard "$MNT/cat/2")"
check_not "warm without --members is refused" penstock warm "$MNT"
find "$MNT" -printf '%i %p\n' | sort >"$T/inodes"
umount_penstock
mount_penstock "$ORIGIN/json/" --members=merge
equal "after a restart the tree is shown at once" "$all" "$(content)"
check "after a restart the inode numbers are the same" cmp "$T/inodes" <(find "$MNT" -printf '%i %p\n' | sort)
kill_penstock
mount_penstock "$ORIGIN/json/" --members=merge
equal "after a kill the tree is shown at once" "$all" "$(content)"

# The shards change.
exec 5<"$MNT/cat/1"
shard b cat/3=new3 fish/1=f
rm "$T/www/sub/c.tar"
shard d horse/1=h
penstock refresh "$MNT" >/dev/null
new="both=file-of-a cat/1=a1 cat/2=a2 cat/3=new3 dog/1=d1 fish/1=f horse/1=h"
check "after a refresh the tree becomes that of the present shards" wait_until 20 has_content "$new"
equal "a file that was open before the refresh is read" a1 "$(cat <&5)"
exec 5<&-
equal "folders that no shard has any more are gone" "both cat dog fish horse" "$(cd "$MNT" && echo *)"
umount_penstock
# A shard that is not a tar is left out.
echo "this is no tar" >"$T/www/e.tar"
mount_penstock "$ORIGIN/json/" --members=merge
check_not "a new shard has no table yet" ls "$MNT"
rc=0
penstock warm --members "$MNT" >"$T/out" 2>&1 || rc=$?
equal "warm reports a shard that is not a tar" \
	"1 1" "$rc $(grep -c "1 shard could not be read as a tar" "$T/out")"
equal "the other shards are merged" "$new" "$(content)"
umount_penstock

# Many members, which several programs list at once.
rm -r "$T/www"
mkdir "$T/www"
"$python" - "$T/www" <<'PY'
import io, sys, tarfile
for s in range(20):
    with tarfile.open(f"{sys.argv[1]}/{s:03}.tar", "w") as tar:
        for i in range(500):
            info = tarfile.TarInfo(f"class{i % 7}/{s:03}-{i:04}")
            info.size = 4
            tar.addfile(info, io.BytesIO(b"%04d" % i))
PY
rm -rf "$CACHE"
check "the tables of a source are made without a mount" \
	penstock warm --members=merge -q "$ORIGIN/json/" --cache-dir "$CACHE"
mount_penstock "$ORIGIN/json/" --members=merge
pids=()
for _ in {1..6}; do
	find "$MNT" -type f | sort | sha1sum >>"$T/sums" &
	pids+=($!)
done
wait "${pids[@]}"
pids=()
equal "six programs list the same names" 1 "$(sort -u "$T/sums" | wc -l)"
equal "all members are listed" 10000 "$(find "$MNT" -type f | wc -l)"
mkdir "$T/m2" "$T/m3"
check "a second mount of the source succeeds" \
	penstock mount "$ORIGIN/json/" "$T/m2" --members=merge --cache-dir "$CACHE"
check "a third mount, which shows the shards, succeeds" \
	penstock mount "$ORIGIN/json/" "$T/m3" --members --cache-dir "$CACHE"
rm "$T/www/000.tar"
cp "$T/www/001.tar" "$T/www/zzz.tar"
for mount in "$MNT" "$T/m2" "$T/m3"; do
	penstock refresh "$mount" >/dev/null
	penstock warm -q --members "$mount" &
	pids+=($!)
done
wait "${pids[@]}"
count() { find "$1" -type f | wc -l; }
counts() { [[ "$(count "$MNT") $(count "$T/m2") $(count "$T/m3")" == "9500 9500 10000" ]]; }
check "all three mounts show a change of the shards" wait_until 30 counts
check "each member has its bytes after the change" "$python" - "$MNT" "$T/m2" <<'PY'
import os, sys
for top in sys.argv[1:]:
    for path, _, files in os.walk(top):
        for name in files:
            with open(f"{path}/{name}") as file:
                assert file.read() == name[-4:], f"{path}/{name}"
PY
penstock umount "$T/m2"
penstock umount "$T/m3"
umount_penstock
mount_penstock "$ORIGIN/json/" --members=merge
equal "a later mount shows the same number of files" 9500 "$(count "$MNT")"
exec 5<"$MNT/class3"
cp "$T/www/001.tar" "$T/www/zzzz.tar"
penstock refresh "$MNT" >/dev/null
sleep 1
check "a folder that was open is listed as before, or gives an error; it is not empty" \
	test "$(ls /proc/self/fd/5 2>&1)"
exec 5<&-

check "seekdir and telldir give the same names" "$python" - "$MNT/class3" <<'PY'
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
class Dirent(ctypes.Structure):
    _fields_ = [("ino", ctypes.c_uint64), ("off", ctypes.c_int64), ("len", ctypes.c_uint16),
                ("type", ctypes.c_uint8), ("name", ctypes.c_char * 256)]
libc.opendir.restype = ctypes.c_void_p
libc.readdir.restype = ctypes.POINTER(Dirent)
libc.telldir.restype = ctypes.c_long
for f in libc.readdir, libc.telldir: f.argtypes = [ctypes.c_void_p]
libc.seekdir.argtypes = [ctypes.c_void_p, ctypes.c_long]
d = libc.opendir(sys.argv[1].encode())
seen = []
while True:
    at = libc.telldir(d)
    e = libc.readdir(d)
    if not e: break
    seen.append((at, e.contents.name))
assert len(seen) == 2 + sum(1 for _ in os.scandir(sys.argv[1])), len(seen)
for at, name in seen[::97][::-1]:
    libc.seekdir(d, at)
    assert libc.readdir(d).contents.name == name, name
PY
