#!/usr/bin/env bash
# umount of a busy mount fails and names the processes that use it; --lazy detaches it; --force ends it.
. "$(dirname "$0")/../../lib.sh"
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
equal "umount of a busy mount prints one line" 1 "$(wc -l <"$T/out")"
check "umount of a busy mount prints the reader's process ID" grep -qw "$holder" "$T/out"
at_most "umount of a busy mount takes at most 5 s (ms)" 5000 "$took"
check "the busy mount stays mounted" is_mounted
check "the busy mount still serves its file" cmp "$MNT/f.bin" "$T/www/f.bin"

at_most "umount --lazy takes at most 5 s (ms)" \
	5000 "$(milliseconds timeout -k 1 20 penstock umount --lazy "$MNT")"
check_not "umount --lazy unmounts" is_mounted
touch "$T/go"
check "the reader reads on after umount --lazy" wait_until 10 grep -q 2999990 "$T/holder.out"
wait "$holder" || true
check "the daemon ends when the reader ends" wait_until 10 bash -c "! kill -0 $(daemon_pid || echo 99999999)"
rm "$T/go"

mount_penstock "$ORIGIN/"
hold
at_most "umount --force takes at most 5 s (ms)" \
	5000 "$(milliseconds timeout -k 1 20 penstock umount --force "$MNT")"
check_not "umount --force unmounts" is_mounted
check "the daemon ends after umount --force" wait_until 10 bash -c "! kill -0 $(daemon_pid || echo 99999999)"
check "the next mount can use the cache" mount_penstock "$ORIGIN/"
check "the next mount serves its file" cmp "$MNT/f.bin" "$T/www/f.bin"
check "umount of an idle mount" umount_penstock
check_not "umount of a folder that is not mounted fails" penstock umount "$MNT"
