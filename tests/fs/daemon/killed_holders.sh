#!/usr/bin/env bash
# Programs that read a passed-through file can read on after kill -9. When the next daemon evicts that file,
# the programs still hold its blocks, which that daemon does not count: the disk must not be filled past
# --min-free.
. "$(dirname "$0")/../../lib.sh"
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
[[ $(stats .passthrough.active) == true ]] || skip_all "there is no passthrough here"
check "a file is read" cmp "$MNT/1.bin" "$T/www/1.bin"
check "the file is cached" wait_until 20 "$BASH" \
	-c "[[ \$(getfattr -n user.penstock.state --only-values '$MNT/1.bin') == cached ]]"
exec 7<"$MNT/1.bin"
equal "the open file is passed through" 1 "$(stats .passthrough.open)"
kill_penstock
start 7<&- # the daemon must not inherit the descriptor
check "the next daemon evicts the file" penstock evict "$MNT" 1.bin
for i in 2 3; do
	check "file $i is right although it may not fit" cmp "$MNT/$i.bin" "$T/www/$i.bin"
done
at_least "--min-free is kept" "$floor" "$(($(stat -f -c '%a * %S' "$T/disk")))"
equal "the reader of the dead mount reads on" "$(sha256sum <"$T/www/1.bin")" "$(sha256sum <&7)"
exec 7<&-
check "once the reader has closed the file there is room" wait_until 30 penstock warm "$MNT" 3.bin
