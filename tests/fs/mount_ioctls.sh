#!/usr/bin/env bash
# Ioctls as no program of ours would ask them: lengths that are none, other sizes, other numbers, other files.
# Each is refused, and the mount goes on.
. "$(dirname "$0")/../lib.sh"
requires mount nginx

mkdir -p "$T/www"
random_file "$T/www/a.bin" 3000000 1
start_nginx
mount_penstock "$ORIGIN/"
check "a file is there" cmp "$MNT/a.bin" "$T/www/a.bin"
"$python" "$top_srcdir/tests/fs/raw_ioctls.py" "$MNT" a.bin >"$T/said"
said() { sed -n "s/^$1 //p" "$T/said"; }
for text in one-too-long all sign; do
	equal "a text that is longer than its place ($text) is refused" EINVAL "$(said "text-$text")"
done
equal "one without bytes is taken" ok "$(said text-empty)"
equal "what no request is, is none: the kernel's own error" "ENOTTY" \
	"$(grep -E '^(plan-of|refresh-of|unknown)' "$T/said" | cut -d' ' -f2 | sort -u)"
equal "requests with room for half a number, and those on other files, too" "ENOTTY" \
	"$(grep -E '^(short|of-stats)' "$T/said" | cut -d' ' -f2 | sort -u)"
check "the mount goes on" cmp "$MNT/a.bin" "$T/www/a.bin"
equal "with the process it had" 0 "$(grep -c 'panic\|fatal' "$T/penstock.log" || true)"
check "and its plan is there to be told" grep -q '"active"' "$MNT/.penstock/plan"
