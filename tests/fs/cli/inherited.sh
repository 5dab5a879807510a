#!/usr/bin/env bash
# What programs inherit from the process that starts them: closed descriptors, signals, limits.
. "$(dirname "$0")/../../lib.sh"
requires mount jq prlimit

mkdir -p "$T/www" "$MNT"
random_file "$T/www/f.bin" 3000000
make_shards "$T/www" 1 1000000
ln -s "$top_builddir/penstock" "$T/mount.penstock"

# starts_with STATE COMMAND...: in that inherited state. STATE: a Python statement.
starts_with() (exec_with "$@")
exec_with() {
	exec "$python" -c 'import os, signal, sys
exec(sys.argv[1])
os.execvp(sys.argv[2], sys.argv[2:])' "$@"
}
close() { echo "for fd in [$1]: os.close(fd)"; }
ticks() { awk '{print $14 + $15}' "/proc/$1/stat"; }
keeper() { awk '/^PPid:/ {print $2}' "/proc/$(daemon_pid)/status"; }

for closed in 0 1 2 '0,1' '0,2' '1,2' '0,1,2'; do
	rc=0
	starts_with "$(close "$closed")" \
		timeout -s KILL 20 penstock mount "$T/www/" "$MNT" --cache-dir "$CACHE" || rc=$?
	equal "mount with descriptors $closed closed returns" 0 "$rc"
	equal "the cache's lock has the daemon's number alone" "$(daemon_pid)" "$(cat "$CACHE/lock")"
	check "the mount is right" cmp "$MNT/f.bin" "$T/www/f.bin"
	if [[ $closed == 0,1,2 && $(readlink "/proc/$(keeper)/exe") == */penstock ]]; then
		before=$(($(ticks "$(keeper)") + $(ticks "$(daemon_pid)")))
		sleep 1
		after=$(($(ticks "$(keeper)") + $(ticks "$(daemon_pid)")))
		at_most "daemon and keeper sleep (ticks in 1 s)" 20 "$((after - before))"
	fi
	starts_with "$(close "$closed")" timeout -s KILL 20 penstock umount "$MNT" ||
		fail "umount with $closed closed"
	wait_until 20 no_daemon || fail "the daemon ends"
done
starts_with "$(close 1,2)" penstock mount -f "$T/www/" "$MNT" --cache-dir "$CACHE" &
check "a mount in the foreground without stdout and stderr" wait_until 20 is_mounted
check "serves" cmp "$MNT/f.bin" "$T/www/f.bin"
equal "and writes no log into its own files" "$(daemon_pid)" "$(cat "$CACHE/lock")"
penstock umount "$MNT"
wait
check "mount.penstock without descriptors" starts_with "$(close 0,1,2)" \
	timeout -s KILL 20 "$T/mount.penstock" "$T/www/" "$MNT" -o "cache-dir=$CACHE"
check "serves, too" cmp "$MNT/f.bin" "$T/www/f.bin"
penstock umount "$MNT"

if [[ -x $top_builddir/penstock-loader ]]; then
	loader=$top_builddir/penstock-loader
	mkdir "$T/in"
	echo text >"$T/in/a.txt"
	"$loader" pack "$T/in/" "$T/right-%d.tar" >/dev/null
	for closed in 1 '0,1,2'; do
		starts_with "$(close "$closed")" "$loader" pack "$T/in/" "$T/packed-%d.tar" || true
		check "pack with descriptors $closed closed writes the same shard" cmp "$T/right-0.tar" "$T/packed-0.tar"
		rm -f "$T/packed-0.tar"
	done
	# Ends early, because of the pipe, with an exit code and not by a signal.
	rc=$(bash -c '"$0" pack --repack "$1" - 2>"$2" | head -c 10 >/dev/null; echo "${PIPESTATUS[0]}"' "$loader" \
		"$T/www/shard-000000.tar" "$T/err")
	equal "a loader command in a closed pipe fails" 1 "$rc"
	equal "and says so in one line" 1 "$(grep -c "Broken pipe" "$T/err")"
	if sanitized "$top_builddir/penstock"; then
		skip "a small address space" "a sanitizer needs terabytes of it"
	else
		starts_with "import resource; resource.setrlimit(resource.RLIMIT_AS, (600 << 20, 600 << 20))" \
			"$loader" ls "$T/www/shard-000000.tar" >"$T/out" 2>"$T/err" || true
		check "a loader command says that the address space is small" grep -qxF "penstock-loader: warning: the\
 address space is limited to 600 MiB (ulimit -v); below 1024 MiB threads and memory may run out" "$T/err"
	fi
