#!/usr/bin/python3
"""A stand-in for Azure's Blob service, path style as an emulator: /ACCOUNT/CONTAINER/BLOB below DIR/blobs.

    az_server.py DIR        writes its port to DIR/port; logs "METHOD PATH?QUERY STATUS how AGENT" to DIR/log

It verifies SharedKey and service SAS by code of its own, from their documentation, and logs refusals in
DIR/refused. It reads these files of DIR at each request: key (base64), page (blobs a page), public (if it
exists, anonymous requests are allowed), busy (503 while it exists), skew (seconds that the server's clock is
ahead), more.xml (blobs that the last page has in addition). A page may be empty and have a next one, as in the service.
"""
import base64
import calendar
import email.utils
import hashlib
import hmac
import http.server
import os
import sys
import time
import urllib.parse
from xml.sax.saxutils import escape

DIR = sys.argv[1]
ACCOUNT = "acct"


def setting(name, default=""):
    try:
        with open(os.path.join(DIR, name)) as f:
            return f.read().strip()
    except FileNotFoundError:
        return default


def key():
    return base64.b64decode(setting("key"))


def signed(text):
    return base64.b64encode(hmac.new(key(), text.encode(), hashlib.sha256).digest()).decode()


class Refused(Exception):
    def __init__(self, status, code, why):
        super().__init__(why)
        self.status, self.code = status, code


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def now(self):
        return time.time() + int(setting("skew", "0"))

    def date_time_string(self, timestamp=None):
        return email.utils.formatdate(self.now() if timestamp is None else timestamp, usegmt=True)

    # Authorization ------------------------------------------------------------------------------------------

    def shared_key(self, path, query):
        """https://learn.microsoft.com/rest/api/storageservices/authorize-with-shared-key"""
        h = self.headers
        account, _, signature = h["Authorization"][len("SharedKey "):].partition(":")
        ours = sorted((n.lower(), v.strip()) for n, v in h.items() if n.lower().startswith("x-ms-"))
        length = h.get("Content-Length", "")
        lines = [self.command, h.get("Content-Encoding", ""), h.get("Content-Language", ""), "" if length == "0" else length,
                 h.get("Content-MD5", ""), h.get("Content-Type", ""), "" if "x-ms-date" in h else h.get("Date", "")]
        lines += [h.get(n, "") for n in ("If-Modified-Since", "If-Match", "If-None-Match", "If-Unmodified-Since", "Range")]
        lines += [n + ":" + v for n, v in ours]
        resource = "/" + account + path
        parameters = {}
        for name, value in query:
            parameters.setdefault(name.lower(), []).append(value)
        resource += "".join("\n" + name + ":" + ",".join(sorted(parameters[name])) for name in sorted(parameters))
        text = "\n".join(lines + [resource])
        if account != ACCOUNT or signed(text) != signature:
            raise Refused(403, "AuthenticationFailed", "SharedKey of:\n" + text)
        date = calendar.timegm(email.utils.parsedate(h.get("x-ms-date") or h["Date"]))
        if abs(date - self.now()) > 900:
            raise Refused(403, "AuthenticationFailed", "date header too old")

    def sas(self, container, blob, q, listing):
        """https://learn.microsoft.com/rest/api/storageservices/create-service-sas: the string of 2020-12-06 and later"""
        resource = "/blob/" + ACCOUNT + "/" + container + ("/" + blob if q["sr"] == "b" else "")
        fields = [q.get("sp"), q.get("st"), q.get("se"), resource, q.get("si"), q.get("sip"), q.get("spr"), q.get("sv"),
                  q.get("sr"), q.get("snapshot"), q.get("ses"), q.get("rscc"), q.get("rscd"), q.get("rsce"), q.get("rscl"),
                  q.get("rsct")]
        text = "\n".join(f or "" for f in fields)
        if signed(text) != q["sig"]:
            raise Refused(403, "AuthenticationFailed", "SAS of:\n" + text)
        end = calendar.timegm(time.strptime(q["se"], "%Y-%m-%dT%H:%M:%SZ"))
        if end < self.now():
            raise Refused(403, "AuthenticationFailed", "SAS has expired")
        if ("l" if listing else "r") not in q.get("sp", ""):
            raise Refused(403, "AuthorizationPermissionMismatch", "SAS permissions")

    def authorize(self, path, query, container, blob, listing):
        q = dict(query)
        if "Authorization" in self.headers:
            self.shared_key(path, query)
            return "SharedKey"
        if "sig" in q:
            self.sas(container, blob, q, listing)
            return "SAS"
        if not os.path.exists(os.path.join(DIR, "public")):
            raise Refused(404 if not listing else 401, "ResourceNotFound" if not listing else "NoAuthenticationInformation", "none")
        return "none"

    # Answers ------------------------------------------------------------------------------------------------

    def answer(self, status, headers, body):
        self.status = status
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if "Content-Length" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def refuse(self, e):
        with open(os.path.join(DIR, "refused"), "a") as f:
            print(self.command, self.path, e, file=f)
        xml = '<?xml version="1.0" encoding="utf-8"?><Error><Code>%s</Code><Message>signature of %s</Message></Error>' % (
            e.code, escape(self.path))
        self.answer(e.status, {"Content-Type": "application/xml", "x-ms-error-code": e.code}, xml.encode())

    def etag(self, path):
        st = os.stat(path)
        return "0x%X" % (st.st_mtime_ns ^ st.st_size)

    def list(self, container, q):
        root = os.path.join(DIR, "blobs", container)
        if not os.path.isdir(root):
            raise Refused(404, "ContainerNotFound", "list")
        names = []
        for d, _, files in os.walk(root):
            names += [os.path.relpath(os.path.join(d, f), root) for f in files]
            if d != root:
                names.append(os.path.relpath(d, root) + "\0dir")  # as in accounts with a hierarchical namespace
        names = sorted(n for n in names if n.split("\0")[0].startswith(q.get("prefix", "")))
        page = int(setting("page", "5000"))
        at = int(q["marker"].split("!")[1]) if q.get("marker") else 0
        part = [] if q.get("marker", "").startswith("empty") else names[at:at + page]
        after = at + len(part)
        marker = ""
        if after < len(names):
            # Every other page is empty and has a next one.
            marker = ("first" if not part else "empty") + "!%d!+/= &" % after
        blobs = []
        for name in part:
            name, _, kind = name.partition("\0")
            path = os.path.join(root, name)
            size = 0 if kind else os.path.getsize(path)
            blobs.append("<Blob><Name>%s</Name><Properties><Last-Modified>%s</Last-Modified>"
                         "<Etag>%s</Etag>%s<Content-Length>%d</Content-Length><BlobType>BlockBlob</BlobType></Properties>"
                         "<OrMetadata/></Blob>" % (escape(name), self.date_time_string(int(os.path.getmtime(path))), self.etag(path),
                                                   "<ResourceType>directory</ResourceType>" if kind else "", size))
        blobs.append("" if marker else setting("more.xml"))
        xml = ('\ufeff<?xml version="1.0" encoding="utf-8"?><EnumerationResults ServiceEndpoint="http://h/" ContainerName="%s">'
               '<Prefix>%s</Prefix><Blobs>%s</Blobs><NextMarker>%s</NextMarker></EnumerationResults>' % (
                   container, escape(q.get("prefix", "")), "".join(blobs), escape(marker)))
        self.answer(200, {"Content-Type": "application/xml"}, xml.encode())

    def blob(self, container, blob):
        path = os.path.join(DIR, "blobs", container, blob)
        if not os.path.isfile(path):
            raise Refused(404, "BlobNotFound", "get")
        with open(path, "rb") as f:
            data = f.read()
        etag = '"%s"' % self.etag(path)
        headers = {"ETag": etag, "Last-Modified": self.date_time_string(int(os.path.getmtime(path))), "Accept-Ranges": "bytes",
                   "x-ms-blob-type": "BlockBlob"}
        if self.headers.get("If-Match", etag) != etag:
            raise Refused(412, "ConditionNotMet", "if-match")
        wanted = self.headers.get("x-ms-range") or self.headers.get("Range")
        status = 200
        if wanted:
            first, _, last = wanted[len("bytes="):].partition("-")
            first, last = int(first), min(int(last or len(data)), len(data) - 1)
            if first >= len(data):
                raise Refused(416, "InvalidRange", "range")
            headers["Content-Range"] = "bytes %d-%d/%d" % (first, last, len(data))
            data = data[first:last + 1]
            status = 206
        headers["Content-Length"] = str(len(data))
        self.answer(status, headers, data)

    def handle_request(self):
        self.status, how = 0, "-"
        raw, _, query = self.path.partition("?")
        pairs = urllib.parse.parse_qsl(query, keep_blank_values=True)
        q = dict(pairs)
        try:
            if os.path.exists(os.path.join(DIR, "busy")):
                raise Refused(503, "ServerBusy", "busy")
            parts = raw.lstrip("/").split("/", 2)
            if parts[0] != ACCOUNT or len(parts) < 2:
                raise Refused(400, "InvalidUri", "path")
            container, blob = parts[1], urllib.parse.unquote(parts[2]) if len(parts) > 2 else ""
            listing = q.get("comp") == "list"
            how = self.authorize(raw, pairs, container, blob, listing)
            if listing:
                self.list(container, q)
            else:
                self.blob(container, blob)
        except Refused as e:
            self.refuse(e)
        with open(os.path.join(DIR, "log"), "a") as f:
            print(self.command, self.path, self.status, how, self.headers.get("User-Agent", "-").split(" ")[0], file=f)

    do_GET = do_HEAD = handle_request

    def log_message(self, *args):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
with open(os.path.join(DIR, "port.new"), "w") as f:
    f.write(str(server.server_port))
os.rename(os.path.join(DIR, "port.new"), os.path.join(DIR, "port"))
server.serve_forever()
