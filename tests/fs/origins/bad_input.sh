#!/usr/bin/env bash
# Bad input ends in one line that says what to do, an exit status that is not 0, and nothing left behind: no
# mount, no process. A table of bad input, and of words that the line must have.
. "$(dirname "$0")/../../lib.sh"
requires mount nginx

make_tree "$T/www"
mkdir -p "$T/www/empty" "$T/full"
touch "$T/full/file" "$T/plain"
printf '' >"$T/empty.txt"
printf 'ftp://host/x\n' >"$T/ftp.txt"
printf '\x00\x01\x02\n' >"$T/binary.txt"
start_nginx
closed=$(free_port)

# bad WHAT WORDS MOUNT-ARGUMENT...: the mount fails with one line that matches WORDS.
bad() {
	local what=$1 words=$2 rc=0 lines
	shift 2
	mkdir -p "$MNT"
	timeout -k 5 60 penstock mount "$@" --log "$T/penstock.log" >"$T/out" 2>&1 </dev/null || rc=$?
	lines=$(wc -l <"$T/out")
	if ((rc == 0 || rc >= 124)); then
		fail "$what: fails" "exit status $rc" "$(cat "$T/out")"
		timeout 10 penstock umount --force "$MNT" || true
	elif ((lines != 1)) || [[ $(wc -c <"$T/out") -gt 500 ]]; then
		fail "$what: one line" "$lines lines" "$(cat "$T/out")"
	elif ! grep -Eqi -- "$words" "$T/out"; then
		fail "$what: the line has '$words'" "$(cat "$T/out")"
	elif is_mounted; then
		fail "$what: nothing is mounted"
	elif ! wait_until 10 no_daemon; then
		fail "$what: no process is left" "$(tr "\0" " " <"/proc/$(daemon_pid)/cmdline")"
	else
		pass "$what: $(head -c 160 "$T/out" | sed "s|$T|...|g")"
	fi
}
ok=(--cache-dir "$CACHE")

bad "unknown scheme" "scheme|gopher" gopher://host/x/ "$MNT" "${ok[@]}"
bad "no scheme, no such folder" "no such|not found" "$T/nothing/" "$MNT" "${ok[@]}"
bad "an empty source" "source|empty" "" "$MNT" "${ok[@]}"
bad "no host" "host|URL|source" http:///x/ "$MNT" "${ok[@]}"
bad "unresolvable host" "resolv|host" http://no-such-host.invalid/x/ "$MNT" "${ok[@]}"
bad "a port without a server" "connect|refused|reach" "http://127.0.0.1:$closed/x/" "$MNT" "${ok[@]}"
bad "404 of a listing" "404|not found|no such|not there" "$ORIGIN/nothing/" "$MNT" "${ok[@]}"
bad "a wildcard" "wildcards do not work here" "$ORIGIN/shard-*.tar" "$MNT" "${ok[@]}"
bad "404 of a shard" "404|not found|no such|not there" "$ORIGIN/shard-{000100..000101}.tar" "$MNT" "${ok[@]}"
bad "http of a TLS port" "HTTP 400: .*https://" "http://127.0.0.1:$nginx_tls_port/" "$MNT" "${ok[@]}"
bad "403" "403: .*does not list folders" "$ORIGIN/403/" "$MNT" "${ok[@]}"
bad "an empty listing" "empty|no file|nothing" "$ORIGIN/empty/" "$MNT" "${ok[@]}"
bad "an empty manifest" "empty|no file|nothing|no url" "@$T/empty.txt" "$MNT" "${ok[@]}"
bad "a manifest that is not there" "no such" "@$T/nothing.txt" "$MNT" "${ok[@]}"
bad "a manifest of another scheme" "ftp|scheme|line 1" "@$T/ftp.txt" "$MNT" "${ok[@]}"
echo "http://u:geheim@127.0.0.1:$closed/x.tar" >"$T/user.txt"
CACHE=$T/cache-login
mount_penstock "$ORIGIN/login/shard-000000.tar"
equal "a page in a shard's place is reported, once" 1 \
	"$(grep -c "warning: .*login/shard-000000.tar: the server sends an HTML page" "$T/penstock.log")"
