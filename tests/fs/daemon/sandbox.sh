#!/usr/bin/env bash
# A daemon has nothing to lose but its cache: no capability but to read, no way to gain one, a filter of
# system calls, and files of its cache alone to change. What needs more works nevertheless, by its helper.
. "$(dirname "$0")/../../lib.sh"
requires mount nginx jq root setpriv

mkdir -p "$T/www" "$T/src" "$MNT" "$T/m2"
for i in 1 2 3; do
	random_file "$T/www/$i.bin" 300000 "$i"
done
start_nginx
status() { penstock status "$MNT" --json | jq -r "$1"; }
# What all threads of the daemon have alike; a thread that differs is one more line.
of() { awk -v name="$1:" '$1 == name {print $2}' "/proc/$(stats .pid)/task/"*/status | sort -u; }
next_pid() { [[ $(stats .pid 2>/dev/null) != "$1" ]]; }
helper() { # PID of the daemon
	local pid
	while read -r pid; do
		! grep -qsx penstock-helper "/proc/$pid/comm" || echo "$pid"
	done < <(cat "/proc/$1/task/"*/children 2>/dev/null | xargs -n 1)
}
kernel() { # MAJOR.MINOR
	local release
	release=$(uname -r)
	[[ $(printf '%s\n' "$1" "${release%%-*}" | sort -V | head -n 1) == "$1" ]]
}

confined() { # WHEN
	equal "$1: its capabilities are to read files of others" "4 4" "$((16#$(of CapPrm))) $((16#$(of CapEff)))"
	equal "$1: it cannot gain any" "1 0" "$(of NoNewPrivs) $((16#$(of CapBnd) & ~4))"
	equal "$1: its system calls are filtered" 2 "$(of Seccomp)"
	equal "$1: status says so" true "$(status .sandbox.active)"
}
mkdir "$T/log"
mount_penstock "$ORIGIN/" --allow_other --log "$T/log/penstock.log"
confined "the first daemon"
landlock=$(status .sandbox.reason)
check "status without --json says so, too" grep -q "sandbox" <(penstock status "$MNT")
helper=$(helper "$(stats .pid)")
check "the helper is there" test -n "$helper"
equal "the helper may mount and open files" 0000000000200006 "$(awk '/^CapEff:/ {print $2}' "/proc/$helper/status")"
equal "the helper has the descriptors of no mount" 0 "$(find "/proc/$helper/fd" -lname /dev/fuse | wc -l)"

for _ in 1 2 3; do
	check "a file is right" cmp "$MNT/1.bin" "$T/www/1.bin"
done
if [[ $(status .passthrough.active) == true ]]; then
	at_least "it is passed through by the helper" 1 "$(status .passthrough.opens)"
else
	skip "it is passed through by the helper" "$(status .passthrough.reason)"
fi
equal "the mount has its read-ahead" 4096 "$(cat "/sys/class/bdi/$(stat -c %Hd:%Ld "$MNT")/read_ahead_kb")"
check "another user reads" setpriv --reuid=65534 --regid=65534 --clear-groups cmp "$MNT/2.bin" "$T/www/2.bin"

# The log's file, which is renamed.
pid=$(stats .pid)
mv "$T/log/penstock.log" "$T/log/old"
kill -HUP "$pid"
check "the log is opened again" wait_until 10 test -e "$T/log/penstock.log"

# A source that only another user may read, in a mount that joins.
mkdir -p "$T/theirs"
cp "$T/www/3.bin" "$T/theirs/"
chown -R 65534:65534 "$T/theirs"
chmod 700 "$T/theirs"
chmod 400 "$T/theirs/3.bin"
check "a source of another user's is mounted" penstock mount "$T/theirs/" "$T/m2" --cache-dir "$CACHE"
check "and read" cmp "$T/m2/3.bin" "$T/www/3.bin"
check "and unmounted" penstock umount "$T/m2"

