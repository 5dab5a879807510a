#!/usr/bin/env python3
"""An origin that tells what reached it, for tests of tiers: tier_origin.py ROOT PORT LOG [CERTIFICATE KEY]

Serves the files of ROOT with a strong ETag, ranges and If-Match. LOG gets a line a request: method, path and query
as they came, status, bytes, Range, If-Match, Host, Authorization (- where there is none). First words of a path:

  private   403 without Authorization, X-Token: secret, or a signature in the query
  ignoring  ignores If-Match: sends the current bytes with the current ETag
  slow      sends the first half of a body, and a second later the rest
  hidden    Cache-Control: private, no-store and Vary: *, as origins say of what needs credentials
"""
import hashlib
import http.server
import os
import re
import ssl
import sys
import threading
import time
import urllib.parse

root, port, log = sys.argv[1:4]
lock = threading.Lock()


class Origin(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, status, body=b"", headers=()):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        sent = [self.headers.get(n, "-") for n in ("Range", "If-Match", "Host", "Authorization")]
        with lock, open(log, "a") as f:
            print(self.command, self.requestline.split()[1], status, len(body), *sent, file=f)
        self.end_headers()
        if self.command == "HEAD":
            return
        half = len(body) // 2 if self.path.startswith("/slow/") else 0
        if half:
            self.wfile.write(body[:half])
            time.sleep(1)
        self.wfile.write(body[half:])

    def do_GET(self):
        path, _, query = self.path.partition("?")
        word = path.split("/")[1]
        name = os.path.join(root, os.path.basename(urllib.parse.unquote(path)))
        signed = re.search("(^|&)(X-Amz-Signature|Signature)=good", query)
        if word == "private" and not (
            self.headers.get("Authorization") == "Bearer good" or self.headers.get("X-Token") == "secret" or signed
        ):
            return self.answer(403)
        if not os.path.isfile(name):
            return self.answer(404)
        with open(name, "rb") as f:
            data = f.read()
        etag = '"%s"' % hashlib.md5(data).hexdigest()
        headers = [("ETag", etag), ("Content-Type", "application/octet-stream")]
        if word == "hidden":
            headers += [("Cache-Control", "private, no-store"), ("Vary", "*")]
        if word != "ignoring" and self.headers.get("If-Match", etag) != etag:
            return self.answer(412)
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if not wanted:
            return self.answer(200, data, headers)
        first, last = int(wanted[1]), min(int(wanted[2] or len(data)), len(data) - 1)
        if first > last:
            return self.answer(416, b"", [("Content-Range", "bytes */%d" % len(data))])
        headers.append(("Content-Range", "bytes %d-%d/%d" % (first, last, len(data))))
        return self.answer(206, data[first : last + 1], headers)

    do_HEAD = do_PUT = do_GET

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 128
    daemon_threads = True

    def handle_error(self, *_):
        pass


server = Server(("127.0.0.1", int(port)), Origin)
if len(sys.argv) > 4:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*sys.argv[4:6])
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
server.serve_forever()
