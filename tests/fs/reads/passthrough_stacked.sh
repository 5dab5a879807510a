#!/usr/bin/env bash
# Files of a cache on overlayfs, as in a container, are passed through. On a file system that is stacked too
# deep they are not, and status says why.
. "$(dirname "$0")/../../lib.sh"
requires mount nginx root

mkdir -p "$T/www"
random_file "$T/www/1.bin" 5000001
start_nginx
mount_penstock "$ORIGIN/"
[[ $(stats .passthrough.active) == true ]] || skip_all "no passthrough here: $(stats .passthrough.reason)"
umount_penstock

# stack BELOW NAME: an overlayfs at $T/NAME whose lower folder is BELOW.
stack() {
	mkdir -p "$T/$2" "$T/$2.upper" "$T/$2.work"
	mount -t overlay "$2" -o "lowerdir=$1,upperdir=$T/$2.upper,workdir=$T/$2.work" "$T/$2"
}
read_twice() {
	cmp "$MNT/1.bin" "$T/www/1.bin" &&
		wait_until 10 "$BASH" -c \
		"[[ \$(getfattr --only-values -n user.penstock.state '$MNT/1.bin') == cached ]]" &&
		cmp "$MNT/1.bin" "$T/www/1.bin"
}

mkdir "$T/empty"
stack "$T/empty" one 2>"$T/overlay.err" || skip_all "no overlayfs here: $(cat "$T/overlay.err")"
CACHE=$T/one/cache
mount_penstock "$ORIGIN/"
check "with a cache on overlayfs a file is right" read_twice
equal "with a cache on overlayfs the file is passed through" 1 "$(stats '.mounts[0].modes.passed.opens')"
umount_penstock

stack "$T/one" two
CACHE=$T/two/other
mount_penstock "$ORIGIN/"
check "with a cache on overlayfs on overlayfs a file is right" read_twice
equal "with a cache on overlayfs on overlayfs the daemon serves the file" \
	0 "$(stats '.mounts[0].modes.passed.opens')"
check "status says why there is no passthrough" \
	grep -q "no passthrough: the cache directory is on a stacked file system" <(penstock status "$MNT")
umount_penstock
mount_penstock "$ORIGIN/" --no-passthrough
check "status says that passthrough was turned off" grep -q \
	"no passthrough: turned off (--no-passthrough)" <(penstock status "$MNT")
umount_penstock
umount -l "$T/two" "$T/one"