umount_penstock
CACHE=$T/cache
bad "a password in a manifest" "line 1: a user and password" "@$T/user.txt" "$MNT" "${ok[@]}"
bad "a binary manifest" "line 1|character|binary|invalid|manifest" "@$T/binary.txt" "$MNT" "${ok[@]}"
bad "unbalanced braces" "brace|\\{" "$ORIGIN/shard-{000000..000001.tar" "$MNT" "${ok[@]}"
bad "endless braces" "brace|too many|more than" "$ORIGIN/{0..99999999}-{0..99999999}.tar" "$MNT" "${ok[@]}"
bad "a mountpoint that is not there" "no such|not there" "$ORIGIN/" "$T/no-mountpoint" "${ok[@]}"
bad "a mountpoint that is a file" "not a (directory|folder)" "$ORIGIN/" "$T/plain" "${ok[@]}"
bad "a mountpoint that is not empty" "not empty" "$ORIGIN/" "$T/full" "${ok[@]}"
bad "no mountpoint" "mountpoint|argument|usage|--help" "$ORIGIN/"
bad "too many arguments" "argument|usage|--help|unexpected" "$ORIGIN/" "$MNT" more "${ok[@]}"
bad "a cache dir that is a file" "not a (directory|folder)" "$ORIGIN/" "$MNT" --cache-dir "$T/plain"
bad "a cache dir that cannot be made" "no such|not a|permission|create|make" "$ORIGIN/" "$MNT" \
	--cache-dir /proc/x/y
bad "a cache dir with other files" "cache|not empty|foreign" "$ORIGIN/" "$MNT" --cache-dir "$T/full"
bad "an invalid size" "size|12Q" "$ORIGIN/" "$MNT" "${ok[@]}" --cache-size 12Q
bad "a negative size" "size|-5" "$ORIGIN/" "$MNT" "${ok[@]}" --cache-size=-5G
bad "a size that is too large" "size|large|99999999999" "$ORIGIN/" "$MNT" "${ok[@]}" \
	--cache-size 99999999999999999999G
bad "a share of 150%" "size|share|%" "$ORIGIN/" "$MNT" "${ok[@]}" --cache-size 150%
bad "a size of 0" "size|small|least" "$ORIGIN/" "$MNT" "${ok[@]}" --cache-size 0
bad "an unknown policy" "policy" "$ORIGIN/" "$MNT" "${ok[@]}" --policy best
bad "an invalid time" "timeout|time" "$ORIGIN/" "$MNT" "${ok[@]}" --timeout soon
bad "an unknown option" "unknown|unrecognized|option" "$ORIGIN/" "$MNT" "${ok[@]}" --no-such-option
bad "an unknown -o option" "unknown|option" "$ORIGIN/" "$MNT" "${ok[@]}" -o nosuchoption
bad "read-write" "read-only|rw" "$ORIGIN/" "$MNT" "${ok[@]}" -o rw
bad "an invalid header" "header" "$ORIGIN/" "$MNT" "${ok[@]}" --header nonsense
bad "a header with a line break" "header" "$ORIGIN/" "$MNT" "${ok[@]}" --header $'A: b\nC: d'
bad "a CA file that is not there" "no such|cacert" "$ORIGIN_TLS/" "$MNT" "${ok[@]}" --cacert "$T/nothing.pem"
bad "an unknown user" "uid|user" "$ORIGIN/" "$MNT" "${ok[@]}" -o uid=no-such-user

mkdir "$T/tiny"
if ((EUID == 0)) && mount -t tmpfs -o size=64k tmpfs "$T/tiny" 2>/dev/null; then
	dd if=/dev/zero of="$T/tiny/fill" bs=4k 2>/dev/null || true
	bad "a cache dir on a full disk" "space|full" "$ORIGIN/" "$MNT" --cache-dir "$T/tiny/cache"
	umount "$T/tiny"
	mount -t tmpfs -o ro tmpfs "$T/tiny"
	bad "a cache dir on a read-only disk" "read-only" "$ORIGIN/" "$MNT" --cache-dir "$T/tiny/cache"
	umount "$T/tiny"
fi

check "after all of these a good mount works" mount_penstock "$ORIGIN/"
check "the good mount serves its files" read_tree 1m
