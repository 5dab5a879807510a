#!/usr/bin/env bash
# A user who is not root mounts and unmounts by fusermount3: with its own defaults, what others may not, and
# its errors.
. "$(dirname "$0")/../lib.sh"
requires mount root unshare setpriv fusermount3 jq mount-namespace
[[ -u $(readlink -f "$(command -v fusermount3)") ]] || skip_all "fusermount3 is not set-uid"

# In a namespace of its own: a device that the user may open, and an /etc/fuse.conf of ours.
[[ ${1-} == inside ]] || exec unshare -m --propagation private bash "$0" inside
# The mounts of tests that run beside this one are not kept alive by copies of them.
awk '$3 ~ /^fuse/ {print $2}' /proc/self/mounts | xargs -r -n 1 umount -l
mkdir "$T/dev"
mount -t tmpfs none "$T/dev"
device() { mknod -m 666 "$T/dev/fuse" c 10 229 && mount --bind "$T/dev/fuse" /dev/fuse && : <>/dev/fuse; }
device 2>"$T/device.out" || skip_all "a device of its own cannot be made here"
touch "$T/fuse.conf"
mount --bind "$T/fuse.conf" /etc/fuse.conf 2>"$T/device.out" || skip_all "there is no /etc/fuse.conf"

source="$T/a,b\\c"
mkdir -p "$source" "$T/home" "$T/m1" "$T/m2" "$T/roots" "$T/mine"
random_file "$source/f.bin" 3000000
echo mine >"$T/mine/f.txt"
chmod -R a+rX "$T"
chown 65534 "$T/home" "$T/m1" "$T/m2"
as_user() {
	setpriv --reuid=65534 --regid=65534 --clear-groups -- timeout 60 \
		env -u XDG_CACHE_HOME -u XDG_CONFIG_HOME -u PENSTOCK_CACHE_DIR \
		-u PENSTOCK_CONFIG HOME="$T/home" "$@"
}
# refused WHAT TEXT COMMAND...: it fails, and says that.
refused() {
	local rc=0
	as_user "${@:3}" >"$T/out" 2>&1 || rc=$?
	equal "$1: is refused" 1 "$rc"
	check "$1: it is told why" grep -qF "$2" "$T/out"
}

check "a user mounts" as_user penstock mount "$source/" "$T/m1"
check "and reads" as_user cmp "$source/f.bin" "$T/m1/f.bin"
equal "the cache is in the user's folder, for nobody else" "700 65534" \
	"$(stat -c '%a %u' "$T/home/.cache/penstock")"
equal "the kernel's table has the source as it is" "$source" \
	"$(printf %b "$(awk -v where="$T/m1" '$5 == where {sub("file://", "", $9); sub("/$", "", $9); print $9}' /proc/self/mountinfo | sed 's/\\/\\0/g')")"
check_not "others see nothing" ls "$T/m1"
rc=0
setpriv --reuid=65533 --regid=65533 --clear-groups -- "$top_builddir/penstock" status \
	"$T/m1" >"$T/out" 2>&1 || rc=$?
equal "others are told that it is not theirs" "1 1" "$rc $(grep -c 'belongs to another user' "$T/out")"
check "root sees its status" penstock status "$T/m1"
check "and its metrics" grep -F "penstock_mount_files{cache_dir=\"$T/home/.cache/penstock\",mount=\"$T/m1\"} 1" <(penstock metrics)
equal "others see neither, nor an alarm" 0 \
	"$(setpriv --reuid=65533 --regid=65533 --clear-groups -- "$top_builddir/penstock" metrics 2>/dev/null | grep -c "$T/m1")"
rc=0
as_user env -u HOME penstock mount "$T/mine/" "$T/m2" >"$T/out" 2>&1 || rc=$?
equal "without a home the cache has no place" \
	"1 penstock mount: no cache folder: give --cache-dir DIR, or set PENSTOCK_CACHE_DIR or HOME" \
	"$rc $(cat "$T/out")"
check "a second mount joins the daemon" as_user penstock mount "$T/mine/" "$T/m2"
equal "which serves both" 2 "$(as_user penstock status --cache-dir "$T/home/.cache/penstock" --json | jq '.mounts | length')"
check "umount takes it away" as_user penstock umount "$T/m2"
check_not "at once" is_mounted "$T/m2"

as_user "$python" -c 'import os, sys, time
f = open(sys.argv[1], "rb")
open(sys.argv[2], "w").close()
while os.path.exists(sys.argv[2]): time.sleep(0.05)
sys.exit(len(f.read()) != 3000000)' "$T/m1/f.bin" "$T/home/open" &
holder=$!
check "a program opens a file" wait_until 20 test -e "$T/home/open"
refused "umount of a busy mount" "open file" penstock umount "$T/m1"
check "it is still there" is_mounted "$T/m1"
check "umount --lazy detaches it" as_user penstock umount --lazy "$T/m1"
check_not "at once, too" is_mounted "$T/m1"
rm "$T/home/open"
rc=0
wait "$holder" || rc=$?
equal "who had it open reads on" 0 "$rc"
check "then the daemon ends" wait_until 30 no_daemon

mkdir -p "$T/home/.config"
printf '[data]\nsource = %s/\nmountpoint = %s\n' "$source" "$T/m1" >"$T/home/.config/penstock.conf"
check "a name of the user's own penstock.conf" as_user penstock mount data
check "is what it says" as_user cmp "$source/f.bin" "$T/m1/f.bin"
check "and unmounted by its name" as_user penstock umount data
check "so the daemon ends" wait_until 30 no_daemon

refused "--allow_other, without user_allow_other" "user_allow_other" penstock mount "$source/" "$T/m1" \
	--allow_other
refused "a folder that is not the user's" "$T/roots" penstock mount "$source/" "$T/roots"
chmod 600 "$T/dev/fuse"
refused "a device that is root's alone" "chmod 0666 /dev/fuse" penstock mount "$source/" "$T/m1"
chmod 660 "$T/dev/fuse"
chgrp video "$T/dev/fuse"
refused "a device of a group" "join its group (usermod -aG video USER)" penstock mount "$source/" "$T/m1"
chmod 666 "$T/dev/fuse"
refused "without fusermount3" "install fusermount3" env PATH="$top_builddir" penstock mount "$source/" "$T/m1"
check "no daemon is left of that" wait_until 30 no_daemon
equal "nor a mount" 0 "$(grep -c fuse.penstock /proc/self/mountinfo)"

echo user_allow_other >"$T/fuse.conf"
check "--allow_other, with user_allow_other" as_user penstock mount "$source/" "$T/m1" --allow_other
check "others read" cmp "$source/f.bin" "$T/m1/f.bin"
check "and root unmounts it" penstock umount "$T/m1"
mount_penstock "$source/" --allow_other
refused "umount of root's" "another user's" penstock umount "$MNT"
check "it still works" cmp "$source/f.bin" "$MNT/f.bin"
