"""Makes system calls on a mount and prints one line for each: WHAT: RESULT, where RESULT is a value or the name
of an errno. Usage: system_calls.py MOUNTPOINT. The mount has file.bin, sub/, empty/, link.bin, hard.bin and .hidden."""
import ctypes, errno, fcntl, mmap, os, socket, stat, struct, sys, tempfile

mnt = sys.argv[1]
path = f"{mnt}/file.bin"
libc = ctypes.CDLL(None, use_errno=True)


def show(what, call):
    try:
        result = call()
    except OSError as e:
        result = errno.errorcode[e.errno]
    print(f"{what}: {result}", flush=True)


def opens(flags, name=path):
    os.close(os.open(name, flags))
    return "ok"


def c_call(function, *args):
    if function(*args) < 0:
        raise OSError(ctypes.get_errno(), "")
    return "ok"


fd = os.open(path, os.O_RDONLY)
size = os.fstat(fd).st_size

# Opens
show("open O_RDONLY", lambda: opens(os.O_RDONLY))
show("open O_RDWR", lambda: opens(os.O_RDWR))
show("open O_WRONLY", lambda: opens(os.O_WRONLY))
show("open O_TRUNC", lambda: opens(os.O_TRUNC))
show("open O_CREAT, existing", lambda: opens(os.O_CREAT))
show("open O_CREAT, new", lambda: opens(os.O_CREAT, f"{mnt}/new"))
show("open O_CREAT O_EXCL, existing", lambda: opens(os.O_CREAT | os.O_EXCL))
show("open O_DIRECT", lambda: opens(os.O_DIRECT))
show("open O_PATH", lambda: opens(os.O_PATH))
show("open O_NONBLOCK", lambda: opens(os.O_NONBLOCK))
show("open O_TMPFILE", lambda: opens(os.O_TMPFILE | os.O_RDWR, mnt))
show("open O_DIRECTORY of a file", lambda: opens(os.O_DIRECTORY))
show("open O_RDWR of a folder", lambda: opens(os.O_RDWR, mnt))
show("open of a missing name", lambda: opens(0, f"{mnt}/missing"))
show("open below a file", lambda: opens(0, f"{path}/x"))

# Reads
show("read to the end", lambda: len(os.pread(fd, 100, size - 3)))
show("read after the end", lambda: len(os.pread(fd, 100, size + 3)))
show("read of a folder", lambda: os.read(os.open(mnt, 0), 10))
show("preadv", lambda: os.preadv(fd, [bytearray(1000), bytearray(70000)], 5))
show("preadv2 RWF_NOWAIT", lambda: os.preadv(fd, [bytearray(4096)], 0, os.RWF_NOWAIT))
show("SEEK_DATA", lambda: os.lseek(fd, 5, os.SEEK_DATA))
show("SEEK_HOLE is the size", lambda: os.lseek(fd, 5, os.SEEK_HOLE) == size)
show("posix_fadvise", lambda: os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_WILLNEED))


def read_direct(offset, length):
    direct = os.open(path, os.O_RDONLY | os.O_DIRECT)
    try:
        return os.preadv(direct, [memoryview(mmap.mmap(-1, 65536))[:length]], offset)
    finally:
        os.close(direct)


show("O_DIRECT read, aligned", lambda: read_direct(0, 4096))
show("O_DIRECT read, not aligned", lambda: read_direct(1, 4097))


# Mappings
def maps(flags, prot):
    with mmap.mmap(fd, 8192, flags=flags, prot=prot) as m:
        if prot & mmap.PROT_WRITE:
            m[0] ^= 1
        return "ok" if bytes(m[1:3]) == os.pread(fd, 2, 1) else "other bytes"


show("mmap shared", lambda: maps(mmap.MAP_SHARED, mmap.PROT_READ))
show("mmap shared, writable", lambda: maps(mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE))
show("mmap private, writable", lambda: maps(mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE))
show("mmap executable", lambda: maps(mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC))


# Attributes
def attributes(name):
    st = os.stat(name)
    return f"{stat.filemode(st.st_mode)} nlink {st.st_nlink} blksize {st.st_blksize}"


