#!/usr/bin/env bash
# umount of a busy mount fails and names the pids of the holders; --lazy detaches; --force ends it.
. "$(dirname "$0")/../lib.sh"
requires mount nginx

mkdir -p "$T/www"
random_file "$T/www/f.bin" 3000000
start_nginx

hold() {
	"$python" -c 'import sys, time
f = open(sys.argv[1], "rb"); f.read(10); print("open", flush=True)
sys.stdin.readline(); sys.stdout.write(str(len(f.read())))' "$MNT/f.bin" >"$T/holder.out" < <(
		while [[ ! -e $T/go ]]; do sleep 0.05; done
		echo
	) &
	holder=$!
	wait_until 10 grep -q open "$T/holder.out" || die "a program opens the file"
}

mount_penstock "$ORIGIN/"
hold
rc=0
took=$(milliseconds timeout -k 1 20 penstock umount "$MNT")
penstock umount "$MNT" >"$T/out" 2>&1 || rc=$?
equal "umount of a busy mount fails" 1 "$((rc != 0))"
equal "in one line" 1 "$(wc -l <"$T/out")"
check "which names the holder's pid" grep -qw "$holder" "$T/out"
at_most "within 5 s (ms)" 5000 "$took"
check "it is still mounted" is_mounted
check "and works" cmp "$MNT/f.bin" "$T/www/f.bin"

at_most "umount --lazy within 5 s (ms)" 5000 "$(milliseconds timeout -k 1 20 penstock umount --lazy "$MNT")"
check_not "it is no longer mounted" is_mounted
touch "$T/go"
check "the holder reads on" wait_until 10 grep -q 2999990 "$T/holder.out"
wait "$holder" || true
check "then the daemon ends" wait_until 10 bash -c "! kill -0 $(daemon_pid || echo 99999999)"
rm "$T/go"

mount_penstock "$ORIGIN/"
hold
at_most "umount --force within 5 s (ms)" 5000 "$(milliseconds timeout -k 1 20 penstock umount --force "$MNT")"
check_not "it is no longer mounted either" is_mounted
check "the daemon ends" wait_until 10 bash -c "! kill -0 $(daemon_pid || echo 99999999)"
check "and the cache is free for the next mount" mount_penstock "$ORIGIN/"
check "which serves" cmp "$MNT/f.bin" "$T/www/f.bin"
check "umount of an idle mount" umount_penstock
check_not "umount of what is not mounted" penstock umount "$MNT"
