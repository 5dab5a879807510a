#!/usr/bin/env bash
# tests/packages/container.sh DIR: runs the image in DIR with podman: mounting, loading, logging, stopping.
# Run it only in a disposable root: scripts/container --test makes one.
. "${0%/*}/lib.sh"
disposable scripts/container
in_cgroup2 "$@"
image=$(echo "$1"/penstock-*.oci.tar)
podman() { command podman --storage-driver vfs --cgroup-manager cgroupfs "$@"; }

apt update
apt install podman crun nginx-light procps python3
version=$(sed -nE 's/^AC_INIT\(\[penstock\], \[([^]]*)\].*/\1/p' /penstock/configure.ac)
mkdir "$work/served" "$work/cache" "$work/data"
python3 - "$work/served" <<'PY'
import glob, io, sys, tarfile
for i, photo in enumerate(sorted(glob.glob("/penstock/tests/data/photos/*.jpg"))):
    with tarfile.open("%s/x-%06d.tar" % (sys.argv[1], i // 4), "a") as tar:
        tar.add(photo, "%03d.jpg" % i)
        info = tarfile.TarInfo("%03d.cls" % i)
        info.size = len(str(i))
        tar.addfile(info, io.BytesIO(b"%d" % i))
PY
start_nginx 8768

check "the image loads" podman load -i "$image"
name=localhost/penstock:$version
# A container makes no control groups, as this root may not be allowed to. It uses this machine's network, so
# that loopback leads to the server.
run() { podman run --cgroups=disabled --network host "$@"; }
check "penstock is of this version" grep -F "$version" <(run --rm "$name" penstock --version)
check "penstock-loader is of this version" grep -F "$version" <(run --rm "$name" penstock-loader --version)
origin=http://127.0.0.1:8768/
check "the image has no compiler" run --rm "$name" sh -c '! command -v cc'
check "the image does not name this machine's package mirrors" run --rm "$name" \
	sh -c '! grep -rs . /etc/apt/sources.list*'
run --rm "$name" penstock mount -f "$origin" /mnt >"$work/stdout" 2>"$work/stderr" || true
check "without /dev/fuse a mount is an error that says so" grep -F /dev/fuse "$work/stderr"

mount --bind "$work/data" "$work/data"
mount --make-rshared "$work/data"
fuse=(--device /dev/fuse --cap-add SYS_ADMIN --security-opt apparmor=unconfined)
cache=(-v "$work/cache:/var/cache/penstock")
check "a container that is a mount starts" run -d --name mount "${fuse[@]}" "${cache[@]}" \
	-v "$work/data:/data:rshared" "$name" penstock mount -f "$origin" /data
mounted() { findmnt -n -t fuse.penstock "$work/data"; }
check "its mount is visible outside the container" wait_until 30 mounted
check "bytes read outside the container are right" diff -r "$work/served" "$work/data" -x .penstock
sums() { (cd "$work/served" && sha256sum -- *.tar); }
sums >"$work/sums"
check "bytes read inside the container are right" \
	podman exec -i mount sh -c 'cd /data && sha256sum -c' <"$work/sums"
check "penstock-loader loads inside" podman exec mount penstock-loader bench --epochs 1 /data
check "status works inside the container" podman exec mount penstock status /data
check "the cache is in the volume" grep . <(ls -A "$work/cache")
podman logs mount >"$work/stdout" 2>"$work/stderr"
check "the container's log is on stderr" grep -F 'on /data' "$work/stderr"
check "nothing is on stdout" not grep . "$work/stdout"
begin=$SECONDS
check "the container stops" podman stop -t 60 mount
check "the container stops at once, by SIGTERM" test $((SECONDS - begin)) -lt 30
check "the container's exit code is 0" test "$(podman inspect -f '{{.State.ExitCode}}' mount)" = 0
check "the mount is gone" not mounted
podman logs mount >"$work/stdout" 2>"$work/stderr"
check "the log has the unmounting" grep -F 'mount: /data: unmounted' "$work/stderr"

# A daemon in a container without a syslog: process 1 has the container's stderr.
# shellcheck disable=SC2016 # for the container's shell
check "a container that mounts and then loads starts" run -d --name load "${fuse[@]}" "${cache[@]}" "$name" \
	sh -c 'penstock mount "$0" /mnt && penstock-loader bench --epochs 1 /mnt && exec sleep 1000' "$origin"
loaded() { podman logs load 2>&1 | grep -F bottleneck; }
check "that container loads" wait_until 60 loaded
podman logs load >"$work/stdout" 2>"$work/stderr"
check "the daemon's log is on the container's stderr" grep -F 'on /mnt' "$work/stderr"
check "it reads what the first container has cached" \
	podman exec load sh -c 'penstock status /mnt | grep -E "origin +0 B|in 0 requests|[^0-9]0 B in"'
check "that container is removed" podman rm -f -t 1 load
check "no process is left" not pgrep -x penstock
umount "$work/data"
stop_nginx
podman rm -a -f >"$work/out" 2>&1
verdict