fi

no_children="signal.signal(signal.SIGCHLD, signal.SIG_IGN)"
check "mount with SIGCHLD ignored" starts_with "$no_children" \
	penstock mount "$T/www/" "$MNT" --cache-dir "$CACHE"
check "status with SIGCHLD ignored" starts_with "$no_children" penstock status "$MNT"
check "umount with SIGCHLD ignored" starts_with "$no_children" penstock umount "$MNT"
all_blocked="signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())"
check "mount with all signals blocked" starts_with "$all_blocked" \
	penstock mount "$T/www/" "$MNT" --cache-dir "$CACHE"
check "status with all signals blocked" starts_with "$all_blocked" penstock status "$MNT"
kill "$(daemon_pid)"
check "SIGTERM ends the daemon" wait_until 20 no_daemon
exec_with "$all_blocked" penstock mount -f "$T/www/" "$MNT" --cache-dir "$CACHE" 2>/dev/null &
foreground=$!
check "a mount in the foreground with all signals blocked" wait_until 20 is_mounted
kill "$foreground"
check "ends by SIGTERM" wait_until 20 bash -c "! kill -0 $foreground 2>/dev/null"
check_not "and is unmounted" is_mounted
wait "$foreground" || true

# slurmd chooses what a prolog inherits.
rc=0
starts_with "$(close 0,1,2)" "$top_srcdir/scripts/penstock-slurm" --help || rc=$?
equal "penstock-slurm without descriptors" 0 "$rc"

# The file size is limited to 1 MiB: what cannot be cached is streamed, or the mount fails with an error.
rc=0
prlimit --fsize=1048576 penstock mount "$T/www/" "$MNT" --cache-dir "$T/small" --log "$T/penstock.log" \
	>"$T/out" 2>&1 || rc=$?
check_not "a limit of file sizes does not end the daemon by a signal" grep -q "signal 25" "$T/out"
if ((rc == 0)); then
	check "the file is read right" cmp "$MNT/f.bin" "$T/www/f.bin"
	check "and again, though it was not cached" cmp "$MNT/f.bin" "$T/www/f.bin"
	penstock umount "$MNT"
else
	check "the error has the reason" grep -q "File too large" "$T/out"
fi
if sanitized "$top_builddir/penstock"; then
	skip "a mount in a small address space" "a sanitizer needs terabytes of it"
else
	rc=0
	prlimit --as=900000000 penstock mount "$T/www/" "$MNT" --cache-dir "$CACHE" --log "$T/penstock.log" \
		>"$T/out" 2>&1 || rc=$?
	check "mount says that the address space is small" grep -qxF "penstock: warning: the address space is limited\
 to 858.3 MiB (ulimit -v); below 1.0 GiB threads and memory may run out" "$T/out"
	((rc != 0)) || penstock umount "$MNT"
	prlimit --as=2000000000 penstock status >"$T/out" 2>&1 || true # mounts of other tests may not answer
	check_not "a limit above 1 GiB is not mentioned" grep -q "address space" "$T/out"
fi

# A program penstock-NAME has the state that its caller made.
cat >"$T/penstock-state" <<'PROGRAM'
#!/bin/sh
exec grep -E '^Sig(Blk|Ign):' /proc/self/status
PROGRAM
chmod +x "$T/penstock-state"
default="signal.signal(signal.SIGPIPE, signal.SIG_DFL)"
state() { PATH=$T:$PATH starts_with "$default; $1" penstock state; }
same_as() { starts_with "$default; $1" grep -E '^Sig(Blk|Ign):' /proc/self/status; }
for change in "pass" "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])" \
	"signal.signal(signal.SIGXFSZ, signal.SIG_IGN)" "signal.signal(signal.SIGXFSZ, signal.SIG_DFL)"; do
	equal "a program penstock-NAME inherits signals unchanged ($change)" \
		"$(same_as "$change")" "$(state "$change")"
done
