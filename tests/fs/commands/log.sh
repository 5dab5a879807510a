#!/usr/bin/env bash
# Where a daemon's log is written: to systemd's journal, with fields, or to syslog. Without either it is
# written to the stderr of a container, and otherwise nowhere, which is reported once.
. "$(dirname "$0")/../../lib.sh"
requires mount root unshare mount-namespace
[[ ${1-} == inside ]] || exec unshare -m --propagation private bash "$0" inside
forget_others_mounts

mkdir -p "$T/data" "$MNT"
echo hello >"$T/data/a.bin"
mount -t tmpfs tmpfs /run
[[ ! -e /dev/log || -L /dev/log ]] || skip_all "a syslog daemon listens here: $(ls -l /dev/log)"
mkdir -p /run/systemd/journal
# listen.py SOCKET FILE: writes each datagram to FILE, as a line in Python's notation.
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
check "a mount with a journal succeeds" mount_it
cat "$MNT/a.bin" >/dev/null
# Through a datagram socket the daemon, if in foreign hands, would reach any service that has a named one.
datagram_sockets() {
	find "/proc/$(stats .pid)/fd" -lname 'socket:*' -printf '%l\n' | tr -dc '0-9\n' |
		awk 'NR == FNR {own[$1]; next} $5 == "0002" && $7 in own' - /proc/net/unix | wc -l
}
equal "root's daemon has no datagram socket" 0 "$(datagram_sockets)"
pid=$(stats .pid)
check "umount succeeds" umount_penstock
entry="b'PRIORITY=6 SYSLOG_FACILITY=3 SYSLOG_IDENTIFIER=penstock SYSLOG_PID=[0-9]* PENSTOCK_CALL=mount"
entry="$entry PENSTOCK_OBJECT=$MNT MESSAGE=mount: $MNT: unmounted '"
entry=${entry/'[0-9]*'/$pid}
check "an entry in the journal has fields" wait_until 20 grep -qx -- "$entry" "$T/journal"
check "a message without an object has only the fields of syslog" \
	grep -q 'SYSLOG_PID=[0-9]* MESSAGE=' "$T/journal"

# As under a unit, whose stderr is a stream of the journal. Its lines would all have one priority.
before=$(wc -l <"$T/journal")
stream=$(stat -Lc %d:%i "$T/journal")
JOURNAL_STREAM=$stream penstock mount -f "$T/data" "$MNT" --cache-dir "$CACHE" 2>>"$T/journal" &
daemon=$!
wait_until 20 is_mounted || die "mounts in the foreground"
umount_penstock && wait "$daemon"
check "if stderr is the journal's stream, entries are written to the journal" wait_until 20 \
	bash -c "tail -n +$((before + 1)) '$T/journal' | grep -qx -- \"\$0\"" "${entry/=$pid /=[0-9]* }"
check_not "then no lines are written to stderr" grep -q '^penstock:' "$T/journal"
JOURNAL_STREAM=1:1 penstock mount -f "$T/data" "$MNT" --cache-dir "$CACHE" 2>"$T/stderr" &
daemon=$!
wait_until 20 is_mounted || die "mounts in the foreground again"
umount_penstock && wait "$daemon"
check "lines are written to another stderr" grep -qx "penstock: info: mount: $MNT: unmounted" "$T/stderr"
kill %1
rm /run/systemd/journal/socket

# A syslog that is restarted.
if [[ $(readlink -m /dev/log) == /run/systemd/journal/dev-log ]]; then
	listen() {
		rm -f /run/systemd/journal/dev-log
		"$python" "$T/listen.py" /run/systemd/journal/dev-log "$T/$1" &
		wait_until 20 test -S /run/systemd/journal/dev-log || die "a syslog listens"
		syslog=$!
	}
	listen syslog1
	check "a mount with a syslog succeeds" mount_it
	pid=$(stats .pid)
	equal "the daemon has no datagram socket of syslog" 0 "$(datagram_sockets)"
	check "syslog gets a line with the daemon's pid" \
		wait_until 20 grep -q "^b'<30>.* penstock\[$pid\]: .*$MNT" "$T/syslog1"
	kill "$syslog"
	wait "$syslog" 2>/dev/null || true
	listen syslog2
	umount_penstock
	check "so does a syslog that was restarted" \
		wait_until 20 grep -q "^b'<30>.* penstock\[$pid\]: mount: $MNT: unmounted" "$T/syslog2"
	for last in 3 4 5 6; do
		(
			for ((inherited = 3; inherited <= last; inherited++)); do eval "exec $inherited</dev/null"; done
			mount_it
		)
		pid=$(stats .pid)
		umount_penstock
		check "and all lines of a daemon that has inherited descriptors up to $last" \
			wait_until 20 grep -q "^b'<30>.* penstock\[$pid\]: mount: $MNT: unmounted" "$T/syslog2"
	done
	kill "$syslog"
	rm /run/systemd/journal/dev-log
else
	skip "a syslog that is restarted" "/dev/log leads to $(readlink -m /dev/log)"
fi

# What logrotate does by debian/penstock.logrotate: it empties the file under the daemon.
check "the package's file for logrotate empties logs, without a signal" \
	grep -qx "	copytruncate" "$top_srcdir/debian/penstock.logrotate"
penstock mount "$T/data" "$MNT" --cache-dir "$CACHE" --log "$T/rotated.log"
cp "$T/rotated.log" "$T/rotated.log.1"
: >"$T/rotated.log"
umount_penstock
equal "the daemon then writes from the beginning of the file" 0 "$(grep -cP '\x00' "$T/rotated.log")"
check "the line after the rotation is there" grep -q "unmounted" "$T/rotated.log"

if [[ -e /dev/log ]]; then
	skip "without a syslog" "/dev/log leads to $(readlink -f /dev/log)"
else
	mount_it 2>"$T/stderr" || die "mounts where nothing listens"
	umount_penstock
	equal "a mount without a syslog says nothing, since there was nothing to log" "" "$(cat "$T/stderr")"
	mount_it --cache-size 1E 2>"$T/stderr" || die "mounts with a warning"
	umount_penstock
	equal "if a warning cannot be logged, the mount reports that once" \
		1 "$(grep -c "syslog is not running.*--log FILE" "$T/stderr")"
	# In a container, process 1 has the stderr that the container's manager reads.
	printf '%s\n' "penstock mount '$T/data' '$MNT' --cache-dir '$CACHE'" "penstock umount '$MNT'" \
		"until grep -q unmounted $T/stderr; do sleep 0.05; done" >"$T/container.sh"
	unshare --pid --fork --kill-child --mount --propagation private --mount-proc \
		bash "$T/container.sh" 2>"$T/stderr"
	check "in a container lines are written to the stderr of process 1" \
		grep -qx "penstock: info: mount: $MNT: unmounted" "$T/stderr"
	equal "which is not reported, since nothing is lost" 0 "$(grep -c "syslog is not running" "$T/stderr" || true)"
fi
