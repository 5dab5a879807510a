#!/usr/bin/env bash
# A long listing shows its progress on a terminal, and erases it at the end; without a terminal it shows
# nothing.
. "$(dirname "$0")/../../lib.sh"
requires mount python3 script terminal

# The server sends half of a page, and the rest once $T/go exists.
cat >"$T/server.py" <<'PY'
import http.server, os, sys, time

class Page(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_HEAD(self):
        self.send_response(200)
        self.send_header("Content-Length", "5")
        self.send_header("Last-Modified", "Sat, 01 Jan 2022 00:00:00 GMT")
        self.end_headers()

    def do_GET(self):
        links = ['<a href="%04d.tar">%04d.tar</a>\n' % (i, i) for i in range(2000)]
        page = "<html><body><h1>Index of /</h1><pre>" + "".join(links) + "</pre></body></html>"
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page[:len(page) // 2].encode())
        self.wfile.flush()
        while not os.path.exists(sys.argv[1] + "/go"):
            time.sleep(0.02)
        self.wfile.write(page[len(page) // 2:].encode())

    def log_message(self, *args):
        pass

server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
with open(sys.argv[1] + "/port.new", "w") as f:
    f.write(str(server.server_port))
os.rename(sys.argv[1] + "/port.new", sys.argv[1] + "/port")
server.serve_forever()
PY
"$python" "$T/server.py" "$T" &
wait_until 20 test -e "$T/port"
origin=http://127.0.0.1:$(cat "$T/port")

mkdir -p "$MNT"
script -qefc "penstock mount $origin/ $MNT --cache-dir $CACHE --log $T/penstock.log" \
	"$T/typescript" >/dev/null &
mounting=$!
check "mount shows what it lists, and the number of files so far" \
	wait_until 30 grep -q "listing $origin/: [0-9]* files" "$T/typescript"
touch "$T/go"
rc=0
wait "$mounting" || rc=$?
equal "mount succeeds" 0 "$rc"
check "the progress line is erased" test "$(tail -c 4 "$T/typescript" | tr -d '\r\n')" != files
equal "all files are listed" 2000 "$(find "$MNT" -name "*.tar" | wc -l)"
umount_penstock

penstock mount "$origin/" "$MNT" --cache-dir "$CACHE" --log "$T/penstock.log" >"$T/out" 2>&1
equal "without a terminal there is no progress" "" "$(cat "$T/out")"
umount_penstock
