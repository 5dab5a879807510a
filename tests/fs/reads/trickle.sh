#!/usr/bin/env bash
# A connection that brings a few bytes a second does not hold up a file whose origin is fast again; and requests to
# an origin that is slow on all connections are not sent twice.
. "$(dirname "$0")/../../lib.sh"
requires mount python3

# Each answer keeps the rate (bytes a second; 0: no limit) that was in $T/rate when it began.
cat >"$T/server.py" <<'PY'
import http.server, os, sys, threading, time

DIR = sys.argv[1]
DATA = {name: open(DIR + "/" + name, "rb").read() for name in ("a.bin", "b.bin")}
lock = threading.Lock()

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_HEAD(self):
        self.answer()

    def do_GET(self):
        self.answer()

    def answer(self):
        data = DATA[self.path[1:]]
        first, last = 0, len(data) - 1
        asked = self.headers.get("Range")
        if asked:
            f, l = asked[6:].split("-")
            first, last = int(f), min(last, int(l))
        rate = int(open(DIR + "/rate").read() or 0)
        if self.command == "GET":
            with lock, open(DIR + "/requests", "a") as f:
                f.write("%s %d\n" % (self.path, last - first + 1))
        self.send_response(206 if asked else 200)
        self.send_header("ETag", '"v"')
        self.send_header("Content-Length", str(last - first + 1))
        if asked:
            self.send_header("Content-Range", "bytes %d-%d/%d" % (first, last, len(data)))
        self.end_headers()
        if self.command == "HEAD":
            return
        part = rate // 5 if rate else len(data)
        for at in range(first, last + 1, part):
            if rate:
                time.sleep(0.2)
            try:
                self.wfile.write(data[at:min(at + part, last + 1)])
            except OSError:
                self.close_connection = True
                return

    def log_message(self, *args):
        pass

class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 256

    def handle_error(self, *args):
        pass

server = Server(("127.0.0.1", 0), Handler)
open(DIR + "/port.new", "w").write(str(server.server_port))
os.rename(DIR + "/port.new", DIR + "/port")
server.serve_forever()
PY
random_file "$T/a.bin" 3000000
random_file "$T/b.bin" 3000000
set_rate() {
	echo "$1" >"$T/rate.new"
	mv "$T/rate.new" "$T/rate"
}
requested() {
	awk -v path="/$1" '$1 == path {n += $2} END {print n + 0}' "$T/requests"
}
set_rate 0
"$python" "$T/server.py" "$T" &
wait_until 20 test -e "$T/port"
mount_penstock "http://127.0.0.1:$(cat "$T/port")/{a,b}.bin" --timeout 12s

set_rate 1000
cmp "$MNT/a.bin" "$T/a.bin" >"$T/first" 2>&1 &
first=$!
wait_until 10 test -s "$T/requests"
sleep 1
set_rate 0
took=$(milliseconds cmp "$MNT/a.bin" "$T/a.bin")
check "the file is read once the origin is fast again" cmp "$MNT/a.bin" "$T/a.bin"
at_most "within the timeout (ms)" 11500 "$took"
rc=0
wait "$first" || rc=$?
equal "the reader that came before gets its bytes, too" 0 "$rc"
at_most "bytes requested" 6000000 "$(requested a.bin)"

set_rate 150000
check "a file of an origin that is slow everywhere is read" cmp "$MNT/b.bin" "$T/b.bin"
equal "no byte of it was requested twice" 3000000 "$(requested b.bin)"
