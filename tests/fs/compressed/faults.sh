#!/usr/bin/env bash
# Compressed shards from an origin that fails, cuts its answers, goes away or has another version: sizes and
# bytes are right, or there is an error, and what was interrupted is continued.
. "$(dirname "$0")/../../lib.sh"
requires mount nginx nginx-lua zstd getfattr

forms=(one seekable piped)
"$python" "$top_srcdir/tests/fs/compressed/make_compressed.py" "$T/made" "$T/plain" 5000000
mkdir "$T/www"
for form in "${forms[@]}"; do mv "$T/made/$form.tar.zst" "$T/www"; done
mv "$T/made/plain.tar.gz" "$T/www"
forms+=(plain)
start_nginx

# same FORM: the shown file has the plain file's size and bytes.
same() {
	[[ $(stat -c %s "$MNT/$1.tar") == $(stat -c %s "$T/plain/$1.tar") ]] &&
		cmp "$MNT/$1.tar" "$T/plain/$1.tar"
}
for place in flaky cut; do
	CACHE=$T/cache-$place
	check "$place: mounts" mount_penstock "$ORIGIN/$place/" --timeout 100s
	# All forms are read at the same time, because the growing back-off of retries makes each slow.
	readers=()
	for form in "${forms[@]}"; do
		same "$form" >"$T/$form.out" 2>&1 &
		readers+=($!)
	done
	for i in "${!readers[@]}"; do
		rc=0
		wait "${readers[i]}" || rc=$?
		equal "$place: ${forms[i]} has the plain bytes" "0 " "$rc $(cat "$T/${forms[i]}.out")"
	done
	at_least "$place: some requests failed" 1 "$(stats .origin.errors)"
	umount_penstock
	check "$place: verify finds no error in the cache" penstock verify --cache-dir "$CACHE"
done

# An origin that goes away.
CACHE=$T/cache-away
check "a mount before the origin goes away" mount_penstock "$ORIGIN/" --timeout 2s
kill_nginx
for form in "${forms[@]}"; do
	rc=0
	timeout 60 cat "$MNT/$form.tar" >"$T/out" 2>/dev/null || rc=$?
	equal "$form.tar cannot be read without the origin" 1 "$rc"
	check "$form.tar: bytes before the error are right" \
		cmp -n "$(stat -c %s "$T/out")" "$T/out" "$T/plain/$form.tar"
done
restart_nginx
for form in "${forms[@]}"; do
	check "$form.tar is read once the origin is back" wait_until 60 same "$form"
done
umount_penstock

# Another version in the middle: the old one's bytes or an error, never both versions' in one file.
CACHE=$T/cache-changed
rm -r "$T/www" && mkdir "$T/www"
put() { # as a publisher does: a new file under the old name, with another time
	random_file "$T/$1" 24000000 "$1"
	"$python" "$top_srcdir/tests/fs/compressed/make_compressed.py" --one one.tar.zst "$T/$1" "$T/packed"
	touch -d "$2" "$T/packed" && mv "$T/packed" "$T/www/f.tar.zst"
}
put old "2020-01-01 00:00:01"
check "a mount of a slow origin succeeds" mount_penstock "$ORIGIN/slow/" --timeout 100s
"$python" - "$MNT/f.tar" "$T/old" "$T/began" >"$T/reader" 2>&1 <<'PY' &
import errno, os, sys, time
path, old, began = sys.argv[1:]
expected = open(old, "rb").read()
f = os.open(path, os.O_RDONLY)
got = os.read(f, 65536)
open(began, "w").close()
while os.path.exists(began):
    time.sleep(0.02)
how = "all of it"
try:
    while more := os.read(f, 65536):
        got += more
except OSError as e:
    how = errno.errorcode[e.errno]
assert expected.startswith(got), "other bytes than the old version's"
assert how == "ESTALE" and len(got) < len(expected), (how, len(got))
print("right")
PY
reader=$!
check "a reader begins" wait_until 60 test -e "$T/began"
put new "2020-01-01 00:00:02"
rm "$T/began"
wait "$reader" || true
equal "the reader gets the old version, and then ESTALE" right "$(cat "$T/reader")"
is_new() { cmp "$MNT/f.tar" "$T/new"; }
check "a new open reads the new version" wait_until 60 is_new
umount_penstock
check "verify finds no error in the cache" penstock verify --cache-dir "$CACHE"

# An origin that refuses the bytes of a shard whose size only they could tell: the reason is told at once,
# logged once, and is the program's error.
random_file "$T/plain.bin" 3000000 refused
gzip -c "$T/plain.bin" >"$T/refused.gz"
cat >"$T/refuses.py" <<'PY'
import http.server, os, re, sys

body = open(sys.argv[2], "rb").read()

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, status, length, *headers):
        self.send_response(status)
        self.send_header("Content-Length", str(length))
        self.send_header("ETag", '"x"')
        for header in headers:
            self.send_header(*header)
        self.end_headers()

    def do_HEAD(self):
        self.answer(200, len(body))

    def do_GET(self):
        if not os.path.exists(sys.argv[1] + self.path[1:4]):
            self.answer(int(self.path[1:4]), 0)
            return
        first, last = map(int, re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers["Range"]).groups())
        part = body[first : last + 1]
        self.answer(206, len(part), ("Content-Range", f"bytes {first}-{first + len(part) - 1}/{len(body)}"))
        self.wfile.write(part)

    def log_message(self, *args):
        pass

server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
open(sys.argv[1] + ".new", "w").write(str(server.server_port))
os.rename(sys.argv[1] + ".new", sys.argv[1])
server.serve_forever()
PY
"$python" "$T/refuses.py" "$T/refuses.port" "$T/refused.gz" &
wait_until 20 test -e "$T/refuses.port"
for status in 503 404 403 501; do
	echo "http://127.0.0.1:$(cat "$T/refuses.port")/$status.tar.gz"
done >"$T/refuses.txt"
CACHE=$T/cache-refuses
mount_penstock "@$T/refuses.txt" --timeout 4s --missing warn
for row in "503 Input/output error" "404 No such file" "403 Permission denied" "501 Input/output error"; do
	timeout 30 stat "$MNT/${row%% *}.tar" >"$T/out" 2>&1 &
	asks=$!
	if [[ $row == 503* ]]; then
		told() { penstock status "$MNT" | grep -q "HTTP 503"; }
		check "503: status has the reason while the program waits" wait_until 3 told
		check "503: the program still waits" kill -0 "$asks"
		check "503: the log has the reason" grep -q "503.tar.gz: its size is not known yet: .*HTTP 503" "$T/penstock.log"
	fi
	wait "$asks" || true
	check "${row%% *}: the program gets the origin's error" grep -q "${row#* }" "$T/out"
	status=${row%% *}
	timeout 30 cat "$MNT/$status.tar" >/dev/null 2>&1 || true
	why="is not known yet"
	[[ $status == 503 ]] || why="cannot be found"
	equal "$status: the log has the reason once" "1 1" \
		"$(grep -c "$status.tar.gz: its size $why: .*HTTP $status" "$T/penstock.log") $(
			grep -c "$status.tar.gz: .*HTTP $status" "$T/penstock.log")"
done
touch "$T/refuses.port503"
is_read() { cmp "$MNT/503.tar" "$T/plain.bin"; }
check "503: the shard is read once the origin gives its bytes" wait_until 60 is_read
equal "503: an attribute has the errno of the last failure, as the origin gave it" 11 \
	"$(getfattr --only-values -n user.penstock.errno "$MNT/503.tar")"
umount_penstock