st = os.stat(path)
show("stat of a file", lambda: attributes(path))
show("stat of a folder", lambda: f"{attributes(mnt + '/sub')} size {os.stat(mnt + '/sub').st_size}")
show("st_blocks are those of all bytes", lambda: st.st_blocks == -(-size // 512))
show("atime, mtime and ctime are equal", lambda: st.st_atime_ns == st.st_mtime_ns == st.st_ctime_ns)
show("a read changes atime", lambda: (os.pread(fd, 1, 0), os.stat(path).st_atime_ns != st.st_atime_ns)[1])
show("access R_OK W_OK X_OK", lambda: [os.access(path, how) for how in (os.R_OK, os.W_OK, os.X_OK)])
show("execve", lambda: os.execv(path, ["x"]))

# Folders and links
show("listing", lambda: " ".join(os.listdir(mnt)))
show("d_type", lambda: " ".join("d" if e.is_dir(follow_symlinks=False) else "f" for e in os.scandir(mnt)))
show("an empty folder", lambda: os.listdir(f"{mnt}/empty"))
show(".penstock", lambda: " ".join(os.listdir(f"{mnt}/.penstock")))
show("a symbolic link is a file", lambda: stat.S_ISREG(os.lstat(f"{mnt}/link.bin").st_mode))
show("readlink", lambda: os.readlink(f"{mnt}/link.bin"))
show("hard links share a number", lambda: os.stat(f"{mnt}/hard.bin").st_ino == st.st_ino)

# Locks
other = os.open(path, os.O_RDONLY)
show("flock LOCK_EX", lambda: fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB))
show("flock LOCK_EX of another", lambda: fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB))
show("flock LOCK_UN", lambda: fcntl.flock(fd, fcntl.LOCK_UN))
show("fcntl F_RDLCK", lambda: fcntl.lockf(fd, fcntl.LOCK_SH | fcntl.LOCK_NB))
show("fcntl F_WRLCK", lambda: fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB))

# Extended attributes
show("listxattr", lambda: " ".join(n.removeprefix("user.penstock.") for n in os.listxattr(path)))
for name in "user.x", "user.penstock.x", "security.selinux", "system.posix_acl_access":
    show(f"getxattr {name}", lambda: os.getxattr(path, name))
show("setxattr", lambda: os.setxattr(path, "user.x", b"y"))
show("removexattr", lambda: os.removexattr(path, "user.penstock.url"))

# File system
fs = os.statvfs(mnt)
flags = {"RDONLY": os.ST_RDONLY, "NOSUID": os.ST_NOSUID, "NODEV": os.ST_NODEV, "NOEXEC": os.ST_NOEXEC}
show("statvfs flags", lambda: " ".join(name for name, bit in flags.items() if fs.f_flag & bit))
show("statvfs files", lambda: f"{fs.f_files} namemax {fs.f_namemax}")

# Copies
pair = socket.socketpair()
pipe = os.pipe()
temporary = tempfile.TemporaryFile()
show("sendfile", lambda: os.sendfile(pair[0].fileno(), fd, 0, 5000))
show("splice", lambda: os.splice(fd, pipe[1], 5000, offset_src=0))
show("FICLONE", lambda: fcntl.ioctl(temporary.fileno(), 0x40049409, fd))

# Changes
show("write", lambda: os.write(fd, b"x"))
show("ftruncate", lambda: os.ftruncate(fd, 0))
show("truncate", lambda: os.truncate(path, 0))
show("unlink", lambda: os.unlink(path))
show("unlink of a missing name", lambda: os.unlink(f"{mnt}/missing"))
show("rename", lambda: os.rename(path, f"{mnt}/other"))
show("rename to another file system", lambda: os.rename(path, f"{os.environ['TMPDIR']}/other"))
show("link", lambda: os.link(path, f"{mnt}/other"))
show("symlink", lambda: os.symlink("x", f"{mnt}/other"))
show("mkdir", lambda: os.mkdir(f"{mnt}/other"))
show("mkdir, existing", lambda: os.mkdir(f"{mnt}/sub"))
show("rmdir", lambda: os.rmdir(f"{mnt}/empty"))
show("chmod", lambda: os.chmod(path, 0o600))
show("utime", lambda: os.utime(path, (1, 1)))
show("fallocate", lambda: os.posix_fallocate(fd, 0, 100))
show("fsync", lambda: os.fsync(fd))
show("fdatasync", lambda: os.fdatasync(fd))
show("fsync of a folder", lambda: os.fsync(os.open(mnt, 0)))
show("syncfs", lambda: c_call(libc.syncfs, fd))

# Others
show("ioctl, unknown", lambda: fcntl.ioctl(fd, 0x1234, bytearray(64)))
show("ioctl FS_IOC_FIEMAP", lambda: fcntl.ioctl(fd, 0xC020660B, bytearray(96)))
handle, mount_id = ctypes.create_string_buffer(struct.pack("I", 128), 136), ctypes.c_int()
to_handle = libc.name_to_handle_at
show("name_to_handle_at", lambda: c_call(to_handle, -100, path.encode(), handle, ctypes.byref(mount_id), 0))
inotify = libc.inotify_init1(os.O_NONBLOCK)
show("inotify_add_watch", lambda: c_call(libc.inotify_add_watch, inotify, path.encode(), 0x20))  # IN_OPEN
opens(os.O_RDONLY)
show("inotify IN_OPEN", lambda: hex(struct.unpack_from("iI", os.read(inotify, 4096))[1]))
