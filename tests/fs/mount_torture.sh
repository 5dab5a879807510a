#!/usr/bin/env bash
# The daemon without memory: each allocation in turn fails on the way of each thing that can be asked of a
# mount (reads, names, ioctls, plans, listing again, its own files) and of its control socket, and in the
# programs that ask. The caller gets an error, no other suffers, and what was asked works once there is memory
# again.
. "$(dirname "$0")/../lib.sh"
requires mount

[[ -x $top_builddir/tests/fs/penstock_faults ]] || skip_all "tests/fs/penstock_faults is not built"
mkdir -p "$T/bin" "$T/www"
ln -s "$top_builddir/tests/fs/penstock_faults" "$T/bin/penstock"
PATH=$T/bin:$PATH
for i in 0 1 2; do
	head -c 1500000 /dev/zero | tr '\0' "$i" >"$T/www/f$i.bin"
done
head -c 4096 /dev/zero >"$T/faults"
PENSTOCK_FAULTS=$T/faults mount_penstock "$T/www"
pid=$(daemon_pid)
torture() { "$python" "$top_srcdir/tests/fs/torture.py" "$@"; }
# The answers that are none of those one may have.
torture_all() {
	local rc=0
	torture "$T/faults" "$MNT" "$CACHE" "$1" >"$T/told" 2>"$T/torture.err" || rc=$?
	equal "$2: every request came to its end" "0 " "$rc $(tail -n 3 "$T/torture.err")"
	equal "$2: nothing is answered but what was asked for, or that there is no memory" "" \
		"$(awk -F '\t' '$4 != $2 && $4 !~ /^(ENOMEM|ECONNRESET|error: (.*: )?out of memory)$/' "$T/told")"
	at_least "$2: there was something to fail" 150 \
		"$(awk '{n += $3} END {print n + 0}' FS='\t' "$T/told")"
	equal "$2: the daemon is the one that it was" "$pid" "$(daemon_pid)"
}
torture_all "$T/www" "a folder"
# What asks does not crash either, says what it lacks, and leaves nothing. (Some libfuse ends a mount
# for which it has no memory without a word.)
mkdir "$T/second"
client() {
	local what=$1
	shift
	torture --client "$T/faults" env PENSTOCK_FAULTS="$T/faults" "$@" >"$T/told" 2>&1 ||
		fail "$what" "$(tail -n 3 "$T/told")"
	equal "$what: ends, or says that there is no memory" "" \
		"$(grep -vE $'^[0-9]+\t(0 |1 penstock.*(memory|was unmounted at once|not a penstock mount))' "$T/told" || true)"
}
client status penstock status "$MNT"
client refresh penstock refresh "$MNT"
# shellcheck disable=SC2016 # the inner shell's
client mount sh -c 'penstock mount "$0" "$1" --cache-dir "$2" && PENSTOCK_FAULTS= penstock umount "$1"' \
	"$T/www" "$T/second" "$CACHE"
check_not "want of memory is not taken for an origin that does not answer" grep \
	-q "the origin does not answer" "$T/penstock.log"
umount_penstock

# A clock of the day that is set by hours moves no interval: the source is listed again in time, and what has
# changed seen.
PENSTOCK_FAULTS=$T/faults mount_penstock "$T/www" --refresh 1s --revalidate 1s
for s in -36000 36000 -315360000; do
	torture --clock "$T/faults" "$s"
	random_file "$T/www/new$s.bin" 100000 "$s"
	check "a clock set by $s s: a new file comes" wait_until 10 cmp -s "$MNT/new$s.bin" "$T/www/new$s.bin"
	random_file "$T/www/new$s.bin" 100001 "other$s"
	check "and a new version of it" wait_until 10 cmp -s "$MNT/new$s.bin" "$T/www/new$s.bin"
done
check "the status can be told" penstock status "$MNT"
umount_penstock
