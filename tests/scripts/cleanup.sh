#!/usr/bin/env bash
# A test leaves no process (nginx, a daemon in a session of its own) and no folder, also if it hangs.
. "$(dirname "$0")/../lib.sh"
requires nginx

cat >"$T/inner.sh" <<END
. "$top_srcdir/tests/lib.sh"
start_nginx
master=\$(cat "\$T/nginx/nginx.pid")
wait_until 20 grep -q . "/proc/\$master/task/\$master/children"
cat "\$T/nginx/nginx.pid" "/proc/\$master/task/\$master/children" |
	tr ' ' '\n' | grep . >"$T/pids"
setsid sleep 1000 >/dev/null 2>&1 &
echo \$! >>"$T/pids"
echo "\$T" >"$T/folder"
\$1
pass "inner"
END
# A zombie, which waits for init, counts as gone.
none_runs() {
	local pid
	while read -r pid; do
		! grep -q '^State:[[:space:]]*[^ZX]' "/proc/$pid/status" 2>/dev/null || return 1
	done <"$T/pids"
}
for how in true false "sleep 500"; do
	: >"$T/pids"
	limit=60
	[[ $how != sleep* ]] || limit=8
	env -u PS_TEST_DIR PS_TEST_TIMEOUT=$limit bash "$T/inner.sh" "$how" >"$T/out" 2>&1 || true
	at_least "'$how' started three processes or more" 3 "$(wc -l <"$T/pids")"
	check "'$how' leaves no process" wait_until 3 none_runs
	check_not "'$how' leaves no folder" test -e "$(cat "$T/folder")"
done
check "a test that hangs fails" grep -q '^not ok' "$T/out"
