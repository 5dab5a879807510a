#!/usr/bin/env bash
# Programs that read a passed-through file go on after kill -9; when the next daemon evicts that file, its
# blocks are still taken though that daemon counts them no more: the disk is not filled past the floor.
. "$(dirname "$0")/../lib.sh"
requires mount nginx root mkfs.ext4

mkdir -p "$T/www"
for i in 1 2 3; do
	random_file "$T/www/$i.bin" 60000000 "$i"
done
start_nginx
make_disk "$T/disk" 260M
CACHE=$T/disk/cache
floor=$((60 << 20))
start() { mount_penstock "$ORIGIN/" --cache-size 160M --min-free "$floor"; }

start
[[ $(stats .passthrough.active) == true ]] || skip_all "the kernel passes nothing through here"
check "reads a file" cmp "$MNT/1.bin" "$T/www/1.bin"
check "which is cached" wait_until 20 "$BASH" \
	-c "[[ \$(getfattr -n user.penstock.state --only-values '$MNT/1.bin') == cached ]]"
exec 7<"$MNT/1.bin"
equal "and passed through" 1 "$(stats .passthrough.open)"
kill_penstock
start 7<&- # a daemon would keep it
check "the next daemon evicts it" penstock evict "$MNT" 1.bin
for i in 2 3; do
	check "what does not fit is right all the same ($i)" cmp "$MNT/$i.bin" "$T/www/$i.bin"
done
at_least "the floor holds" "$floor" "$(($(stat -f -c '%a * %S' "$T/disk")))"
equal "the reader of the dead mount reads on" "$(sha256sum <"$T/www/1.bin")" "$(sha256sum <&7)"
exec 7<&-
check "once it has gone there is room" wait_until 30 penstock warm "$MNT" 3.bin
