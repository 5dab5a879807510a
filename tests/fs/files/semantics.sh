#!/usr/bin/env bash
# What system calls return on a mount: the rows of docs/semantics.md that are marked "run". Files give the same
# results whether they are not cached, cached, or passed through.
. "$(dirname "$0")/../../lib.sh"
requires mount

mkdir -p "$T/src/sub" "$T/src/empty"
random_file "$T/src/file.bin" 3000001
ln -s file.bin "$T/src/link.bin"
ln "$T/src/file.bin" "$T/src/hard.bin"
ln -s nowhere "$T/src/dangling"
mkfifo "$T/src/fifo"
echo hidden >"$T/src/.hidden"

cat >"$T/expected" <<'END'
open O_RDONLY: ok
open O_RDWR: EROFS
open O_WRONLY: EROFS
open O_TRUNC: EROFS
open O_CREAT, existing: ok
open O_CREAT, new: EROFS
open O_CREAT O_EXCL, existing: EEXIST
open O_DIRECT: ok
open O_PATH: ok
open O_NONBLOCK: ok
open O_TMPFILE: EROFS
open O_DIRECTORY of a file: ENOTDIR
open O_RDWR of a folder: EISDIR
open of a missing name: ENOENT
open below a file: ENOTDIR
read to the end: 3
read after the end: 0
read of a folder: EISDIR
preadv: 71000
preadv2 RWF_NOWAIT: EOPNOTSUPP
SEEK_DATA: 5
SEEK_HOLE is the size: True
posix_fadvise: None
O_DIRECT read, aligned: 4096
mmap shared: ok
mmap shared, writable: EACCES
mmap private, writable: ok
mmap executable: ok
stat of a file: -r--r--r-- nlink 1 blksize 1048576
stat of a folder: dr-xr-xr-x nlink 1 blksize 1048576 size 0
st_blocks are those of all bytes: True
atime, mtime and ctime are equal: True
a read changes atime: False
access R_OK W_OK X_OK: [True, False, False]
execve: EACCES
listing: .hidden empty file.bin hard.bin link.bin sub
d_type: f d f f f d
an empty folder: []
.penstock: stats metrics cache_metrics plan
a symbolic link is a file: True
readlink: EINVAL
hard links share a number: False
flock LOCK_EX: None
flock LOCK_EX of another: EAGAIN
flock LOCK_UN: None
fcntl F_RDLCK: None
fcntl F_WRLCK: EBADF
listxattr: url etag size cached state pinned encoding error errno
getxattr user.x: ENODATA
getxattr user.penstock.x: ENODATA
getxattr security.selinux: EOPNOTSUPP
getxattr system.posix_acl_access: EOPNOTSUPP
setxattr: EROFS
removexattr: EROFS
statvfs flags: RDONLY NOSUID NODEV
statvfs files: 0 namemax 255
sendfile: 5000
splice: 5000
FICLONE: EXDEV
write: EBADF
ftruncate: EINVAL
truncate: EROFS
unlink: EROFS
unlink of a missing name: EROFS
rename: EROFS
rename to another file system: EXDEV
link: EROFS
symlink: EROFS
mkdir: EROFS
mkdir, existing: EEXIST
rmdir: EROFS
chmod: EROFS
utime: EROFS
fallocate: EBADF
fsync: None
fdatasync: None
fsync of a folder: None
syncfs: ok
ioctl, unknown: ENOTTY
ioctl FS_IOC_FIEMAP: EOPNOTSUPP
name_to_handle_at: ok
inotify_add_watch: ok
inotify IN_OPEN: 0x20
END
alignment="O_DIRECT read, not aligned"

# rows STATE: each row holds. ENOTSUP is another name of EOPNOTSUPP.
rows() {
	"$python" "$top_srcdir/tests/fs/files/system_calls.py" "$MNT" 2>&1 | sed 's/: ENOTSUP$/: EOPNOTSUPP/' >"$T/seen"
	equal "$1: each system call returns what docs/semantics.md says" "" \
		"$(grep -v "^$alignment" "$T/seen" | diff "$T/expected" -)"
}

mount_penstock "$T/src/" --no-passthrough
# A descriptor of a file that is not cached yet.
exec 7<"$MNT/file.bin"
rows "not cached"
check "the file is cached" penstock warm -q "$MNT"
rows "cached"
equal "without passthrough, an O_DIRECT read needs no alignment" \
	"$alignment: 4097" "$(grep "^$alignment" "$T/seen")"
