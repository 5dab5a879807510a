#!/usr/bin/env bash
# Checksums of a list: a file that matches is kept and passed through. One that does not is dropped, reported
# and not fetched again and again; a corrected list makes it readable.
. "$(dirname "$0")/../../lib.sh"
requires mount nginx jq getfattr

mkdir -p "$T/www"
for name in good bad plain; do
	random_file "$T/www/$name.bin" 3000000 "$name"
done
start_nginx
sum() { sha256sum "$T/www/$1.bin" | cut -d' ' -f1; }
list() { # CHECKSUM: writes the list, with this checksum of bad.bin
	printf '%s\n' "$ORIGIN/good.bin 3000000 sha256:$(sum good)" "$ORIGIN/bad.bin 3000000 sha256:$1" \
		"$ORIGIN/plain.bin" >"$T/list.txt"
}
xattr() { getfattr --absolute-names --only-values -n "user.penstock.$2" "$MNT/$1"; }
same() { cmp "$MNT/$1.bin" "$T/www/$1.bin"; }
is_told() { xattr bad.bin error | grep -q "mismatch: .*sha256:$(sum plain)"; }

list "$(sum plain)"
mount_penstock "@$T/list.txt"
check "a file that matches is read" same good
check "a file without a checksum is read" same plain
exec 7<"$MNT/bad.bin"
check "a file that does not match is served until it is complete" cmp -n 1000 "$MNT/bad.bin" "$T/www/bad.bin"
cat "$MNT/bad.bin" >/dev/null 2>&1 || true
check "once that file is complete, it has the error as an attribute" wait_until 20 is_told
check "the file that does not match is dropped" wait_until 10 bash \
	-c "[ \"\$(getfattr --only-values -n user.penstock.state '$MNT/bad.bin')\" = remote ]"
check_not "an open descriptor of the dropped file cannot be read on" cat <&7
exec 7<&-
forgotten=$(stats .origin.requests)
for _ in 1 2 3; do
	rc=0
	cat "$MNT/bad.bin" >"$T/out" 2>"$T/err" || rc=$?
done
equal "reading the file again fails" 1 "$rc"
check "the failure is an I/O error" grep -qi 'input/output error' "$T/err"
equal "the failed reads make no request to the origin" "$forgotten" "$(stats .origin.requests)"
check "the log reports the mismatch" grep -q 'checksum: .*/bad.bin' "$T/penstock.log"
equal "the log reports the mismatch once" 1 "$(grep -c 'error: checksum:' "$T/penstock.log")"
equal "the statistics count one mismatch" 1 "$(stats .cache.checksum_errors)"
rc=0
penstock status --check "$MNT" >"$T/out" || rc=$?
equal "status --check warns of the mismatch" "1 1" "$rc $(grep -c 'a file failed its checksum .*bad.bin.*mismatch' "$T/out")"
check "status shows one mismatch" grep -q 'checksums 1 file ' <(penstock status "$MNT")
if [[ $(penstock status "$MNT" --json | jq -r .passthrough.active) == true ]]; then
	was_passed() {
		same good && (($(penstock status "$MNT" --json | jq .passthrough.opens) > 0))
	}
	check "the file that matches is passed through" wait_until 20 was_passed
fi
umount_penstock

list "$(sum bad)"
mount_penstock "@$T/list.txt"
check "with the right checksum in the list the file is read" same bad
is_cached() { [[ $(xattr bad.bin state) == cached ]]; }
check "the file is then kept" wait_until 20 is_cached
umount_penstock

# The mismatch is found from the cached file alone.
list "$(sum plain)"
mount_penstock "@$T/list.txt"
check_not_right() { ! same bad; }
cat "$MNT/bad.bin" >/dev/null 2>&1 || true
check "a cached file fails if a later list has another checksum" wait_until 20 check_not_right
