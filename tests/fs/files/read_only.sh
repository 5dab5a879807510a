#!/usr/bin/env bash
# Every attempt to change something fails with EROFS, also after a remount as read-write.
. "$(dirname "$0")/../../lib.sh"
requires mount nginx

make_tree "$T/www"
start_nginx
mount_penstock "$ORIGIN/" --allow-other

attempts() {
	"$python" - "$MNT" <<'PY'
import errno, os, sys
m = sys.argv[1]
f = f"{m}/shard-000000.tar"
attempts = {
    "create": lambda: os.open(f"{m}/new", os.O_CREAT | os.O_WRONLY),
    "open for writing": lambda: os.open(f, os.O_WRONLY),
    "open for both": lambda: os.open(f, os.O_RDWR),
    "append": lambda: os.open(f, os.O_WRONLY | os.O_APPEND),
    "truncate on open": lambda: os.open(f, os.O_WRONLY | os.O_TRUNC),
    "truncate": lambda: os.truncate(f, 0),
    "unlink": lambda: os.unlink(f),
    "rename": lambda: os.rename(f, f"{m}/other"),
    "link": lambda: os.link(f, f"{m}/other"),
    "symlink": lambda: os.symlink("x", f"{m}/other"),
    "mkdir": lambda: os.mkdir(f"{m}/dir"),
    "rmdir": lambda: os.rmdir(f"{m}/sub"),
    "chmod": lambda: os.chmod(f, 0o777),
    "chown": lambda: os.chown(f, 1, 1),
    "utime": lambda: os.utime(f, (1, 1)),
    "mknod": lambda: os.mknod(f"{m}/fifo", 0o10644),
    "setxattr": lambda: os.setxattr(f, "user.x", b"y"),
    "removexattr": lambda: os.removexattr(f, "user.penstock.url"),
}
bad = 0
for what, attempt in attempts.items():
    try:
        attempt()
        print(what, "worked"); bad = 1
    except OSError as e:
        if e.errno != errno.EROFS:
            print(what, e); bad = 1
sys.exit(bad)
PY
}
check "all attempts fail with EROFS" attempts
check "the data has not changed" read_tree 1m
if ((EUID == 0)); then
	check "root remounts read-write" env LIBMOUNT_FORCE_MOUNT2=always mount \
		-i -o remount,rw "$MNT"
	check "all attempts fail with EROFS after the remount" attempts
	check "the data has not changed after the remount" read_tree 1m
fi
