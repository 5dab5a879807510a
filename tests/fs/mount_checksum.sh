#!/usr/bin/env bash
# Checksums of a list: what matches is kept and passed through, what does not is dropped, reported and not
# fetched again and again; a corrected list repairs the file.
. "$(dirname "$0")/../lib.sh"
requires mount nginx jq getfattr

mkdir -p "$T/www"
for name in good bad plain; do
	random_file "$T/www/$name.bin" 3000000 "$name"
done
start_nginx
sum() { sha256sum "$T/www/$1.bin" | cut -d' ' -f1; }
list() { # the checksum of bad.bin
	printf '%s\n' "$ORIGIN/good.bin 3000000 sha256:$(sum good)" "$ORIGIN/bad.bin 3000000 sha256:$1" \
		"$ORIGIN/plain.bin" >"$T/list.txt"
}
xattr() { getfattr --absolute-names --only-values -n "user.penstock.$2" "$MNT/$1"; }
same() { cmp "$MNT/$1.bin" "$T/www/$1.bin"; }
is_told() { xattr bad.bin error | grep -q "origin or its list says sha256:$(sum plain)"; }

list "$(sum plain)"
mount_penstock "@$T/list.txt"
check "a file that matches is read" same good
check "and so is one without a checksum" same plain
exec 7<"$MNT/bad.bin"
check "one that does not match is served while nobody can know" cmp -n 1000 "$MNT/bad.bin" "$T/www/bad.bin"
cat "$MNT/bad.bin" >/dev/null 2>&1 || true
check "once it is complete, its error is told" wait_until 20 is_told
check "it is dropped" wait_until 10 bash \
	-c "[ \"\$(getfattr --only-values -n user.penstock.state '$MNT/bad.bin')\" = remote ]"
check_not "its reader gets no more of it" cat <&7
exec 7<&-
forgotten=$(stats .origin.requests)
for _ in 1 2 3; do
	rc=0
	cat "$MNT/bad.bin" >"$T/out" 2>"$T/err" || rc=$?
done
equal "opening it fails" 1 "$rc"
check "with an I/O error" grep -qi 'input/output error' "$T/err"
equal "and asks the origin for nothing" "$forgotten" "$(stats .origin.requests)"
check "the log tells of it" grep -q 'checksum: .*/bad.bin' "$T/penstock.log"
equal "once" 1 "$(grep -c 'error: checksum:' "$T/penstock.log")"
equal "and so do the figures" 1 "$(stats .cache.checksum_errors)"
check "and the status" grep -q 'mismatches: 1,' <(penstock status "$MNT")
if [[ $(penstock status "$MNT" --json | jq -r .passthrough.active) == true ]]; then
	was_passed() {
		same good && (($(penstock status "$MNT" --json | jq .passthrough.opens) > 0))
	}
	check "what matched is passed through" wait_until 20 was_passed
fi
umount_penstock

list "$(sum bad)"
mount_penstock "@$T/list.txt"
check "with the right checksum in the list the file is read" same bad
is_cached() { [[ $(xattr bad.bin state) == cached ]]; }
check "and kept" wait_until 20 is_cached
umount_penstock

# Known from the cache alone.
list "$(sum plain)"
mount_penstock "@$T/list.txt"
check_not_right() { ! same bad; }
cat "$MNT/bad.bin" >/dev/null 2>&1 || true
check "a list that says otherwise later on is believed, too" wait_until 20 check_not_right
