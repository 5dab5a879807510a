#!/usr/bin/env bash
# A server without Range requests, Python's http.server: the mount warns, reads fail at once, and `penstock warm`
# gives up after the first such answer.
. "$(dirname "$0")/../../lib.sh"
. "$(dirname "$0")/web_servers.sh"
requires mount nginx root

mkdir -p "$T/www" "$MNT"
for i in {01..20}; do random_file "$T/www/$i.tar" 12000000; done
random_file "$T/www/small.tar" 1000
serve python "$T/www"

mount_penstock "$ORIGIN/" 2>"$T/err"
check "the mount warns of it" grep -q "warning: the server does not answer Range requests.*nginx" "$T/err"
check "a small file can be read" cmp "$MNT/small.tar" "$T/www/small.tar"
check "a large one cannot" bash -c "! cat '$MNT/01.tar' >'$T/got' 2>/dev/null"
check "its error says why" grep -q 'ignores Range' \
	<(getfattr --absolute-names --only-values -n user.penstock.error "$MNT/01.tar")
equal "an answer that cannot change is not retried" 0 "$(stats .origin.retries)"
rc=0
start=$SECONDS
penstock warm "$MNT" >"$T/out" 2>"$T/err" || rc=$?
check "warm ends soon" test $((SECONDS - start)) -lt 10
at_least "warm fails" 1 "$rc"
equal "warm reports one file" 1 "$(grep -c 'ignores Range requests' "$T/err")"
check "warm says that it gave up" grep -qE 'gave up, with (19|20) more files not fetched.*nginx' "$T/err"
equal "without retries" 0 "$(stats .origin.retries)"
umount_penstock

# The same files from a server with ranges: no warning.
start_nginx
CACHE=$T/cache-nginx
mount_penstock "$ORIGIN/" 2>"$T/err"
equal "no warning for nginx" "" "$(grep Range "$T/err")"
check "its files can be read" cmp "$MNT/01.tar" "$T/www/01.tar"
umount_penstock
