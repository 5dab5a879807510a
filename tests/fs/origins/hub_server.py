#!/usr/bin/python3
"""A Hugging Face Hub on loopback, for tests: answers in the shapes of huggingface.co.

    hub_server.py STATE-DIR HUB-DIR

HUB-DIR/commits/SHA/... are the trees of commits, HUB-DIR/refs/NAME (a "/" in NAME is written %2F) holds a SHA. The
repositories are acme/shards, a dataset, and acme/net, a model. Files larger than 1,000 bytes are in LFS: a
redirect leads to a CDN, which is another host and port (127.0.0.2) and refuses requests with an Authorization
header.

STATE-DIR is where the server writes `hub` and `cdn` (their URLs), and requests.log (a line a request: HUB or CDN, method,
path, status, Authorization, Range). Tests make and remove the files of its settings there:
    page-size N          entries a page
    token T              requests without this token are refused
    gated                requests with the token are refused, too
    lister T             requests with token T may list and not read; all others may do both
    next URL             the link to the next page
    limit-CLASS N 0 S    N more requests, then 429 until S seconds after
                         the next request; CLASS is api or resolvers
    generation X         signed URLs of another generation have expired
    unsignable           all signed URLs have expired
    shift X              the CDN has other ETags
    hold N               the CDN sends nothing beyond offset N: answers that begin before N end there, others
    wait
"""
import hashlib
import json
import os
import sys
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

STATE, HUB = sys.argv[1:3]
REPOS = {"datasets/acme/shards": "datasets/acme/shards/", "models/acme/net": "acme/net/"}
lock = threading.Lock()


def state(name, default=None):
    try:
        with open(os.path.join(STATE, name)) as f:
            return f.read().strip()
    except FileNotFoundError:
        return default


def log(*words):
    with lock, open(os.path.join(STATE, "requests.log"), "a") as f:
        print(*words, file=f, flush=True)


def commit_of(rev):
    if os.path.isdir(os.path.join(HUB, "commits", rev)):
        return rev
    try:
        with open(os.path.join(HUB, "refs", urllib.parse.quote(rev, safe=""))) as f:
            return f.read().strip()
    except FileNotFoundError:
        return None


oids = {}


def entry(root, path):
    full = os.path.join(root, path)
    st = os.stat(full)
    key = (full, st.st_mtime_ns, st.st_size)
    if key not in oids:
        with open(full, "rb") as f:
            data = f.read()
        oids[key] = (hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest(), hashlib.sha256(data).hexdigest())
    blob, sha256 = oids[key]
    e = {"type": "file", "oid": blob, "size": st.st_size, "path": path}
    if st.st_size > 1000:
        e["lfs"] = {"oid": sha256, "size": st.st_size, "pointerSize": 134}
        e["xetHash"] = hashlib.sha256(sha256.encode()).hexdigest()
    return e


def tree(root, top, recursive):
    found = []
    for folder, folders, files in os.walk(os.path.join(root, top)):
        below = os.path.relpath(folder, root)
        below = "" if below == "." else below + "/"
        found += [{"type": "directory", "oid": "0" * 40, "size": 0, "path": below + d} for d in folders]
        found += [entry(root, below + f) for f in files]
        if not recursive:
            break
    return sorted(found, key=lambda e: e["oid"] + e["path"])  # an order that no client may rely on


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def answer(self, status, headers=(), body=b"", length=None):
        log(self.who, self.command, self.path, status, self.headers.get("Authorization", "-").replace(" ", "_"),
            self.headers.get("Range", "-"))
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def send_file(self, full, headers):
        size = os.path.getsize(full)
        wanted = self.headers.get("Range")
        with open(full, "rb") as f:
            if not wanted:
                self.answer(200, headers, f.read() if self.command != "HEAD" else b"", size)
                return
            first, last = wanted.removeprefix("bytes=").split("-")
            first, last = int(first), min(int(last or size - 1), size - 1)
            f.seek(first)
            body = f.read(max(min(last + 1, int(self.who == "CDN" and state("hold") or size)) - first, 0))
        self.close_connection = self.close_connection or len(body) < last - first + 1
        self.answer(206, [*headers, ("Content-Range", f"bytes {first}-{last}/{size}")], body, last - first + 1)

    def do_HEAD(self):
        self.do_GET()


