#!/usr/bin/env bash
# A user who is not root mounts and unmounts by fusermount3: the user's defaults, what other users may not do,
# and errors.
. "$(dirname "$0")/../../lib.sh"
requires mount root unshare setpriv fusermount3 jq mount-namespace
[[ -u $(readlink -f "$(command -v fusermount3)") ]] || skip_all "fusermount3 is not set-uid"

# The test has a mount namespace with a device that the user may open, and its own /etc/fuse.conf.
[[ ${1-} == inside ]] || exec unshare -m --propagation private bash "$0" inside
forget_others_mounts
mkdir "$T/dev"
mount -t tmpfs none "$T/dev"
device() { mknod -m 666 "$T/dev/fuse" c 10 229 && mount --bind "$T/dev/fuse" /dev/fuse && : <>/dev/fuse; }
device 2>"$T/device.out" || skip_all "no device file can be made here"
touch "$T/fuse.conf"
mount --bind "$T/fuse.conf" /etc/fuse.conf 2>"$T/device.out" || skip_all "there is no /etc/fuse.conf"

source="$T/a,user_id=0,b\\c" # looks like an option of the mount
mkdir -p "$source" "$T/home" "$T/m1" "$T/m2" "$T/roots" "$T/mine"
random_file "$source/f.bin" 3000000
make_shards "$source" 1 1000000
cp -r "$source" "$T/copy" # the loader takes a backslash for a part of a pattern
echo mine >"$T/mine/f.txt"
chmod -R a+rX "$T"
chown 65534 "$T/home" "$T/m1" "$T/m2"
as_user() {
	setpriv --reuid=65534 --regid=65534 --clear-groups -- timeout 60 \
		env -u XDG_CACHE_HOME -u XDG_CONFIG_HOME -u PENSTOCK_CACHE_DIR \
		-u PENSTOCK_CONFIG HOME="$T/home" "$@"
}
# refused WHAT TEXT COMMAND...: the command must fail with TEXT.
refused() {
	local rc=0
	as_user "${@:3}" >"$T/out" 2>&1 || rc=$?
	equal "$1: is refused" 1 "$rc"
	check "$1: the error has the reason" grep -qF "$2" "$T/out"
}

check "a user mounts" as_user penstock mount "$source/" "$T/m1"
check "the user reads a file" as_user cmp "$source/f.bin" "$T/m1/f.bin"
if [[ -x $top_builddir/penstock-loader ]]; then
	samples() { as_user "$top_builddir/penstock-loader" pack --repack "$1/shard-000000.tar" - | sha256sum; }
	check "a shard is cached" as_user penstock warm -q "$T/m1" shard-000000.tar
	equal "the user's loader reads the same samples" "$(samples "$T/copy")" "$(samples "$T/m1")"
	equal "the user's loader is handed the data file" 1 \
		"$(as_user penstock status "$T/m1" --json | jq '.mounts[0].modes.handed_over')"
fi
equal "the cache is in the user's folder, and only the user may read it" "700 65534" \
	"$(stat -c '%a %u' "$T/home/.cache/penstock")"
equal "mountinfo has the source unchanged" "$source" \
	"$(printf %b "$(awk -v where="$T/m1" '$5 == where {sub("file://", "", $9); sub("/$", "", $9); print $9}' /proc/self/mountinfo | sed 's/\\/\\0/g')")"
check_not "other users cannot list the mount" ls "$T/m1"
rc=0
setpriv --reuid=65533 --regid=65533 --clear-groups -- "$top_builddir/penstock" status \
	"$T/m1" >"$T/out" 2>&1 || rc=$?
equal "status says that the mount belongs to another user" \
	"1 1" "$rc $(grep -c 'belongs to another user' "$T/out")"
check "root sees the mount's status" penstock status "$T/m1"
check "root sees the mount's metrics" \
	grep -F "penstock_mount_files{cache_dir=\"$T/home/.cache/penstock\",mount=\"$T/m1\"} 2" <(penstock metrics)
equal "other users' metrics do not list the mount" 0 \
	"$(setpriv --reuid=65533 --regid=65533 --clear-groups -- "$top_builddir/penstock" metrics 2>/dev/null | grep -c "$T/m1")"
rc=0
as_user env -u HOME penstock mount "$T/mine/" "$T/m2" >"$T/out" 2>&1 || rc=$?
equal "a mount without HOME and --cache-dir is refused" \
	"1 penstock mount: no cache folder: give --cache-dir DIR, or set PENSTOCK_CACHE_DIR or HOME" \
	"$rc $(cat "$T/out")"
release=$(uname -r)
release=${release%%-*}
has_keeper() { [[ $(printf '%s\n' 6.10 "$release" | sort -V | head -n 1) == 6.10 ]]; }
if has_keeper; then
	as_user cat "$T/m1/shard-000000.tar" >"$T/out"
	killed() { [[ $(as_user jq .pid "$T/m1/.penstock/stats") != "$1" ]]; }
	for round in 1 2; do
		pid=$(as_user jq .pid "$T/m1/.penstock/stats")
		kill -KILL "$pid"
		check "a mount by fusermount3 outlives its daemon ($round)" as_user cmp "$source/f.bin" "$T/m1/f.bin"
		check "another process serves it ($round)" killed "$pid"
		sleep 1.1
	done
	check "its user still sees its names" as_user cmp "$source/shard-000000.tar" "$T/m1/shard-000000.tar"
	check_not "others still do not" ls "$T/m1"
else
	skip "a mount by fusermount3 outlives its daemon" "needs Linux 6.10 or later"
