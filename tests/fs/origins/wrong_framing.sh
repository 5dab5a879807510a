#!/usr/bin/env bash
# Answers whose headers or chunks do not say where the body ends leave none of their bytes: not in the answer to a
# read, not in the kernel, and not in the cache.
. "$(dirname "$0")/../../lib.sh"
requires mount python3

# The first GET of each file has the fault that the file's name says. Its body begins with other bytes than the file.
cat >"$T/server.py" <<'PY'
import os, socketserver, sys

DATA = os.urandom(3000000)
WRONG = b"8\nABCDEFGH" * 2000
FAULTS = {
    # name: (headers besides Content-Range, body); LEN is the length of the range
    "both": ("Transfer-Encoding: chunked\r\nContent-Length: LEN\r\n", WRONG),
    "twolengths": ("Content-Length: LEN\r\nContent-Length: 5\r\n", WRONG),
    "coding": ("Transfer-Encoding: x, chunked\r\n", b"4e20\r\n" + WRONG + b"\r\n"),
    "badchunk": ("Transfer-Encoding: chunked\r\n", b"4e20\r\n" + WRONG + b"\r\nthis is no chunk\r\n"),
    "fewchunks": ("Transfer-Encoding: chunked\r\n", b"4e20\r\n" + WRONG + b"\r\n0\r\n\r\n"),
    "toolong": ("Connection: close\r\n", WRONG + DATA),
    "http10": ("Transfer-Encoding: chunked\r\n", b"4e20\r\n" + WRONG + b"\r\n"),
}
seen = set()

class Server(socketserver.StreamRequestHandler):
    def handle(self):
        while True:
            line = self.rfile.readline().decode()
            if not line:
                return
            method, path, _ = line.split()
            headers = {}
            while (h := self.rfile.readline().decode().strip()):
                name, value = h.split(":", 1)
                headers[name.lower()] = value.strip()
            name = path.strip("/").split(".")[0]
            first, last, status = 0, len(DATA) - 1, "200 OK"
            if "range" in headers:
                f, l = headers["range"][6:].split("-")
                first, last, status = int(f), min(last, int(l)), "206 Partial Content"
            head = 'ETag: "v"\r\n'
            if method == "GET":
                head += "Content-Range: bytes %d-%d/%d\r\n" % (first, last, len(DATA))
            bad = method == "GET" and name in FAULTS and name not in seen
            if bad:
                seen.add(name)
                more, body = FAULTS[name]
                version = "HTTP/1.0" if name == "http10" else "HTTP/1.1"
                head = version + " " + status + "\r\n" + head + more.replace("LEN", str(last - first + 1)) + "\r\n"
                self.wfile.write(head.encode() + body)
                return
            head += "Content-Length: %d\r\n\r\n" % (last - first + 1)
            self.wfile.write(("HTTP/1.1 " + status + "\r\n" + head).encode())
            if method == "GET":
                self.wfile.write(DATA[first:last + 1])

socketserver.ThreadingTCPServer.daemon_threads = True
socketserver.ThreadingTCPServer.request_queue_size = 128
server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Server)
server.handle_error = lambda *args: None
dir = sys.argv[1]
open(dir + "/data", "wb").write(DATA)
open(dir + "/list.txt", "w").write("".join("http://127.0.0.1:%d/%s.bin\n" % (server.server_address[1], f) for f in FAULTS))
os.rename(dir + "/list.txt", dir + "/list")
server.serve_forever()
PY
"$python" "$T/server.py" "$T" &
wait_until 20 test -e "$T/list"

faults="both twolengths coding badchunk fewchunks toolong http10"
mount_penstock "@$T/list"
for name in $faults; do
	check "$name: the read gets the right bytes" cmp "$MNT/$name.bin" "$T/data"
	check "$name: and the next one, too" cmp "$MNT/$name.bin" "$T/data"
done
umount_penstock
mount_penstock "@$T/list"
for name in $faults; do
	check "$name: the cache has the right bytes" cmp "$MNT/$name.bin" "$T/data"
done
umount_penstock
