#!/usr/bin/env bash
# A daemon does not wait until its helper has closed a backing id. If both die before that, the next daemon
# closes the id: else the kernel would keep the blocks of the evicted data file until the mount ends.
. "$(dirname "$0")/../../lib.sh"
requires mount nginx jq root mkfs.ext4

release=$(uname -r)
[[ $(printf '%s\n' 6.10 "${release%%-*}" | sort -V | head -n 1) == 6.10 ]] ||
	skip_all "needs Linux 6.10 or later"

mkdir -p "$T/www"
random_file "$T/www/large.bin" 60000000 1
random_file "$T/www/small.bin" 1000 2
start_nginx
make_disk "$T/disk" 260M
CACHE=$T/disk/cache
mount_penstock "$ORIGIN/" --cache-size 160M
[[ $(stats .passthrough.active) == true ]] || skip_all "there is no passthrough here"
pid=$(stats .pid)
helper=$(pgrep -x -P "$pid" penstock-helper) || skip_all "the daemon has no helper here"

check "a file is read" cmp "$MNT/large.bin" "$T/www/large.bin"
cat "$MNT/small.bin" >/dev/null
check "the files are cached" wait_until 20 "$BASH" -c "for name in large small; do
	[[ \$(getfattr -n user.penstock.state --only-values '$MNT/'\$name.bin) == cached ]] || exit 1; done"
exec 7<"$MNT/large.bin"
equal "the open file is passed through" 1 "$(stats .passthrough.open)"
# The next daemon closes the last ids in any case: this id is not one of them.
for _ in {1..800}; do
	read -rn 1 <"$MNT/small.bin" || true
done
at_least "later files had other ids" 800 "$(stats .passthrough.opens)"

kill -STOP "$helper"
exec 7<&-
closed() { (($(stats .passthrough.open) == 0)); }
check "a close does not wait for the helper" wait_until 10 closed
sleep 1.1 # a daemon that is killed earlier counts as one that did not start
kill -KILL "$pid"
served_again() { [[ $(stats .pid 2>/dev/null) != "$pid" ]]; }
check "the next daemon answers" wait_until 10 served_again
before=$(stat -f -c '%f * %S' "$T/disk")
check "it evicts the file" penstock evict "$MNT" large.bin
freed() { (($(stat -f -c '%f * %S' "$T/disk") - (before) > 55000000)); }
check "the disk has its blocks again" wait_until 10 freed
kill -CONT "$helper"
ended() { ! kill -0 "$helper" 2>/dev/null; }
check "the dead daemon's helper ends" wait_until 10 ended
check "the mount serves on" cmp "$MNT/large.bin" "$T/www/large.bin"
umount_penstock
