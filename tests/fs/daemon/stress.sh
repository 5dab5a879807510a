#!/usr/bin/env bash
# Mounts come and go, some of them killed on the way, while others read: right bytes, and nothing is left.
. "$(dirname "$0")/../../lib.sh"
requires mount nginx jq slow

mkdir -p "$T/www/a" "$T/www/b" "$MNT"
for i in 1 2 3; do
	random_file "$T/www/a/$i.bin" 3000000 "a$i"
	random_file "$T/www/b/$i.bin" 500000 "b$i"
done
start_nginx
mount_penstock "$ORIGIN/" --memory 32M --cache-size 16M
pid=$(stats .pid)
end=$((SECONDS + ${PS_STRESS_SECONDS:-5}))
busy() {
	((SECONDS < end))
}
readers() { # reads files that are evicted all the time: the cache holds less than all of them
	local i
	while busy; do
		for i in 1 2 3; do
			cmp "$MNT/a/$i.bin" "$T/www/a/$i.bin" && cmp "$MNT/b/$i.bin" "$T/www/b/$i.bin" ||
				return 1
		done
	done
}
comes_and_goes() { # N SOURCE FOLDER-OF-IT
	local dir=$T/m$1 n=0
	mkdir -p "$dir"
	while busy; do
		timeout 30 penstock mount "$2" "$dir" --cache-dir "$CACHE" || return 1
		cmp "$dir/2.bin" "$T/www/$3/2.bin" || return 1
		timeout 30 penstock umount "$dir" || return 1
		n=$((n + 1))
	done
	echo "$n" >"$T/rounds.$1"
}
killed() { # N: kills mount commands at random moments, and removes their mounts
	local dir=$T/m$1 child
	mkdir -p "$dir"
	while busy; do
		penstock mount "$ORIGIN/b/" "$dir" --cache-dir "$CACHE" &
		child=$!
		sleep "0.0$((RANDOM % 9))$((RANDOM % 9))"
		kill -KILL "$child" 2>/dev/null || true
		wait "$child" 2>/dev/null || true
		umount -l "$dir" 2>/dev/null || fusermount3 -uz "$dir" 2>/dev/null || true
	done
}
jobs=()
readers >"$T/readers.out" 2>&1 &
jobs+=($!)
readers >"$T/readers2.out" 2>&1 &
jobs+=($!)
comes_and_goes 1 "$ORIGIN/a/" a >"$T/1.out" 2>&1 &
jobs+=($!)
comes_and_goes 2 "$ORIGIN/b/" b >"$T/2.out" 2>&1 &
jobs+=($!)
comes_and_goes 3 "$ORIGIN/b/" b >"$T/3.out" 2>&1 &
jobs+=($!)
killed 4 >"$T/4.out" 2>&1 &
jobs+=($!)
failed=0
for job in "${jobs[@]}"; do wait "$job" || failed=$((failed + 1)); done
equal "all reads, mounts and unmounts were right" 0 "$failed"
((failed == 0)) || tail -n 3 "$T"/*.out | sed 's/^/# /'
at_least "there were at least 3 rounds" 3 "$(cat "$T"/rounds.* | awk '{n += $1} END {print n}')"
only_one() {
	umount -l "$T/m4" 2>/dev/null || fusermount3 -uz "$T/m4" 2>/dev/null || true
	[[ $(penstock status --cache-dir "$CACHE" --json | jq '.mounts | length') == 1 ]]
}
check "one mount is left" wait_until 20 only_one
equal "the first daemon serves it" "$pid" "$(stats .pid)"
few_threads() {
	(($(find "/proc/$pid/task" -mindepth 1 -maxdepth 1 | wc -l) <= $1))
}
check "the daemon has the threads of one mount" wait_until 20 few_threads 60
at_most "the cache is within its limit" $((8 << 20)) "$(stats .cache.used_bytes)"
check "the mount that is left serves its file" cmp "$MNT/a/1.bin" "$T/www/a/1.bin"
check "the mount that is left is unmounted" umount_penstock
# Without a mount that stays: daemons end while other mounts try to join them.
end=$((SECONDS + 3))
jobs=()
for i in 1 2 3; do
	comes_and_goes "$i" "$ORIGIN/b/" b >"$T/$i.out" 2>&1 &
	jobs+=($!)
done
failed=0
for job in "${jobs[@]}"; do wait "$job" || failed=$((failed + 1)); done
equal "mounts that begin while the daemon ends are served by the next one" 0 "$failed"
((failed == 0)) || tail -n 3 "$T"/*.out | sed 's/^/# /'
check "verify finds no error in the cache" penstock verify --cache-dir "$CACHE"
