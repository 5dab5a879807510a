#!/usr/bin/env bash
# Invalid ioctls: wrong lengths, sizes, numbers and files. Each is refused, and the mount still works.
. "$(dirname "$0")/../../lib.sh"
requires mount nginx

mkdir -p "$T/www"
random_file "$T/www/a.bin" 3000000 1
start_nginx
mount_penstock "$ORIGIN/"
check "a file is read before the ioctls" cmp "$MNT/a.bin" "$T/www/a.bin"
"$python" "$top_srcdir/tests/fs/files/raw_ioctls.py" "$MNT" a.bin >"$T/said"
said() { sed -n "s/^$1 //p" "$T/said"; }
for text in one-too-long all sign; do
	equal "a text longer than its buffer ($text) is refused" EINVAL "$(said "text-$text")"
done
equal "an empty text is accepted" ok "$(said text-empty)"
equal "unknown requests give ENOTTY" "ENOTTY" \
	"$(grep -E '^(plan-of|refresh-of|unknown)' "$T/said" | cut -d' ' -f2 | sort -u)"
equal "requests of a wrong size or on other files give ENOTTY" "ENOTTY" \
	"$(grep -E '^(short|of-stats)' "$T/said" | cut -d' ' -f2 | sort -u)"
check "the file is read after the ioctls" cmp "$MNT/a.bin" "$T/www/a.bin"
equal "the log has no crash" 0 "$(grep -c 'panic\|fatal' "$T/penstock.log" || true)"
check "the plan file can still be read" grep -q '"active"' "$MNT/.penstock/plan"
