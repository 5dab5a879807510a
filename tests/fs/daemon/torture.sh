#!/usr/bin/env bash
# The daemon without memory: each allocation in turn fails, during each kind of request to a mount (reads,
# names, ioctls, plans, refreshes, its own files) and to its control socket, and in the client programs. The
# caller gets an error, other callers are not affected, and the request works once there is memory again.
. "$(dirname "$0")/../../lib.sh"
requires mount

[[ -x $top_builddir/tests/fs/daemon/penstock_faults ]] || skip_all "tests/fs/daemon/penstock_faults is not built"
mkdir -p "$T/bin" "$T/www"
ln -s "$top_builddir/tests/fs/daemon/penstock_faults" "$T/bin/penstock"
PATH=$T/bin:$PATH
for i in 0 1 2; do
	head -c 1500000 /dev/zero | tr '\0' "$i" >"$T/www/f$i.bin"
done
head -c 4096 /dev/zero >"$T/faults"
PENSTOCK_FAULTS=$T/faults mount_penstock "$T/www"
pid=$(daemon_pid)
torture() { "$python" "$top_srcdir/tests/fs/daemon/torturer.py" "$@"; }
# torture_all SOURCE WHAT: fails allocations during all requests, and checks the answers.
torture_all() {
	local rc=0
	torture "$T/faults" "$MNT" "$CACHE" "$1" >"$T/told" 2>"$T/torture.err" || rc=$?
	equal "$2: every request has ended" "0 " "$rc $(tail -n 3 "$T/torture.err")"
	equal "$2: each answer is the right one or reports that there is no memory" "" \
		"$(awk -F '\t' '$4 != $2 && $4 !~ /^(ENOMEM|ECONNRESET|error: (.*: )?out of memory)$/' "$T/told")"
	at_least "$2: at least 150 allocations failed" 150 \
		"$(awk '{n += $3} END {print n + 0}' FS='\t' "$T/told")"
	equal "$2: the daemon is the same process" "$pid" "$(daemon_pid)"
}
torture_all "$T/www" "a folder"
# Client programs do not crash either, report that there is no memory, and leave nothing. (Some versions of
# libfuse end a mount without a message if they have no memory.)
mkdir "$T/second"
client() {
	local what=$1
	shift
	torture --client "$T/faults" env PENSTOCK_FAULTS="$T/faults" "$@" >"$T/told" 2>&1 ||
		fail "$what" "$(tail -n 3 "$T/told")"
	equal "$what: the program succeeds or reports that there is no memory" "" \
		"$(grep -vE $'^[0-9]+\t(0 |1 penstock.*(memory|was unmounted at once|not a penstock mount))' "$T/told" || true)"
}
client status penstock status "$MNT"
client refresh penstock refresh "$MNT"
# shellcheck disable=SC2016 # for the inner shell
client mount sh -c 'penstock mount "$0" "$1" --cache-dir "$2" && PENSTOCK_FAULTS= penstock umount "$1"' \
	"$T/www" "$T/second" "$CACHE"
check_not "a lack of memory is not reported as an origin that does not answer" grep \
	-q "the origin does not answer" "$T/penstock.log"
umount_penstock

# Setting the wall clock does not affect intervals: the source is listed again in time, and changes are seen.
PENSTOCK_FAULTS=$T/faults mount_penstock "$T/www" --refresh 1s --revalidate 1s
for s in -36000 36000 -315360000; do
	torture --clock "$T/faults" "$s"
	random_file "$T/www/new$s.bin" 100000 "$s"
	check "a clock set by $s s: a new file is shown" \
		wait_until 10 cmp -s "$MNT/new$s.bin" "$T/www/new$s.bin"
	random_file "$T/www/new$s.bin" 100001 "other$s"
	check "a clock set by $s s: a new version is shown" \
		wait_until 10 cmp -s "$MNT/new$s.bin" "$T/www/new$s.bin"
done
check "status works after the clock changes" penstock status "$MNT"
umount_penstock
