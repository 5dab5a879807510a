#!/usr/bin/env bash
# Generic options of mount(8): those of the mount's flags hold, and one that cannot hold is refused. Arguments
# of several mounts.
. "$(dirname "$0")/../../lib.sh"
requires mount root jq mount-namespace

mkdir -p "$T/www" "$MNT" "$T"/m{1..4}
printf '#!/bin/sh\necho it runs\n' >"$T/www/s.sh"
ln -s "$top_builddir/penstock" "$T/mount.penstock"
# Its own options, in the order of the kernel.
flags() { awk -v where="$1" '$2 == where {print $4}' /proc/mounts | cut -d, -f1-6; }
at() { penstock mount "$T/www/" "$1" --cache-dir "$CACHE" --log "$T/penstock.log" "${@:2}"; }
has() { [[ ,$(flags "$1"), == *,"$2",* ]]; }

at "$MNT" --file-mode 0555 -o noexec
check "noexec holds, of the first mount of a daemon" has "$MNT" noexec
check_not "and no file of it can be executed" test -x "$MNT/s.sh"
check "which is still read" grep -q "it runs" "$MNT/s.sh"
at "$T/m1" --file-mode 0555 -o "noexec,noatime,nodiratime"
equal "options hold, of a mount that joins" ro,nosuid,nodev,noexec,noatime,nodiratime "$(flags "$T/m1")"
at "$T/m2" --file-mode 0555
equal "no other mount of that daemon has them" ro,nosuid,nodev,relatime,user_id=0,group_id=0 "$(flags "$T/m2")"
equal "so a file of that runs" "it runs" "$("$T/m2/s.sh")"
check "mount.penstock" "$T/mount.penstock" "$T/www/" "$T/m3" -o \
	"rw,user,sync,strictatime,lazytime,cache-dir=$CACHE"
check "user implies noexec" has "$T/m3" noexec
check "sync holds" has "$T/m3" sync
check_not "strictatime holds" has "$T/m3" relatime
check "lazytime holds" grep -q " $T/m3 .*lazytime" /proc/mounts
before=$(flags "$MNT"; flags "$T/m1")
pid=$(stats .pid)
release=$(uname -r)
release=${release%%-*}
if [[ $(printf '%s\n' 6.10 "$release" | sort -V | head -n 1) == 6.10 ]]; then
	kill -KILL "$pid"
	check "the mount outlives its daemon" cmp "$MNT/s.sh" "$T/www/s.sh"
	check_not "another daemon serves it" test "$(stats .pid)" = "$pid"
	equal "with the same options" "$before" "$(flags "$MNT"; flags "$T/m1")"
	check_not "a file still cannot be executed" test -x "$MNT/s.sh"
fi
check "umount takes several mounts" penstock umount "$T/m3" "$T/m1"
check_not "the first is unmounted" is_mounted "$T/m3"
check_not "and the second" is_mounted "$T/m1"
rc=0
(cd "$T" && penstock umount nothing m2 mnt) >"$T/out" 2>&1 || rc=$?
equal "one of them that is no mount is an error" 1 "$rc"
check "which is told" grep -q "nothing: there is no such folder" "$T/out"
check_not "the others are unmounted, also by relative paths" is_mounted "$T/m2"
check_not "all of them" is_mounted

refused() {
	local rc=0
	at "$MNT" -o "$2" >"$T/out" 2>&1 || rc=$?
	equal "$1: is refused" 2 "$rc"
	check "$1: the error says why" grep -qF "$3" "$T/out"
}
refused "an option of no one" nosuch "unknown mount option 'nosuch'"
refused "an option that cannot be honoured" mand "unknown mount option 'mand'"
[[ -e /sys/fs/selinux/enforce ]] ||
	refused "a label without SELinux" 'context="system_u:object_r:x_t:s0:c1,c2"' "SELinux is not enabled here"

# What the shell makes of braces without quotes.
rc=0
penstock mount http://127.0.0.1:1/x-{000..003}.tar "$MNT" >"$T/out" 2>&1 || rc=$?
equal "braces without quotes are refused" 2 "$rc"
check "and it says to quote them" grep -qF "quote a URL with braces" "$T/out"
rc=0
penstock mount train=http://127.0.0.1:1/x-{000..003}.tar "$MNT" >"$T/out" 2>&1 || rc=$?
equal "also of a source with a name" 2 "$rc"
check "it says to quote them, too" grep -qF "quote" "$T/out"