fi
check "a second mount joins the daemon" as_user penstock mount "$T/mine/" "$T/m2"
equal "the daemon serves both mounts" \
	2 "$(as_user penstock status --cache-dir "$T/home/.cache/penstock" --json | jq '.mounts | length')"
check "umount of the second mount succeeds" as_user penstock umount "$T/m2"
check_not "the second mount is gone at once" is_mounted "$T/m2"

as_user "$python" -c 'import os, sys, time
f = open(sys.argv[1], "rb")
open(sys.argv[2], "w").close()
while os.path.exists(sys.argv[2]): time.sleep(0.05)
sys.exit(len(f.read()) != 3000000)' "$T/m1/f.bin" "$T/home/open" &
holder=$!
check "a program opens a file" wait_until 20 test -e "$T/home/open"
refused "umount of a busy mount" "open file" penstock umount "$T/m1"
check "the busy mount stays mounted" is_mounted "$T/m1"
check "umount --lazy detaches it" as_user penstock umount --lazy "$T/m1"
check_not "umount --lazy unmounts at once" is_mounted "$T/m1"
rm "$T/home/open"
rc=0
wait "$holder" || rc=$?
equal "the program with the open file reads on" 0 "$rc"
check "the daemon ends when the file is closed" wait_until 30 no_daemon

mkdir -p "$T/home/.config"
printf '[data]\nsource = %s/\nmountpoint = %s\n' "$source" "$T/m1" >"$T/home/.config/penstock.conf"
check "a name of the user's own penstock.conf is mounted" as_user penstock mount data
check "the mount by name has the source's file" as_user cmp "$source/f.bin" "$T/m1/f.bin"
check "the mount is unmounted by its name" as_user penstock umount data
check "the daemon ends with its last mount" wait_until 30 no_daemon

refused "--allow_other, without user_allow_other" "user_allow_other" penstock mount "$source/" "$T/m1" \
	--allow_other
refused "a folder that is not the user's" "$T/roots" penstock mount "$source/" "$T/roots"
chmod 600 "$T/dev/fuse"
refused "a device that only root may open" "chmod 0666 /dev/fuse" penstock mount "$source/" "$T/m1"
chmod 660 "$T/dev/fuse"
chgrp video "$T/dev/fuse"
refused "a device of a group" "join its group (usermod -aG video USER)" penstock mount "$source/" "$T/m1"
chmod 666 "$T/dev/fuse"
refused "without fusermount3" "install fusermount3" env PATH="$top_builddir" penstock mount "$source/" "$T/m1"
check "no daemon is left of the refused mounts" wait_until 30 no_daemon
equal "no mount is left of the refused mounts" 0 "$(grep -c fuse.penstock /proc/self/mountinfo)"

check "noexec, by fusermount3" as_user penstock mount "$source/" "$T/m1" -o noexec,noatime
check "it holds" grep -q " $T/m1 fuse.penstock ro,nosuid,nodev,noexec,noatime" /proc/mounts
check "the mount with noexec is unmounted" as_user penstock umount "$T/m1"
refused "an option that fusermount3 does not know" "strictatime" penstock mount "$source/" "$T/m1" \
	-o strictatime

# Without /etc/mtab, and as a user without an entry in /etc/passwd: small containers.
check "a mount for the next test" as_user penstock mount "$source/" "$T/m1"
without_mtab() {
	# shellcheck disable=SC2016 # for the inner shell
	unshare -m bash -c 'mount -t tmpfs none "$1" && cp -a /etc/fuse.conf /etc/passwd /etc/group "$1" &&
		mount --rbind "$1" /etc && shift && exec "$@"' - "$T/etc" "$@"
}
mkdir "$T/etc"
rc=0
without_mtab setpriv --reuid=65534 --regid=65534 --clear-groups -- \
	env HOME="$T/home" "$top_builddir/penstock" umount "$T/m1" >"$T/out" 2>&1 || rc=$?
equal "umount without /etc/mtab fails" 1 "$rc"
check "with fusermount3's own words, and what to do" \
	grep -q "not permitted: .*/etc/mtab.*ln -s /proc/self/mounts /etc/mtab" "$T/out"
check_not "and does not call it another user's" grep -q "another user" "$T/out"
check "with /etc/mtab it works" as_user penstock umount "$T/m1"
chown 64321 "$T/m2"
rc=0
setpriv --reuid=64321 --regid=64321 --clear-groups -- "$top_builddir/penstock" mount "$source/" "$T/m2" \
	--cache-dir "$T/m2/../c64321" >"$T/out" 2>&1 || rc=$?
check "a user ID without a name is told what is missing" test "$rc" = 1

echo user_allow_other >"$T/fuse.conf"
check "--allow_other, with user_allow_other" as_user penstock mount "$source/" "$T/m1" --allow_other
check "other users read a mount with --allow_other" cmp "$source/f.bin" "$T/m1/f.bin"
check "root unmounts a user's mount" penstock umount "$T/m1"
mount_penstock "$source/" --allow_other
refused "umount of root's mount" "another user" penstock umount "$MNT"
check "root's mount still serves its file" cmp "$source/f.bin" "$MNT/f.bin"

if has_keeper; then
	check "a user's mount" as_user penstock mount "$source/" "$T/m1"
	pid=$(as_user jq .pid "$T/m1/.penstock/stats")
	"$python" "$top_srcdir/tests/fs/daemon/kill_starts.py" "$(awk '/^PPid:/ {print $2}' "/proc/$pid/status")" "$pid" dies
	check_not "whose daemons all die: an error" as_user cat "$T/m1/f.bin"
	cleared() { ! is_mounted "$T/m1"; }
	check "the user's keeper has it unmounted" wait_until 10 cleared
fi
