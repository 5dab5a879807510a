#!/usr/bin/env bash
# Where a daemon's log is written: the journal of systemd, with fields; syslog; in a container without either
# the stderr that the container keeps, and else nowhere, which is said once.
. "$(dirname "$0")/../lib.sh"
requires mount root unshare mount-namespace
[[ ${1-} == inside ]] || exec unshare -m --propagation private bash "$0" inside

mkdir -p "$T/data" "$MNT"
echo hello >"$T/data/a.bin"
mount -t tmpfs tmpfs /run
[[ ! -e /dev/log || -L /dev/log ]] || skip_all "a syslog listens here: $(ls -l /dev/log)"
mkdir -p /run/systemd/journal
# SOCKET FILE: each datagram that arrives, in a line as Python prints it.
cat >"$T/listen.py" <<'PY'
import os, socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.bind(sys.argv[1])
with open(sys.argv[2], "w", buffering=1) as out:
    while True:
        print(s.recv(65536).replace(b"\n", b" "), file=out)
PY
mount_it() { penstock mount "$T/data" "$MNT" --cache-dir "$CACHE" "$@"; }

"$python" "$T/listen.py" /run/systemd/journal/socket "$T/journal" &
wait_until 20 test -S /run/systemd/journal/socket || die "a journal listens"
check "mounts beside a journal" mount_it
cat "$MNT/a.bin" >/dev/null
check "unmounts" umount_penstock
entry="b'PRIORITY=6 SYSLOG_FACILITY=3 SYSLOG_IDENTIFIER=penstock SYSLOG_PID=[0-9]* PENSTOCK_CALL=mount"
entry="$entry PENSTOCK_OBJECT=$MNT MESSAGE=mount: $MNT: unmounted '"
check "an entry of the journal has fields" wait_until 20 grep -qx -- "$entry" "$T/journal"
check "a sentence has none but those of syslog" grep -q 'SYSLOG_PID=[0-9]* MESSAGE=' "$T/journal"

# As under a unit, whose stderr is a stream of the journal's, and whose lines would all have one priority.
before=$(wc -l <"$T/journal")
stream=$(stat -Lc %d:%i "$T/journal")
JOURNAL_STREAM=$stream penstock mount -f "$T/data" "$MNT" --cache-dir "$CACHE" 2>>"$T/journal" &
daemon=$!
wait_until 20 is_mounted || die "mounts in the foreground"
umount_penstock && wait "$daemon"
check "a stderr that is the journal's gets entries, too" wait_until 20 \
	bash -c "tail -n +$((before + 1)) '$T/journal' | grep -qx -- \"\$0\"" "$entry"
check_not "and no lines" grep -q '^penstock:' "$T/journal"
JOURNAL_STREAM=1:1 penstock mount -f "$T/data" "$MNT" --cache-dir "$CACHE" 2>"$T/stderr" &
daemon=$!
wait_until 20 is_mounted || die "mounts in the foreground again"
umount_penstock && wait "$daemon"
check "another stderr gets lines" grep -qx "penstock: info: mount: $MNT: unmounted" "$T/stderr"
kill %1
rm /run/systemd/journal/socket

if [[ -e /dev/log ]]; then
	skip "without a syslog" "/dev/log leads to $(readlink -f /dev/log)"
else
	mount_it 2>"$T/stderr" || die "mounts where nothing listens"
	umount_penstock
	equal "and says so once" \
		"penstock: no syslog listens on /dev/log: there is no log; give --log FILE, " \
		"$(sed 's/or mount with -f, .*//' "$T/stderr")"
	# A container: process 1 has the stderr that its manager keeps.
	printf '%s\n' "penstock mount '$T/data' '$MNT' --cache-dir '$CACHE'" "penstock umount '$MNT'" \
		"until grep -q unmounted $T/stderr; do sleep 0.05; done" >"$T/container.sh"
	unshare --pid --fork --kill-child --mount --propagation private --mount-proc \
		bash "$T/container.sh" 2>"$T/stderr"
	check "in a container lines go to its stderr" \
		grep -qx "penstock: info: mount: $MNT: unmounted" "$T/stderr"
	equal "which is said once" 1 "$(grep -c "no syslog .*: the log goes to stderr" "$T/stderr")"
fi