if kernel 6.10; then
	sleep 1.1
	kill -KILL "$pid"
	check "the next daemon answers" wait_until 10 next_pid "$pid"
	confined "the next daemon"
	gone() { ! kill -0 "$helper" 2>/dev/null; }
	check "the helper of the dead one has ended" wait_until 10 gone
	check "the next one serves" cmp "$MNT/3.bin" "$T/www/3.bin"
	sleep 1.1
	check "penstock upgrade" penstock upgrade "$MNT"
	confined "the daemon after an upgrade"
	# A process with one filter more, as the daemon's own children have.
	rc=0
	"$python" - "$top_builddir/penstock" upgrade "$MNT" >"$T/out" 2>&1 <<'PY' || rc=$?
import ctypes, os, struct, sys
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0
allow = ctypes.create_string_buffer(struct.pack("=HBBI", 6, 0, 0, 0x7fff0000))
program = ctypes.create_string_buffer(struct.pack("=H6xQ", 1, ctypes.addressof(allow)))
assert libc.prctl(22, 2, program, 0, 0) == 0
os.execv(sys.argv[1], sys.argv[1:])
PY
	equal "upgrade by a sandboxed process is refused" "1 1" "$rc $(grep -c "more seccomp filters" "$T/out")"
	check "the daemon serves on" cmp "$MNT/2.bin" "$T/www/2.bin"
else
	skip "the next daemon is confined, too" "needs Linux 6.10"
fi

# Without the helper the mount goes on.
pid=$(stats .pid)
helper=$(helper "$pid")
kill -KILL "$helper"
check "without its helper the daemon serves" cmp "$MNT/1.bin" "$T/www/1.bin"
umount_penstock

# A command that the daemon runs for credentials.
mkdir -p "$T/home/.aws/cli/cache" "$T/home/.aws/sso/cache"
export HOME=$T/home
unset AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_PROFILE AWS_CONFIG_FILE AWS_SHARED_CREDENTIALS_FILE
cat >"$T/home/.aws/config" <<CONF
[default]
region = us-east-1
credential_process = $T/command
CONF
cat >"$T/command" <<SH
#!/bin/sh
echo x >>$T/home/.aws/cli/cache/asked
echo x >>$T/outside
awk '/^(NoNewPrivs|Seccomp|CapEff):/ {print \$2}' /proc/self/status >$T/home/.aws/cli/cache/status
echo '{"Version": 1, "AccessKeyId": "K", "SecretAccessKey": "S"}'
SH
chmod 755 "$T/command"
touch "$T/outside"
penstock mount "s3://bucket/" "$MNT" --endpoint "$ORIGIN" --cache-dir "$CACHE" --timeout 2s \
	--log "$T/penstock.log" >"$T/out" 2>&1 || true
check "a command of credentials runs, and writes to its cache" test -s "$T/home/.aws/cli/cache/asked"
equal "it is confined, too" "0000000000000004 1 2" \
	"$(tr '\n' ' ' <"$T/home/.aws/cli/cache/status" | sed 's/ $//')"
if [[ $landlock ]]; then
	skip "and writes nowhere else" "$landlock"
else
	check_not "and writes nowhere else" test -s "$T/outside"
fi
if is_mounted; then umount_penstock; fi

