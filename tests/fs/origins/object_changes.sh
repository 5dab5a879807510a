#!/usr/bin/env bash
# An object that changes at the origin: a new open sees the new data; an old handle reads only old data or
# fails with ESTALE, also in the middle of a cold file, and never gets a mix. A mount of a server without
# versions gives a warning.
. "$(dirname "$0")/../../lib.sh"
requires mount nginx jq getfattr

mkdir -p "$T/www"
random_file "$T/old" 12000000 old
random_file "$T/new" 12000000 new
put() { # as a publisher does: a new file under the old name
	cp "$T/$1" "$T/www/.tmp" && touch -d "$2" "$T/www/.tmp" && mv "$T/www/.tmp" "$T/www/f.bin"
}
put old "2020-01-01 00:00:01"
start_nginx

# A reader with an old handle must get a prefix of the old file, and succeed only if it got the whole old
# file.
whole_or_stale() {
	"$python" - "$MNT/f.bin" "$T/old" "$1" "$T/opened" "$T/go" <<'PY'
import errno, os, sys, time
path, old, warm, opened, go = sys.argv[1:]
old = open(old, "rb").read()
fd = os.open(path, os.O_RDONLY)
got = os.read(fd, len(old) if warm == "all" else 1_500_000)
while warm == "all" and len(got) < len(old):
    got += os.read(fd, 1 << 20)
open(opened, "w").close()
while not os.path.exists(go):
    time.sleep(0.02)
try:
    if warm == "all":
        os.lseek(fd, 0, 0)
        got = b""
    while data := os.read(fd, 1 << 20):
        got += data
except OSError as e:
    if e.errno != errno.ESTALE:
        sys.exit(f"{e}, expected ESTALE")
    sys.exit(0 if got == old[: len(got)] else "a mix before ESTALE")
sys.exit(0 if got == old else f"{len(got)} bytes that are not the old file")
PY
}

