#!/usr/bin/env bash
# A signal ends a read, a page fault or a lookup early only if it ends the process; then within a second, also if
# another signal came before it.
PS_TEST_TIMEOUT=${PS_TEST_TIMEOUT:-200}
. "$(dirname "$0")/../../lib.sh"
requires mount nginx-lua jq

reader=$top_builddir/tests/fs/reads/signal_reader
mkdir -p "$T/www/shards" "$T/tree"
# Files that are read one after another are not neighbours, as a file's next one may be prefetched.
for i in {01..60}; do
	truncate -s 20M "$T/www/$i.bin"
done
start_nginx

# Signals that are handled ------------------------------------------------------------------------------------
random_file "$T/www/storm.bin" 32000000
for cold in auto direct cached; do
	mount_penstock "$ORIGIN/" --cold-reads "$cold"
	for how in buffered direct random; do
		penstock evict "$MNT" storm.bin >/dev/null
		equal "$cold, $how: no read of 1 MiB ends early by a signal every 0.5 ms" \
			"0 EINTR, 0 other errors, 0 short, 0 wrong, all read" \
			"$("$reader" storm "$T/www/storm.bin" "$MNT/storm.bin" "$how" 1048576 500)"
	done
	umount_penstock
	rm -rf "$CACHE"
done

# The size of a compressed shard is known once it was decompressed.
random_file "$T/shard.tar" 3000000
mkdir "$T/www/packed"
for i in 1 2 3; do
	gzip -1 <"$T/shard.tar" >"$T/www/packed/$i.tar.gz"
done
mount_penstock "$ORIGIN/stall/packed/" --timeout 100s
touch "$T/nginx/stall"
"$reader" names "$MNT"/{2,3}.tar >"$T/names" 2>&1 &
names=$!
sleep 1
# (It looks at 1.tar first: the kernel has it wait, without end, for another process' lookup of the same name.)
at_most "penstock warm ends soon by an interrupt, though a call waits (ms)" 5000 \
	"$(milliseconds timeout -s INT 1 penstock warm "$MNT")"
check "it says so" grep 'interrupted; .*again to resume' "$T/milliseconds.out"
rm "$T/nginx/stall"
wait "$names"
equal "no lookup or open fails by a signal" "0 EINTR" "$(cat "$T/names")"
umount_penstock
rm -rf "$CACHE"

# Signals that end the process --------------------------------------------------------------------------------

readers=()
# begin WHAT FILE HOW END: begins a read that waits for the origin, to be ended by END: a signal; exit or exec of
# another thread; or nothing (-).
begin() {
	local thread=()
	[[ $4 != @(exit|exec) ]] || thread=("$4")
	"$reader" stuck "$2" "$3" "${thread[@]}" >"$T/stuck.$4.${#readers[@]}" 2>&1 &
	readers+=("$! $4 $1")
}
waiting() { (($(stats .reads.waiting) >= $1)); }
each() { # FUNCTION: calls it with PID, END and WHAT of each reader
	local one pid end what
	for one in "${readers[@]}"; do
		read -r pid end what <<<"$one"
		"$1" "$pid" "$end" "$what"
	done
}
handled() { kill -USR1 "$1" || fail "$3, $2: the reader waits"; }
still_waits() { kill -0 "$1" 2>/dev/null || fail "$3, $2: a handled signal does not end the read"; }
send() {
	case $2 in
	exit | exec) kill -USR2 "$1" || true ;;
	-) ;;
	*) kill -"$2" "$1" || true ;;
	esac
}
ended() {
	[[ $2 != - ]] || return 0
	if ! kill -0 "$1" 2>/dev/null || [[ $(cut -d' ' -f3 "/proc/$1/stat" 2>/dev/null) == Z ]]; then
		pass "$3, $2: the reader ends within a second"
	else
		fail "$3, $2: the reader ends within a second" "$(grep -E '^(State|SigPnd|ShdPnd)' "/proc/$1/status")"
	fi
}
all_bytes() {
	local rc=0 expected
	wait "$1" 2>/dev/null || rc=$?
	case $2 in
	KILL) expected=137 ;;
	TERM) expected=143 ;;
	QUIT) expected=131 ;;
	*) expected=0 ;;
	esac
	equal "$3, $2: the reader's exit status" "$expected" "$rc"
}
# run: sends the signals to the readers that were begun, and ends them.
run() {
	check "all readers wait" wait_until 20 waiting "${#readers[@]}"
	sleep 0.3
	each handled
	sleep 2
	each still_waits
	[[ ! ${1-} ]] || "$1"
	each send
	sleep 1
	each ended
	rm "$T/nginx/stall"
	each all_bytes
	readers=()
}

