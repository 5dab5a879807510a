#!/usr/bin/env python3
"""A stand-in for an AIStore cluster, as its S3 API is seen from outside: aistore_server.py ROOT READY LOG

A gateway and two targets, each a port of its own; READY gets the gateway's URL. The gateway answers listings of
/s3/BUCKET by itself and sends every request for an object to the target that has it, as AIStore's proxy does: 307, a
Location with its own name and the time (pid, ptm), and an XML body. A target has the objects whose names its hash
chooses and answers 404 to others. LOG gets a line a request: who answered, method, path, status, Range, and whether
a credential came along.
"""
import hashlib
import http.server
import os
import re
import sys
import threading
import time
import urllib.parse
import xml.sax.saxutils

root, ready, log = sys.argv[1:]
lock = threading.Lock()
targets = []


def target_of(key):
    return hashlib.sha256(key.encode()).digest()[0] % 2


class Node(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    number = -1  # of a target; -1: the gateway

    def answer(self, status, body=b"", **headers):
        secret = any(n.lower() in ("authorization", "x-amz-security-token", "cookie") for n in self.headers)
        with lock, open(log, "a") as f:
            who = "gateway" if self.number < 0 else "target%d" % self.number
            print(who, self.command, self.path, status, self.headers.get("Range", "-"), "secret" if secret else "-", file=f)
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def listing(self, bucket, query):
        prefix = query.get("prefix", [""])[0]
        rows = []
        for folder, _, files in os.walk(root):
            for name in files:
                key = os.path.relpath(os.path.join(folder, name), root)
                if key.startswith(prefix):
                    rows.append(key)
        body = '<?xml version="1.0" encoding="UTF-8"?><ListBucketResult><Name>%s</Name><IsTruncated>false</IsTruncated>' % bucket
        for key in sorted(rows):
            with open(os.path.join(root, key), "rb") as f:
                data = f.read()
            body += (
                "<Contents><Key>%s</Key><LastModified>2026-01-01T00:00:00Z</LastModified><ETag>&quot;%s&quot;</ETag>"
                "<Size>%d</Size><StorageClass>STANDARD</StorageClass></Contents>"
                % (xml.sax.saxutils.escape(key), hashlib.md5(data).hexdigest(), len(data))
            )
        self.answer(200, (body + "</ListBucketResult>").encode(), Content_Type="text/xml; charset=utf-8", Server="AIStore")

    def do_GET(self):
        path, _, query = self.path.partition("?")
        words = path.split("/", 3)
        if len(words) < 3 or words[1] != "s3":
            return self.answer(404)
        bucket, key = words[2], urllib.parse.unquote(words[3]) if len(words) > 3 else ""
        if self.number < 0 and not key:
            return self.listing(bucket, urllib.parse.parse_qs(query))
        if self.number < 0:
            target = targets[target_of(key)]
            there = "%s%s?%spid=p[standin]&ptm=%d" % (target, path, query and query + "&", time.time_ns())
            body = (
                '<?xml version="1.0" encoding="UTF-8"?><Error><Code>TemporaryRedirect</Code><Message>Redirect</Message>'
                "<Endpoint>%s/s3</Endpoint><Bucket>%s</Bucket></Error>" % (target[7:], bucket)
            )
            return self.answer(307, body.encode(), Location=there, Content_Type="text/xml; charset=utf-8", Server="AIStore")
        name = os.path.join(root, key)
        if target_of(key) != self.number or not os.path.isfile(name):
            return self.answer(404)
        with open(name, "rb") as f:
            data = f.read()
        etag = '"%s"' % hashlib.md5(data).hexdigest()
        if self.headers.get("If-Match", etag) != etag:
            return self.answer(412)
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if not wanted:
            return self.answer(200, data, ETag=etag)
        first, last = int(wanted[1]), min(int(wanted[2] or len(data)), len(data) - 1)
        return self.answer(206, data[first : last + 1], ETag=etag, Content_Range="bytes %d-%d/%d" % (first, last, len(data)))

    do_HEAD = do_GET

    def log_message(self, *_):
        pass


def serve(number):
    node = type("Node%d" % number, (Node,), {"number": number})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), node)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return "http://127.0.0.1:%d" % server.server_port


targets += [serve(0), serve(1)]
gateway = serve(-1)
with open(ready + ".new", "w") as f:
    f.write(gateway)
os.rename(ready + ".new", ready)
threading.Event().wait()