for how in limit-part limit-all noversion-part noversion-all; do
	at=${how%-*} warm=${how#*-}
	CACHE=$T/cache-$how
	put old "2020-01-01 00:00:01"
	rm -f "$T/opened" "$T/go"
	# Slow, so that little was read ahead when the object changes.
	mount_penstock "$ORIGIN/$at/" --revalidate open
	whole_or_stale "$warm" >"$T/out" 2>&1 &
	reader=$!
	wait_until 20 test -e "$T/opened" || die "a program reads the old file" "$(cat "$T/out")"
	put new "2021-01-01 00:00:01"
	check "a new open sees the new data ($warm of the old was read, $at)" cmp "$MNT/f.bin" "$T/new"
	[[ $at = noversion ]] || equal "a new open sees the new time" "$(stat -c %Y "$T/www/f.bin")" \
		"$(stat -c %Y "$MNT/f.bin")"
	touch "$T/go"
	rc=0
	wait "$reader" || rc=$?
	equal "the old handle gives whole old data or ESTALE" "0 " "$rc $(cat "$T/out")"
	umount_penstock

	put old "2022-01-01 00:00:01"
	mount_penstock "$ORIGIN/$at/"
	check "after a remount the origin's data is seen" cmp "$MNT/f.bin" "$T/old"
	umount_penstock
done

# If nothing of the old version is cached or open, no reader can get a mix: an open then takes the new
# version, although the old one is still valid by --revalidate.
for revalidate in 1h never; do
	CACHE=$T/cache-evicted-$revalidate
	put old "2020-01-01 00:00:01"
	mount_penstock "$ORIGIN/" --revalidate "$revalidate"
	cat "$MNT/f.bin" >/dev/null
	put new "2021-01-01 00:00:01"
	exec 7<"$MNT/f.bin"
	penstock evict "$MNT" >/dev/null
	cmp -s "$MNT/f.bin" "$T/old" && seen=old ||
		seen=$(cmp -s "$MNT/f.bin" "$T/new" && echo new || echo neither)
	check "while an evicted version is open, an open sees all of one version ($seen, $revalidate)" test \
		"$seen" != neither
	! cat <&7 >"$T/out" 2>/dev/null ||
		check "the open handle gets the whole old version or an error" cmp "$T/out" "$T/old"
	exec 7<&-
	put old "2022-01-01 00:00:01"
	check "evict succeeds once the file is closed" timeout 20 penstock evict "$MNT"
	check "then the first open sees the new data ($revalidate)" cmp "$MNT/f.bin" "$T/old"
	umount_penstock
done

# A loader takes the new version of a shard that it has opened, and of which it has read nothing.
if [[ -x $top_builddir/penstock-loader ]]; then
	CACHE=$T/cache-loader
	for name in one two; do
		mkdir "$T/$name" && echo "$name" >"$T/$name/$name.txt"
		tar -C "$T/$name" -cf "$T/$name.tar" "$name.txt"
	done
	cp "$T/one.tar" "$T/www/s.tar"
	mount_penstock "$ORIGIN/"
	stat "$MNT/s.tar" >/dev/null
	cp "$T/two.tar" "$T/www/.tmp" && touch -d "2021-01-01" "$T/www/.tmp" &&
		mv "$T/www/.tmp" "$T/www/s.tar"
	check "a loader reads a shard that changed since it was listed" penstock-loader ls "$MNT/s.tar"
	check "the loader reads the new version" grep -q two <(penstock-loader ls "$MNT/s.tar")
	umount_penstock
	rm "$T/www/s.tar"
fi

# A version with another size.
CACHE=$T/cache-size
put new "2023-01-01 00:00:01"
mount_penstock "$ORIGIN/" --revalidate open
cat "$MNT/f.bin" >/dev/null
head -c 5000001 "$T/old" >"$T/short"
put short "2024-01-01 00:00:01"
check "a shorter file is seen whole" cmp "$MNT/f.bin" "$T/short"
equal "a shorter file has its new size" 5000001 "$(stat -c %s "$MNT/f.bin")"
put new "2025-01-01 00:00:01"
check "a longer file is seen whole" cmp "$MNT/f.bin" "$T/new"
umount_penstock

# How long a version is valid.
CACHE=$T/cache-never
put old "2026-01-01 00:00:01"
mount_penstock "$ORIGIN/" --revalidate never
check "with --revalidate never a file is read" cmp "$MNT/f.bin" "$T/old"
put new "2027-01-01 00:00:01"
check "with --revalidate never the old version stays" cmp "$MNT/f.bin" "$T/old"
umount_penstock
CACHE=$T/cache-time
mount_penstock "$ORIGIN/" --revalidate 1s
check "with --revalidate 1s a file is read" cmp "$MNT/f.bin" "$T/new"
put old "2028-01-01 00:00:01"
check "after that time the new version is read" wait_until 30 cmp "$MNT/f.bin" "$T/old"
umount_penstock

# A server without versions.
text="warning: the server sends no versions (neither ETag nor Last-Modified)"
CACHE=$T/cache-versionless
put old "2029-01-01 00:00:01"
for time in first second; do
	rm -f "$T/penstock.log"
	mount_penstock "$ORIGIN/noversion/" --revalidate open 2>"$T/err"
	equal "mount warns of a server without versions ($time time)" 1 \
		"$(grep -c "^penstock mount: $text" "$T/err")"
	equal "the log warns of it once" 1 "$(grep -c "the server sends no versions" "$T/penstock.log")"
	check "status shows that there are no versions" grep -q "versions  *none" <(penstock status "$MNT")
	equal "the statistics show that there are no versions" true "$(stats '.mounts[0].versionless')"
	check "the file is read" cmp "$MNT/f.bin" "$T/old"
	umount_penstock
done
mount_penstock "$ORIGIN/noetag/" 2>"$T/err"
check "with Last-Modified alone the file is read" cmp "$MNT/f.bin" "$T/old"
equal "a server with Last-Modified gives no warning" "false " \
	"$(stats '.mounts[0].versionless') $(cat "$T/err")"
umount_penstock

# Without versions, a checksum of the first 64 KiB is the version.
CACHE=$T/cache-first
mount_penstock "$ORIGIN/noversion/" --revalidate never
equal "the version is a checksum" first64k: \
	"$(getfattr --only-values -n user.penstock.etag "$MNT/f.bin" | head -c 9)"
put new "2030-01-01 00:00:01"
origin_forget
cat "$MNT/f.bin" >"$T/out" 2>"$T/err" || true
equal "a file with other first bytes than its version gives ESTALE" "0 Stale" \
	"$(stat -c %s "$T/out") $(grep -o Stale "$T/err")"
at_most "that file is not requested again and again" \
	2 "$(grep -c "GET /noversion/f.bin.*bytes=0-" "$T/nginx/access.log")"
# This may take a moment: the kernel sends RELEASE after cat has ended.
check "the next open sees the new data" wait_until 5 cmp -s "$MNT/f.bin" "$T/new"
umount_penstock
mount_penstock "$ORIGIN/noversion/"
check "after a restart the new data is read" cmp "$MNT/f.bin" "$T/new"
equal "after a restart the file is still cached" cached \
	"$(getfattr --only-values -n user.penstock.state "$MNT/f.bin")"
at_most "one small request revalidates the cached file" 200000 "$(origin_forget; umount_penstock
	mount_penstock "$ORIGIN/noversion/" --revalidate open; cat \
		"$MNT/f.bin" >/dev/null; origin_bytes /noversion/f.bin)"
umount_penstock

# The object changes back to an older version.
put old "2031-01-01 00:00:01"
mount_penstock "$ORIGIN/noversion/" --revalidate open --grant-ttl open
check "an old version that is back is read without bytes of the newer one" cmp "$MNT/f.bin" "$T/old"
# The request that renews a grant compares the first bytes, too.
put new "2032-01-01 00:00:01"
check "with a grant for each open a change is seen" wait_until 5 cmp -s "$MNT/f.bin" "$T/new"
origin_forget
check "the changed file is read again" cmp "$MNT/f.bin" "$T/new"
equal "the changed file is read with one request" 1 "$(grep -c "/noversion/f.bin" "$T/nginx/access.log")"
umount_penstock