for cold in direct cached; do
	mount_penstock "$ORIGIN/stall/" --timeout 100s --cold-reads "$cold"
	touch "$T/nginx/stall"
	n=-1
	for how in buffered direct random mapped mapped-random; do
		[[ $cold == cached || $how != random ]] || continue
		for end in KILL TERM QUIT exit exec; do
			n=$((n + 2))
			begin "$cold, $how" "$MNT/$(printf %02d "$n").bin" "$how" "$end"
		done
	done
	begin "$cold" "$MNT/58.bin" buffered -
	run
	equal "$cold: a read that only got handled signals has all of its bytes" 1048576 "$(cat "$T"/stuck.-.*)"
	umount_penstock
	rm -rf "$CACHE" "$T"/stuck.*
done

# Members of shards.
for i in 1 2 3 4 5 6; do
	truncate -s 20M "$T/tree/a.bin"
	tar -cf "$T/www/shards/$i.tar" -C "$T/tree" a.bin
done
mount_penstock "$ORIGIN/stall/shards/" --timeout 100s --members
touch "$T/nginx/stall"
"$reader" names "$MNT"/{1..5}/a.bin >"$T/names" 2>&1 &
names=$!
sleep 1
rm "$T/nginx/stall"
wait "$names"
equal "members: no lookup that waits for its shard fails by a signal" "0 EINTR" "$(cat "$T/names")"
penstock evict "$MNT" >/dev/null
drop_page_cache
touch "$T/nginx/stall"
begin members "$MNT/1/a.bin" random KILL
begin members "$MNT/2/a.bin" buffered TERM
begin members "$MNT/3/a.bin" random QUIT
begin members "$MNT/4/a.bin" mapped exit
begin members "$MNT/5/a.bin" buffered -
run
equal "members: a read that only got handled signals has all of its bytes" 1048576 "$(cat "$T"/stuck.-.*)"
umount_penstock
rm -rf "$CACHE" "$T"/stuck.*

# Another user's readers; the daemon gave up its privileges.
if ((EUID == 0)) && command -v setpriv >/dev/null; then
	mount_penstock "$ORIGIN/stall/" --timeout 100s --allow-other
	touch "$T/nginx/stall"
	cp "$reader" "$T/signal_reader"
	printf '#!/bin/sh\nexec setpriv --reuid=65534 --regid=65534 --clear-groups -- %s "$@"\n' "$T/signal_reader" \
		>"$T/as_nobody"
	chmod 755 "$T/as_nobody" "$T/signal_reader"
	reader=$T/as_nobody
	begin "another user" "$MNT/01.bin" buffered QUIT
	begin "another user" "$MNT/05.bin" mapped KILL
	begin "another user" "$MNT/09.bin" buffered -
	run
	reader=$top_builddir/tests/fs/reads/signal_reader
	equal "another user: a read that only got handled signals has all of its bytes" 1048576 \
		"$(cat "$T"/stuck.-.*)"
	umount_penstock
	rm -rf "$CACHE" "$T"/stuck.*
fi

# After a takeover the kernel sends the reads again, with the INTERRUPT behind each.
release=$(uname -r)
release=${release%%-*}
if ((EUID == 0)) && [[ $(printf '%s\n' 6.10 "$release" | sort -V | head -n 1) == 6.10 ]]; then
	next_pid() { [[ $(stats .pid 2>/dev/null) != "$pid" ]]; }
	takeover() {
		pid=$(stats .pid)
		kill -KILL "$pid"
		check "the next daemon answers" wait_until 10 next_pid
		sleep 1
		each still_waits
	}
	mount_penstock "$ORIGIN/stall/" --timeout 100s --cold-reads direct
	touch "$T/nginx/stall"
	n=-1
	for end in KILL TERM QUIT exit exec -; do
		n=$((n + 2))
		begin takeover "$MNT/$(printf %02d "$n").bin" buffered "$end"
	done
	run takeover
	equal "takeover: a read that only got handled signals has all of its bytes" 1048576 "$(cat "$T"/stuck.-.*)"
	umount_penstock
	rm -rf "$CACHE" "$T"/stuck.*
fi

# A reader that the daemon cannot see: any signal ends its read (penstock-mount(1)).
if unshare --pid --fork true 2>/dev/null; then
	mkdir -p "$MNT"
	unshare --pid --fork "$top_builddir/penstock" mount -f --no-keeper "$ORIGIN/stall/" "$MNT" \
		--cache-dir "$CACHE" --log "$T/penstock.log" --timeout 100s &
	outside=$!
	check "a daemon in a PID namespace of its own mounts" wait_until 20 is_mounted
	touch "$T/nginx/stall"
	"$reader" stuck "$MNT/31.bin" buffered >"$T/unseen" 2>&1 &
	unseen=$!
	check "a reader outside of it waits" wait_until 20 waiting 1
	kill -USR1 "$unseen"
	wait "$unseen" || true
	equal "its read is ended by any signal" "Interrupted system call" "$(cat "$T/unseen")"
	rm "$T/nginx/stall"
	umount_penstock
	wait "$outside" || true
fi