exec 7<&-
handle=$("$python" - "$MNT/file.bin" <<'PY'
import ctypes, struct, sys
handle, mount_id = ctypes.create_string_buffer(struct.pack("I", 128), 136), ctypes.c_int()
assert ctypes.CDLL(None).name_to_handle_at(-100, sys.argv[1].encode(), handle, ctypes.byref(mount_id), 0) == 0
print(handle.raw.hex())
PY
)
# What changes at the origin causes no event.
check "inotify reports no change at the origin" "$python" - "$MNT" "$T/src" <<'PY'
import ctypes, os, struct, subprocess, sys
mnt, src = sys.argv[1:]
libc = ctypes.CDLL(None)
inotify = libc.inotify_init1(os.O_NONBLOCK)
os.stat(f"{mnt}/hard.bin")
assert libc.inotify_add_watch(inotify, mnt.encode(), 0xFC6) >= 0  # all but reads, opens and closes
open(f"{src}/new.bin", "w").close()
os.unlink(f"{src}/hard.bin")
subprocess.run(["penstock", "refresh", mnt], check=True)
assert os.path.exists(f"{mnt}/new.bin") and not os.path.exists(f"{mnt}/hard.bin")
try:
    sys.exit(f"events: {os.read(inotify, 4096)}")
except BlockingIOError:
    pass
os.unlink(f"{src}/new.bin")
os.link(f"{src}/file.bin", f"{src}/hard.bin")
PY
umount_penstock

mount_penstock "$T/src/"
if ((EUID == 0)); then
	equal "a handle is stale while the kernel does not have the inode" ESTALE "$("$python" - "$MNT" "$handle" <<'PY'
import ctypes, errno, os, sys
handle = ctypes.create_string_buffer(bytes.fromhex(sys.argv[2]), 136)
rc = ctypes.CDLL(None, use_errno=True).open_by_handle_at(os.open(sys.argv[1], 0), handle, 0)
print(errno.errorcode[ctypes.get_errno()] if rc < 0 else "it opens")
PY
)"
fi
penstock warm -q "$MNT"
if [[ $(stats .passthrough.active) == true ]]; then
	rows "passed through"
	penstock evict "$MNT" >"$T/out"
	exec 7<"$MNT/file.bin"
	read -rn 1 _ <&7 || true
	penstock warm -q "$MNT"
	exec 8<"$MNT/file.bin"
	flock -xn 7
	check "a file opened before it was cached, and after, has two locks" flock -xn 8
	equal "and one inode number" "$(stat -Lc %i /dev/fd/7)" "$(stat -Lc %i /dev/fd/8)"
	exec 7<&- 8<&-
else
	skip "passed through" "no passthrough here: $(stats .passthrough.reason)"
fi
if ((EUID == 0)); then
	mkdir "$T/bind" "$T/upper" "$T/work" "$T/overlay"
	mount --bind "$MNT" "$T/bind"
	check "a bind mount shows the same bytes" cmp "$T/bind/file.bin" "$T/src/file.bin"
	check "penstock status accepts it" penstock status "$T/bind"
	umount "$T/bind"
	if mount -t overlay o -o "lowerdir=$MNT,upperdir=$T/upper,workdir=$T/work" "$T/overlay" \
		2>"$T/overlay.err"; then
		check "overlayfs has the mount as its lower layer" cmp "$T/overlay/file.bin" "$T/src/file.bin"
		check "and takes writes" bash -c "echo more >>'$T/overlay/.hidden'"
		equal "which the mount does not see" hidden "$(cat "$MNT/.hidden")"
		umount "$T/overlay"
		check_not "overlayfs does not have it as its upper layer" mount -t overlay o \
			-o "lowerdir=$T/src,upperdir=$MNT,workdir=$MNT" "$T/overlay"
	else
		skip "overlayfs" "$(cat "$T/overlay.err")"
	fi
fi
umount_penstock

# Members: a tar's symbolic links are links, its hard links are files.
mkdir -p "$T/in" "$T/tars"
echo one >"$T/in/1.txt"
ln "$T/in/1.txt" "$T/in/2.txt"
ln -s 1.txt "$T/in/3.txt"
ln -s /etc/passwd "$T/in/4.txt"
tar -C "$T/in" -cf "$T/tars/s.tar" 1.txt 2.txt 3.txt 4.txt
mount_penstock "$T/tars/" --members
equal "members: a link that leads out of the shard is hidden" "1.txt 2.txt 3.txt" "$(cd "$MNT/s" && echo *)"
equal "members: a symbolic link" 1.txt "$(readlink "$MNT/s/3.txt")"
equal "members: a hard link has the bytes" one "$(cat "$MNT/s/2.txt")"
equal "members: a hard link is a file of its own" "1 1" "$(stat -c %h "$MNT/s/1.txt" "$MNT/s/2.txt" | xargs)"
check_not "members: no write" bash -c ": >>'$MNT/s/1.txt'" 2>/dev/null
umount_penstock