# A unit of systemd, or a container, that refuses the calls by which a process enters a sandbox.
cat >"$T/refuse.py" <<'PY'
import ctypes, errno, os, struct, sys
libc = ctypes.CDLL(None)
seccomp, prctl = {"x86_64": (317, 157), "aarch64": (277, 167)}[os.uname().machine]
calls = [444, 445, 446] + [seccomp] * (sys.argv[1] == "all")
code = [(0x20, 0, 0, 0)] + [(0x15, len(calls) + 3 - i, 0, nr) for i, nr in enumerate(calls)]
code += [(0x15, 0, 2, prctl if sys.argv[1] == "all" else 0xFFFF)]  # prctl(PR_SET_SECCOMP)
code += [(0x20, 0, 0, 16), (0x15, 1, 0, 22)]
code += [(6, 0, 0, 0x7FFF0000), (6, 0, 0, 0x50000 | errno.EPERM)]
text = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *c) for c in code))
program = ctypes.create_string_buffer(struct.pack("=H6xQ", len(code), ctypes.addressof(text)))
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0
os.execvp(sys.argv[2], sys.argv[2:])
PY
cat >"$T/slow" <<SH
#!/bin/sh
sleep 600 >/dev/null &
echo \$! >$T/home/.aws/cli/cache/pid
exec yes too much output
SH
chmod 755 "$T/slow"
killed() { # HOW COMMAND...: how the mount is started
	local how=$1
	shift
	rm -f "$T/home/.aws/cli/cache/pid"
	"$@" penstock mount "s3://bucket/" "$MNT" --endpoint "$ORIGIN" --cache-dir "$CACHE" --timeout 2s \
		--log "$T/penstock.log" >"$T/out" 2>&1 || true
	check "$how: a command is started" test -s "$T/home/.aws/cli/cache/pid"
	ended() { ! grep -qs . "/proc/$(<"$T/home/.aws/cli/cache/pid")/cmdline"; }
	check "$how: a command that prints too much ends with its children" wait_until 10 ended
	if is_mounted; then umount_penstock; fi
}
sed -i "s#^credential_process.*#credential_process = $T/slow#" "$T/home/.aws/config"
killed "in the sandbox"
killed "landlock refused" "$python" "$T/refuse.py" landlock
chmod 755 "$CACHE/data" "$CACHE/index" # as an old version, or a person, may have left them
for what in all landlock; do
	lacks="no landlock"
	[[ $what != all ]] || lacks="no seccomp, no landlock"
	check "$what refused: a mount" "$python" "$T/refuse.py" "$what" \
		penstock mount "$ORIGIN/" "$MNT" --cache-dir "$CACHE" --log "$T/penstock.log"
	equal "$what refused: the cache is closed to others" "700 700" \
		"$(stat -c %a "$CACHE/data" "$CACHE/index" | xargs)"
	check "$what refused: a file is right" cmp "$MNT/1.bin" "$T/www/1.bin"
	check "$what refused: status says what is missing" \
		grep -q "sandbox incomplete: $lacks\$" <(penstock status "$MNT")
	rc=0
	penstock status --check "$MNT" >"$T/out" || rc=$?
	equal "$what refused: status --check warns" \
		"1 penstock warning: $MNT: unprotected: sandbox incomplete: $lacks" "$rc $(cat "$T/out")"
	check "$what refused: so does the log" grep -q "warning: sandbox incomplete: $lacks" "$T/penstock.log"
	umount_penstock
done

# Turned off; and without a keeper.
mount_penstock "$ORIGIN/" --no-sandbox
equal "--no-sandbox: status says so" "false turned off (--no-sandbox)" \
	"$(status '"\(.sandbox.active) \(.sandbox.reason)"')"
equal "--no-sandbox: there is no helper" "" "$(helper "$(stats .pid)")"
check "--no-sandbox: a file is right" cmp "$MNT/1.bin" "$T/www/1.bin"
umount_penstock
mount_penstock "$ORIGIN/" --no-keeper
confined "without a keeper"
check "without a keeper: a file is right" cmp "$MNT/1.bin" "$T/www/1.bin"
check "without a keeper: a second mount" penstock mount "$ORIGIN/" "$T/m2" --cache-dir "$CACHE"
pid=$(stats .pid)
kill -TERM "$pid"
check "SIGTERM unmounts both" wait_until 10 bash -c "! grep -qF -e ' $MNT ' -e ' $T/m2 ' /proc/self/mountinfo"

# In the foreground, without a keeper: the daemon itself reports to the service manager.
"$python" - "$T/notify" >"$T/said" <<'PY' &
import socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.bind(sys.argv[1])
s.settimeout(60)
print(s.recv(100).decode())
PY
wait_until 10 test -S "$T/notify"
NOTIFY_SOCKET=$T/notify penstock mount -f "$ORIGIN/" "$MNT" --cache-dir "$CACHE" --no-keeper --log "$T/penstock.log" &
check "a daemon without a keeper reports that it is ready" wait_until 60 grep -qx READY=1 "$T/said"
umount_penstock