class Hub(Handler):
    who = "HUB"

    def error(self, status, code, message, more=()):
        self.answer(status, [("X-Error-Code", code), ("X-Error-Message", message), *more],
                    json.dumps({"error": message}).encode())

    def limit(self, kind):
        """The headers of the rate limit; None if the request has been refused."""
        with lock:
            spec = state("limit-" + kind)
            if not spec:
                return [("RateLimit", f'"{kind}";r=499;t=200'), ("RateLimit-Policy", f'"fixed window";"{kind}";q=500;w=300')]
            left, until, seconds = spec.split()
            left, until = int(left), float(until)
            if until and time.time() >= until:
                os.remove(os.path.join(STATE, "limit-" + kind))
                return []
            until = until or time.time() + float(seconds)
            with open(os.path.join(STATE, "limit-" + kind), "w") as f:
                f.write(f"{max(left - 1, 0)} {until} {seconds}")
        told = [("RateLimit", f'"{kind}";r={max(left - 1, 0)};t={int(until - time.time())}'),
                ("RateLimit-Policy", f'"fixed window";"{kind}";q=500;w=300')]
        if left > 0:
            return told
        self.error(429, "RateLimited", "Too many requests", told)
        return None

    def may(self):
        token, given = state("token"), self.headers.get("Authorization", "")
        lister = state("lister")
        if lister and self.path.startswith("/api/") and given or lister and given != f"Bearer {lister}":
            return True
        if lister:
            self.error(403, "GatedRepo", "Access to dataset acme/shards is restricted and you are not in the list")
            return False
        if given and given != f"Bearer {token}":
            self.error(401, "Unauthorized", "Invalid credentials in Authorization header")
        elif token and not given:
            code = "GatedRepo" if state("gated") is not None else "RepoNotFound"
            self.error(401, code, "Invalid username or password.")
        elif state("forbidden") is not None:
            self.error(403, "Forbidden", "Your token lacks a permission")
        elif state("gated") is not None:
            self.error(403, "GatedRepo", "Access to dataset acme/shards is restricted and you are not in the list")
        else:
            return True
        return False

    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        for old, new in (("/api/models/net/", "/api/models/acme/net/"), ("/net/resolve/", "/acme/net/resolve/")):
            if self.path.startswith(old):  # a repository that had no owner
                return self.answer(307, [("Location", new + self.path[len(old):])])
        for repo, prefix in REPOS.items():
            if url.path.startswith("/api/" + repo + "/"):
                return self.api(repo, url.path[len("/api/" + repo + "/"):], urllib.parse.parse_qs(url.query))
            if url.path.startswith("/" + prefix + "resolve/"):
                return self.resolve(prefix, url.path[len("/" + prefix + "resolve/"):])
            if url.path.startswith("/api/resolve-cache/" + repo + "/"):
                sha, path = url.path[len("/api/resolve-cache/" + repo + "/"):].split("/", 1)
                if not self.may():
                    return None
                path = urllib.parse.unquote(path)
                e = entry(os.path.join(HUB, "commits", sha), path)
                return self.send_file(os.path.join(HUB, "commits", sha, path), [
                    ("ETag", f'"{e["oid"]}"'), ("X-Repo-Commit", sha), ("Accept-Ranges", "bytes")])
        return self.error(401, "RepoNotFound", "Invalid username or password.")

    def api(self, repo, rest, query):
        limit = self.limit("api")
        if limit is None or not self.may():
            return None
        what, _, rest = rest.partition("/")
        rev, _, top = rest.partition("/")
        sha, top = commit_of(urllib.parse.unquote(rev)), urllib.parse.unquote(top)
        if not sha:
            return self.error(404, "RevisionNotFound", "Invalid rev id: " + rev, limit)
        if what == "revision":
            return self.answer(200, limit, json.dumps({"id": repo, "sha": sha}).encode())
        root = os.path.join(HUB, "commits", sha)
        if not os.path.isdir(os.path.join(root, top)):
            return self.error(404, "EntryNotFound", f"{top} does not exist on {rev}", limit)
        entries = tree(root, top, query.get("recursive") == ["true"])
        size, cursor = int(state("page-size", "1000")), int(query.get("cursor", ["0"])[0])
        headers = [("Content-Type", "application/json; charset=utf-8"), *limit]
        if cursor + size < len(entries):
            following = state("next") or f"{HUB_URL}{self.path.split('&cursor')[0]}&cursor={cursor + size}"
            headers.append(("Link", f'<{following}>; rel="next"'))
        return self.answer(200, headers, json.dumps(entries[cursor:cursor + size]).encode())

    def resolve(self, prefix, rest):
        limit = self.limit("resolvers")
        if limit is None or not self.may():
            return None
        rev, path = rest.split("/", 1)
        path, sha = urllib.parse.unquote(path), commit_of(urllib.parse.unquote(rev))
        if not sha:
            return self.error(404, "RevisionNotFound", "Invalid rev id: " + rev, limit)
        root = os.path.join(HUB, "commits", sha)
        if not os.path.isfile(os.path.join(root, path)):
            return self.error(404, "EntryNotFound", "Entry not found", limit)
        e = entry(root, path)
        common = [("X-Repo-Commit", sha), ("Accept-Ranges", "bytes"), *limit]
        quoted = urllib.parse.quote(path)
        if "lfs" not in e:
            kind = "models" if prefix == "acme/net/" else "datasets"
            return self.answer(307, [*common, ("Location", f"/api/resolve-cache/{kind}/{'acme/net' if kind == 'models' else 'acme/shards'}/{sha}/"
                                                f"{quoted}?%2F{prefix.replace('/', '%2F')}=&etag=%22{e['oid']}%22")],
                               b"Temporary Redirect")
        signature = hashlib.sha256(f"{path} {state('generation', '0')}".encode()).hexdigest()
        return self.answer(302, [
            *common, ("X-Linked-Size", str(e["size"])), ("X-Linked-ETag", f'"{e["lfs"]["oid"]}"'),
            ("ETag", f'"{e["lfs"]["oid"]}"'), ("X-Xet-Hash", e["xetHash"]),
            ("X-Xet-Refresh-Route", f"/api/datasets/acme/shards/xet-read-token/{sha}"),
            ("Location", f"{CDN_URL}/xet-bridge-us/{sha}/{quoted}?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Expires=3600"
                         f"&X-Amz-Signature={signature}&x-id=GetObject")], b"Found. Redirecting")


