#!/usr/bin/env bash
# Without its origin the mount serves cached files and the listing, also if it is mounted then. Other files
# give an error in time, and SIGBUS in a mapping. When the origin is back, its changes are seen.
. "$(dirname "$0")/../../lib.sh"
requires mount nginx jq getfattr

mkdir -p "$T/www/sub"
random_file "$T/www/cached.bin" 3000000 1
random_file "$T/www/sub/also.bin" 100000 2
random_file "$T/www/remote.bin" 3000000 3
random_file "$T/new" 3000000 4
start_nginx

xattr() { getfattr --absolute-names --only-values -n "user.penstock.$2" "$MNT/$1"; }
is_cached() { [[ $(xattr "$1" state) == cached ]]; }
same() { cmp "$MNT/$1" "$T/www/$1"; }

# serves WHEN: cached files can be used, and no step waits for the origin for long.
serves() {
	at_most "$1: ls -lR does not wait (ms)" 10000 "$(milliseconds ls -lR "$MNT")"
	equal "$1: all names are shown" "cached.bin remote.bin sub" "$(cd "$MNT" && echo *)"
	equal "$1: sizes are shown" 3000000 "$(stat -c %s "$MNT/remote.bin")"
	check "$1: a cached file has its bytes" same cached.bin
	check "$1: a cached file in a folder has its bytes" same sub/also.bin
	at_most "$1: opening a cached file does not wait (ms)" 5000 "$(milliseconds same cached.bin)"
}

# fails WHEN: a file that is not cached gives EIO soon after the timeout, and the reason is reported.
fails() {
	local rc=0 took
	took=$(milliseconds cat "$MNT/remote.bin")
	cat "$MNT/remote.bin" >"$T/out" 2>"$T/err" || rc=$?
	equal "$1: a file that is not cached cannot be read" 1 "$rc"
	check "$1: the failure is an I/O error" grep -qi 'input/output error' "$T/err"
	at_most "$1: the read fails in time (ms)" 15000 "$took"
	check "$1: the reason is in user.penstock.error" grep -q 'connect' <(xattr remote.bin error)
	check "$1: status shows the reason" grep -q 'failure .*connect' <(penstock status "$MNT")
	check "$1: the log has the reason" grep -q 'warning: .*remote.bin.*connect' "$T/penstock.log"
}

mount_penstock "$ORIGIN/" --timeout 4s --revalidate open
check "with the origin, a file is read" same cached.bin
check "with the origin, another file is read" same sub/also.bin
wait_until 20 is_cached cached.bin || die "cached.bin is cached" "$(xattr cached.bin state)"
wait_until 20 is_cached sub/also.bin || die "sub/also.bin is cached" "$(xattr sub/also.bin state)"
kill_nginx
serves "origin gone"
fails "origin gone"
check "the status says that the origin is gone" grep -q '^ *offline' <(penstock status "$MNT")

# A mapping of a file that cannot be fetched gives SIGBUS, and the process ends.
ulimit -c 0
"$python" -c 'import mmap, sys
f = open(sys.argv[1], "rb")
mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)[2000000]' "$MNT/remote.bin" >"$T/out" 2>&1 &
mapper=$!
rc=0
wait "$mapper" || rc=$?
equal "a mapping of a file that is not cached gives SIGBUS" $((128 + 7)) "$rc"
umount_penstock

mount_penstock "$ORIGIN/" --timeout 4s --revalidate open
serves "mounted without the origin"
fails "mounted without the origin"

# The origin comes back with another version.
cp "$T/new" "$T/www/.tmp" && touch -d "2030-01-01" "$T/www/.tmp" && mv "$T/www/.tmp" "$T/www/cached.bin"
restart_nginx
check "when the origin is back, a new open sees the new version" wait_until 60 same cached.bin
check "when the origin is back, a file that was not cached is read" wait_until 20 same remote.bin
check_not "the status no longer says that the origin is gone" grep -q '^ *offline' <(penstock status "$MNT")
