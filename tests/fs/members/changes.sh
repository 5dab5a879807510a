#!/usr/bin/env bash
# --members with shards that change, are damaged, or whose origin does not answer: no file has bytes of two
# versions, errors say why, and neither readers nor unmounts hang.
. "$(dirname "$0")/../../lib.sh"
requires mount nginx jq getfattr python3

# shard NAME VERSION: makes a tar of five files that begin with VERSION. Each tar has another size.
versions=0
shard() {
	rm -rf "$T/make"
	mkdir "$T/make"
	for i in {1..5}; do
		random_file "$T/make/$i.bin" 300000 "$2-$i"
		printf '%s' "$2" | dd of="$T/make/$i.bin" conv=notrunc status=none
	done
	versions=$((versions + 1))
	head -c $((versions * 1000)) /dev/zero >"$T/make/pad"
	tar -C "$T/make" -b 1 -cf "$T/www/$1.tar" 1.bin 2.bin 3.bin 4.bin 5.bin pad
}
error_of() { getfattr --absolute-names --only-values -n user.penstock.error "$MNT/$1"; }

mkdir -p "$T/www"
shard changes old
shard stays old
cp "$T/www/stays.tar" "$T/www/cut.tar"
truncate -s 1000000 "$T/www/cut.tar"
"$python" - "$T/www/stays.tar" "$T/www/bad.tar" <<'PY'
import sys
data = bytearray(open(sys.argv[1], "rb").read())
third = data.index(b"3.bin")
data[third + 148 : third + 154] = b"777777"
open(sys.argv[2], "wb").write(data)
PY
random_file "$T/www/noise.tar" 200000
: >"$T/www/empty.tar"
head -c 10240 /dev/zero >"$T/www/none.tar"
start_nginx
mount_penstock "$ORIGIN/json/" --members

# Damage.
equal "a truncated shard shows the members before the cut" \
	"1.bin 2.bin 3.bin" "$(cd "$MNT/cut" && echo *)"
check "the last member before the cut is read" cmp "$MNT/cut/3.bin" "$MNT/stays/3.bin"
check "the error of the truncated shard's folder says so" grep -q "truncated: " <(error_of cut)
equal "a damaged shard shows the members before the damage" "1.bin 2.bin" "$(cd "$MNT/bad" && echo *)"
check "the error of the damaged shard's folder says where" \
	grep -q "damaged tar at offset [0-9]*: bad header checksum" <(error_of bad)
check "the log says where the shard is damaged" grep -q \
	"bad.tar: damaged tar at offset .*; the members before it are shown" "$T/penstock.log"
rc=0
timeout 20 ls "$MNT/noise" >"$T/out" 2>&1 || rc=$?
equal "listing a file that is not a tar fails" "2 1" "$rc $(grep -c "Input/output error" "$T/out")"
check "the error of that file's folder says why" grep -q "no tar header" <(error_of noise)
check_not "listing an empty file fails" ls "$MNT/empty"
equal "a tar without members is an empty folder" "" "$(ls "$MNT/none")"
check "status counts the two shards that are not tars" \
	grep -q "2 shards cannot be read as a tar" <(penstock status "$MNT")

# A new version.
exec 5<"$MNT/changes/1.bin"
head -c 3 <&5 >"$T/part"
cat "$MNT/changes/2.bin" >"$T/old2"
shard changes new!
penstock refresh "$MNT" >/dev/null
equal "a new version is shown after a refresh" new! "$(head -c 4 "$MNT/changes/1.bin")"
for i in 1 2 3 4 5; do
	check "$i.bin is of the new version" cmp "$MNT/changes/$i.bin" "$T/make/$i.bin"
done
check "an open file of the old version gives its old bytes or an error" \
	"$python" - "$T/part" "$T/make/1.bin" <<'PY'