class Cdn(Handler):
    who = "CDN"

    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        sha, path = urllib.parse.unquote(url.path).removeprefix("/xet-bridge-us/").split("/", 1)
        signature = urllib.parse.parse_qs(url.query).get("X-Amz-Signature", [""])[0]
        if state("unsignable") is not None:
            signature = ""
        while int((self.headers.get("Range") or "bytes=0-")[6:].split("-")[0]) >= int(state("hold") or 1 << 60):
            time.sleep(0.02)
        if self.headers.get("Authorization"):
            return self.answer(400, [("Content-Type", "application/xml")], b"<Error><Code>InvalidArgument</Code></Error>")
        if signature != hashlib.sha256(f"{path} {state('generation', '0')}".encode()).hexdigest():
            return self.answer(403, [("Content-Type", "application/xml")],
                               b"<Error><Code>AccessDenied</Code><Message>Request has expired</Message></Error>")
        full = os.path.join(HUB, "commits", sha, path)
        name = hashlib.md5((full + state("shift", "")).encode()).hexdigest()
        # Like a bucket: a condition on another ETag fails.
        if self.headers.get("If-Match", f'"{name}"') != f'"{name}"':
            return self.answer(412)
        return self.send_file(full, [("ETag", f'"{name}"'), ("Last-Modified", "Wed, 01 Jan 2025 00:00:00 GMT"),
                                     ("Accept-Ranges", "bytes"), ("X-Cache", "Hit from cloudfront")])


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256


hub, cdn = Server(("127.0.0.1", 0), Hub), Server(("127.0.0.2", 0), Cdn)
HUB_URL, CDN_URL = (f"http://{s.server_address[0]}:{s.server_address[1]}" for s in (hub, cdn))
threading.Thread(target=cdn.serve_forever, daemon=True).start()
for name, url in (("cdn", CDN_URL), ("hub", HUB_URL)):
    with open(os.path.join(STATE, name + ".new"), "w") as f:
        f.write(url)
    os.rename(os.path.join(STATE, name + ".new"), os.path.join(STATE, name))
hub.serve_forever()
