#!/usr/bin/env bash
# penstock status --watch on a terminal: a screen that fits its window, and leaves the terminal as it was.
. "$(dirname "$0")/../../lib.sh"
requires mount jq

mkdir -p "$T/data"
for i in 1 2 3; do
	random_file "$T/data/$i.tar" 16000000 "$i"
done
mount_penstock "$T/data" --cache-size 100M --no-passthrough --max-bandwidth 16M
on_terminal() { "$python" "$top_srcdir/tests/fs/commands/terminal.py" "$@" >"$T/screens" 2>&1; }
picture() { sed -n "/^== $1\$/,/^==\\|^exit/p" "$T/screens" | grep -v '^==\|^exit'; }

cat "$MNT"/*.tar >/dev/null &
reader=$!
on_terminal 24x80,10x40,5x20 q penstock status --watch=0.1 "$MNT" ||
	fail "status runs on a terminal" "$(cat "$T/screens")"
equal "q ends status and restores the terminal" "exit 0 as it was" "$(tail -n 1 "$T/screens")"
check_not "no line is wider and no screen higher than the window" grep '^!' "$T/screens"
rate='[0-9.]+ (B|[KM]iB)/s +[▁▂▃▄▅▆▇█]+  at most [0-9.]+ [KM]iB/s'
for what in "origin +$rate" "readers +$rate" 'hits +(-|[0-9.]+ %) +[ ▁▂▃▄▅▆▇█]+' \
	'cache +[0-9.]+ % +\[#*\.+\] [0-9.]+ MiB of 100.0 MiB, [123] objects?' \
	'reads +(-|slowest [0-9.]+ m?s, p99 [0-9.]+ m?s, p50 [0-9.]+ m?s)' \
	"$MNT: 3 files, [0-9.]+ [KM]iB cached, [01] open, [0-9]+ waiting"; do
	check "the screen shows ${what%% *}" \
		env LC_ALL=C.UTF-8 grep -Eqx "  $what" <(picture 24x80 | sed 's/ *$//')
done
equal "a smaller window has fewer lines" "10 5" "$(picture 10x40 | wc -l) $(picture 5x20 | wc -l)"
check "a smaller window shows how many lines are missing" grep -Eqx '\.\.\. [0-9]+ more lines' <(picture 5x20)
kill "$reader"
wait "$reader" || true

on_terminal 24x80 '\x03' penstock status --watch=0.1 --cache-dir "$CACHE" || true
equal "Ctrl-C ends status and restores the terminal" "exit 0 as it was" "$(tail -n 1 "$T/screens")"
check "--cache-dir shows all mounts of a cache" \
	grep -qE "$MNT: 3 files, [0-9.]+ [KM]iB cached, 0 open" "$T/screens"
umount_penstock
on_terminal 24x80 q penstock status --watch "$MNT" || true
equal "an error ends status" "exit 1" "$(tail -n 1 "$T/screens" | cut -d ' ' -f 1-2)"