import os, random, sys
rand = random.Random("old-1").randbytes(300000)
old = b"old" + rand[3:]
try: got = os.pread(5, 300000, 0)
except OSError: sys.exit(0)
sys.exit(got != old)
PY
exec 5<&-
equal "two listings of the folder are equal" "$(ls "$MNT")" "$(ls "$MNT")"
shard added old
echo text >"$T/www/new.txt"
penstock refresh "$MNT" >/dev/null
equal "new names are listed after a refresh" \
	"added bad changes cut empty new.txt noise none stays" "$(cd "$MNT" && echo *)"
check "a new shard is a folder at once" cmp "$MNT/added/1.bin" "$MNT/stays/1.bin"
rm "$T/www/added.tar"
penstock refresh "$MNT" >/dev/null
check_not "a deleted shard is gone at once" stat "$MNT/added"
check_not "the deleted shard's members are gone" stat "$MNT/added/1.bin"

# The origin changes a shard without a listing.
shard sudden one
penstock refresh "$MNT" >/dev/null
equal "the members of a new shard are listed" \
	"1.bin 2.bin 3.bin 4.bin 5.bin pad" "$(cd "$MNT/sudden" && echo *)"
penstock evict "$MNT" sudden >/dev/null
shard sudden two
drop_page_cache "$MNT"
check "each member of a shard that changed has bytes of one version, or gives an error" \
	"$python" - "$MNT/sudden" "$T/make" <<'PY'
import random, sys
for i in range(1, 6):
    one = b"one" + random.Random(f"one-{i}").randbytes(300000)[3:]
    two = open(f"{sys.argv[2]}/{i}.bin", "rb").read()
    try: got = open(f"{sys.argv[1]}/{i}.bin", "rb").read()
    except OSError: continue
    if got not in (one, two): sys.exit(f"{i}.bin has bytes of neither version")
PY
penstock refresh "$MNT" >/dev/null
equal "after a refresh the members have the new bytes" two "$(head -c 3 "$MNT/sudden/4.bin")"
umount_penstock

# A tar that is made to cost time: 40 links, each to the one before it, and 60,000 links to the last of them.
"$python" - "$T/www/links.tar" <<'PY'
import sys, tarfile
with tarfile.open(sys.argv[1], "w", format=tarfile.GNU_FORMAT) as tar:
    def link(name, target):
        info = tarfile.TarInfo(name)
        info.type, info.linkname = tarfile.SYMTYPE, target
        tar.addfile(info)
    folder = tarfile.TarInfo("d")
    folder.type = tarfile.DIRTYPE
    tar.addfile(folder)
    steps = "d/../" * 800
    link("c0", "d")
    for i in range(1, 40):
        link(f"c{i}", f"{steps}c{i - 1}")
    for i in range(60000):
        link(f"l{i:05}", "c39")
PY
mount_penstock "$ORIGIN/json/" --members
equal "links that take long to follow do not delay a listing" 60041 "$(timeout 60 ls "$MNT/links" | wc -l)"
check "links that take long to follow do not delay an unmount" timeout 20 penstock umount "$MNT"
rm "$T/www/links.tar"

# An origin that does not answer.
shard slow x
shard slow2 x
mount_penstock "$ORIGIN/json/" --members --timeout 60s
check "a shard's name is shown before its table is made" test -d "$MNT/slow"
mapfile -t nginx < <(cat "$T/nginx/nginx.pid" && pgrep -P "$(cat "$T/nginx/nginx.pid")")
kill -STOP "${nginx[@]}"
ls "$MNT/slow" >"$T/out" 2>&1 &
reader=$!
cat "$MNT/slow2/1.bin" >"$T/out2" 2>&1 &
other=$!
disown "$reader" "$other"
sleep 0.5
check "a program that waits for a table can be killed" bash -c "kill -KILL $reader; for i in {1..50}; do
	kill -0 $reader 2>/dev/null || exit 0; sleep 0.1; done; exit 1"
check "stat of known names does not wait" timeout 5 stat "$MNT/slow"
kill -KILL "$other" 2>/dev/null || true
at_most "an unmount does not wait for tables whose origin does not answer (ms)" 15000 \
	"$(milliseconds penstock umount -l "$MNT")"
check "the daemon ends after that unmount" wait_until 20 no_daemon
kill -CONT "${nginx[@]}"
