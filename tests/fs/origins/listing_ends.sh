#!/usr/bin/env bash
# A listing that trickles, or has page after page without a name, ends with an error.
. "$(dirname "$0")/../../lib.sh"
requires mount python3

cat >"$T/server.py" <<'PY'
import http.server, itertools, os, sys, time

count = itertools.count()

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        if self.path.startswith("/trickle/"):
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            try:
                while True:
                    self.wfile.write(b"1\r\n \r\n")
                    time.sleep(0.5)
            except OSError:
                self.close_connection = True
            return
        page = ('<?xml version="1.0"?><ListBucketResult><NextContinuationToken>t%d</NextContinuationToken>'
                "<IsTruncated>true</IsTruncated></ListBucketResult>" % next(count)).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, *args):
        pass

class Server(http.server.ThreadingHTTPServer):
    def handle_error(self, *args):
        pass

server = Server(("127.0.0.1", 0), Handler)
open(sys.argv[1] + "/port.new", "w").write(str(server.server_port))
os.rename(sys.argv[1] + "/port.new", sys.argv[1] + "/port")
server.serve_forever()
PY
"$python" "$T/server.py" "$T" &
wait_until 20 test -e "$T/port"
origin=http://127.0.0.1:$(cat "$T/port")
mkdir -p "$T/m1" "$T/m2"

timeout 100 penstock mount "$origin/trickle/" "$T/m1" --cache-dir "$T/c1" --log "$T/1.log" --timeout 5s \
	>"$T/out1" 2>&1 &
trickles=$!
rc=0
timeout 100 penstock mount s3://bucket/ "$T/m2" --endpoint "$origin" --region x --no-sign-request \
	--cache-dir "$T/c2" --log "$T/2.log" >"$T/out2" 2>&1 || rc=$?
check "a store without end is given up, and not by our limit of time ($rc)" test "$rc" != 124 -a "$rc" != 0
check "the error says why" grep -q "2000 pages in a row without a new name" "$T/out2"
rc=0
wait "$trickles" || rc=$?
check "meanwhile the command says what it waits for" grep -q "waiting for the source to be listed" "$T/out1"
check "so is a page that trickles ($rc)" test "$rc" != 124 -a "$rc" != 0
check "and the error says it" grep -q "only [0-9]* bytes came in 2[0-9.]* s" "$T/out1"
