"""An HTTP origin of one file that misbehaves on request, for faults that a real server cannot show.

It listens on loopback. Until `arm()` it serves a directory listing and the file correctly; from then on it
answers GET and HEAD of the file with the fault. Each fault is a function that gets the request, and writes to
its raw socket.
"""

import email.utils
import gzip
import random
import re
import socket
import struct
import threading
import time

MTIME = 1_600_000_000
NAME = "f.bin"
LEAST = 65536  # bytes that a shortened body has at least
SOUND = "a.bin"  # another file, which is always served correctly


class Lines:
    """Reads lines of a socket. (makefile() would keep the socket open.)"""

    def __init__(self, sock):
        self.sock, self.rest = sock, b""

    def next(self):
        while b"\n" not in self.rest:
            part = self.sock.recv(65536)
            if not part:
                raise ConnectionError("closed")
            self.rest += part
        line, _, self.rest = self.rest.partition(b"\n")
        return line.strip()


class Request:
    def __init__(self, sock, method, path, headers):
        self.sock, self.method, self.path, self.headers = sock, method, path, headers
        m = re.match(r"bytes=(\d+)-(\d+)$", headers.get("range", ""))
        self.range = (int(m[1]), int(m[2])) if m else None


class Origin:
    def __init__(self, data, other, fault=None, pace=0.05):
        self.data, self.other, self.fault, self.pace = data, other, fault, pace
        self.armed = threading.Event()
        self.stopped = threading.Event()
        self.counts = {}  # requests for the file since arm(), by method and last byte: counts repetitions
        self.lock = threading.Lock()
        self.conns = set()
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self.listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/"
        self.extra = []
        self.etag = {"weak ETag changes": 'W/"v1"', "no ETag and other bytes": None}.get(fault, '"v1"')
        threading.Thread(target=self.accept, daemon=True).start()

    # What the network does ----------------------------------------------------------------------------------

    def accept(self):
        while not self.stopped.is_set():
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            with self.lock:
                self.conns.add(sock)
            threading.Thread(target=self.serve, args=(sock,), daemon=True).start()

    def hang_up(self, sock, reset=False):
        with self.lock:
            self.conns.discard(sock)
        try:
            if reset:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            else:
                sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        sock.close()

    def hang_up_all(self):
        with self.lock:
            conns = list(self.conns)
        for sock in conns:
            self.hang_up(sock, reset=True)

    def arm(self):
        if self.armed.is_set():
            return
        self.armed.set()
        how = {"refused": self.close_listener, "silent listener": self.stop_accepting}.get(self.fault)
        if how:
            how()

    def close_listener(self):
        try:
            self.listener.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.listener.close()
        self.hang_up_all()

    def stop_accepting(self):
        """Another socket takes the port and never accepts: connections are made, and stay in its backlog."""
        self.close_listener()
        quiet = socket.socket()
        quiet.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        quiet.bind(("127.0.0.1", self.port))
        quiet.listen(64)
        self.extra.append(quiet)

    def black_hole(self):
        """A port whose SYNs are dropped: its backlog is full."""
        hole = socket.socket()
        hole.bind(("127.0.0.1", 0))
        hole.listen(0)
        self.extra.append(hole)
        for _ in range(3):
            s = socket.socket()
            s.setblocking(False)
            s.connect_ex(hole.getsockname())
            self.extra.append(s)
        return hole.getsockname()[1]

    def stop(self):
        self.stopped.set()
        self.close_listener()
        for s in self.extra:
            s.close()

    # What HTTP does -----------------------------------------------------------------------------------------

    def serve(self, sock):
        lines = Lines(sock)
        try:
            while not self.stopped.is_set():
                line = lines.next().split()
                if len(line) < 3:
                    break
                headers = {}
                while h := lines.next():
                    name, _, value = h.decode("latin1").partition(":")
                    headers[name.lower()] = value.strip()
                rq = Request(sock, line[0].decode(), line[1].decode(), headers)
                if not self.answer(rq):
                    break
        except OSError:
            pass
        self.hang_up(sock)

    def answer(self, rq):
        """True: the connection is kept."""
        if rq.path == "/":
            body = (f'<html><head><title>Index of /</title></head><body><h1>Index of /</h1><pre><a href="../">../</a>\n'
                    f'<a href="{SOUND}">{SOUND}</a>\n<a href="{NAME}">{NAME}</a>\n</pre></body></html>').encode()
            return self.reply(rq, 200, body, {"Content-Type": "text/html"})
        if not rq.path.startswith("/" + NAME):
            return self.good(rq)
        fault = getattr(self, "f_" + re.sub(r"\W+", "_", self.fault or ""), None) if self.armed.is_set() else None
        if not fault:
            return self.good(rq)
        with self.lock:
            key = (rq.method, rq.range and rq.range[1])
            n = self.counts[key] = self.counts.get(key, 0) + 1
        return fault(rq, n)

    def head_of(self, rq, status, nbytes, headers=(), etag="", mtime=MTIME):
        lines = [f"HTTP/1.1 {status} x"]
        own = {"Content-Length": nbytes, "ETag": self.etag if etag == "" else etag, "Last-Modified": email.utils.formatdate(mtime, usegmt=True)}
        own.update(headers)
        lines += [f"{k}: {v}" for k, v in own.items() if v is not None]
        return ("\r\n".join(lines) + "\r\n\r\n").encode()

    def reply(self, rq, status, body, headers=(), **more):
        head = self.head_of(rq, status, len(body), headers, **more)
        rq.sock.sendall(head if rq.method == "HEAD" else head + body)
        return True

    def span(self, rq, size=None):
        size = len(self.data) if size is None else size
        first, last = rq.range or (0, size - 1)
        return first, min(last, size - 1)

    def good(self, rq, data=None, **more):
        data = self.data if data is None else data
        if not rq.range:
            return self.reply(rq, 200, data, **more)
        first, last = self.span(rq, len(data))
        return self.reply(rq, 206, data[first:last + 1], {"Content-Range": f"bytes {first}-{last}/{len(data)}"}, **more)

    def begin(self, rq, part, **headers):
        """Sends the head of the right answer and the fraction `part` of its body. Returns the whole body."""
        first, last = self.span(rq)
        body = self.data[first:last + 1]
        h = {"Content-Range": f"bytes {first}-{last}/{len(self.data)}"} if rq.range else {}
        h.update({k.replace("_", "-"): v for k, v in headers.items()})
        head = self.head_of(rq, 206 if rq.range else 200, len(body), h)
        n = len(body) if part == 1 else max(int(len(body) * part), min(len(body), LEAST)) if part else 0
        rq.sock.sendall(head if rq.method == "HEAD" else head + body[:n])
        return body

    # Faults -------------------------------------------------------------------------------------------------

    def hold(self):
        self.stopped.wait(3600)
        return False

    def f_silent(self, rq, n):
        return self.hold()

    def f_stall_in_the_body(self, rq, n):
        if rq.method == "HEAD":
            return self.hold()
        self.begin(rq, 0.5)
        return self.hold()

    def f_one_stalls_the_next_is_good(self, rq, n):
        return self.f_stall_in_the_body(rq, n) if n % 2 else self.good(rq)

    def f_drip(self, rq, n):
        if rq.method == "HEAD":
            for byte in self.head_of(rq, 200, len(self.data)):
                rq.sock.sendall(bytes([byte]))
                time.sleep(self.pace)
            return True
        for byte in self.begin(rq, 0):
            if self.stopped.is_set():
                break
            rq.sock.sendall(bytes([byte]))
            time.sleep(self.pace)
        return False

    def f_daemon_killed(self, rq, n):
        return self.f_slow_but_steady(rq, n)

    def f_slow_but_steady(self, rq, n):
        body = self.begin(rq, 0)
        for at in range(0, len(body) if rq.method == "GET" else 0, 65536):
            rq.sock.sendall(body[at:at + 65536])
            time.sleep(self.pace)
        return True

    def f_reset_in_the_body(self, rq, n):
        self.begin(rq, 0.5)
        time.sleep(0.02)  # so that the reset does not discard what was sent
        self.hang_up(rq.sock, reset=True)
        return False

    def f_reset_at_once(self, rq, n):
        self.hang_up(rq.sock, reset=True)
        return False

    def f_body_too_short(self, rq, n):
        self.begin(rq, 0.5)
        return False

    def f_body_too_long(self, rq, n):
        self.begin(rq, 1.0)
        rq.sock.sendall(b"more than was asked for" * 1000)
        return False

    def f_chunked_body_too_long(self, rq, n):
        body = self.begin(rq, 0, Content_Length=None, Transfer_Encoding="chunked")
        if rq.method == "GET":
            for part in (body, b"more than was asked for", b""):
                rq.sock.sendall(b"%x\r\n%s\r\n" % (len(part), part))
        return True

    def f_chunked_body_too_short(self, rq, n):
        body = self.begin(rq, 0, Content_Length=None, Transfer_Encoding="chunked")
        if rq.method == "GET":
            for part in (body[:max(len(body) // 2, min(len(body), LEAST))], b""):
                rq.sock.sendall(b"%x\r\n%s\r\n" % (len(part), part))
        return True

    def f_length_lies(self, rq, n):
        first, last = self.span(rq)
        self.begin(rq, 1.0, Content_Length=last - first + 8)
        return False

    def f_wrong_Content_Range(self, rq, n):
        first, last = self.span(rq)
        if not rq.range:
            return self.good(rq)
        at = first + 1 if last + 1 < len(self.data) else first - 1
        return self.reply(rq, 206, self.other[first:last + 1],
                          {"Content-Range": f"bytes {at}-{at + last - first}/{len(self.data)}"})

    def f_no_Content_Range(self, rq, n):
        first, last = self.span(rq)
        return self.reply(rq, 206, self.other[first:last + 1]) if rq.range else self.good(rq)

    def f_200_for_206(self, rq, n):
        return self.reply(rq, 200, self.data)

    def f_multipart(self, rq, n):
        return self.good(rq) if not rq.range else self.reply(rq, 206, self.other[:100],
                                                            {"Content-Type": "multipart/byteranges; boundary=x"})

    def f_gzip(self, rq, n):
        first, last = self.span(rq)
        return self.reply(rq, 206, gzip.compress(self.data[first:last + 1]), {
            "Content-Encoding": "gzip", "Content-Range": f"bytes {first}-{last}/{len(self.data)}"})

    def f_garbage(self, rq, n):
        rq.sock.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")
        return False

    def f_huge_header(self, rq, n):
        rq.sock.sendall(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 400000 + b"\r\n\r\n")
        return False

    def status(self, rq, code, **headers):
        return self.reply(rq, code, b"<Error><Code>SlowDown</Code></Error>",
                          {k.replace("_", "-"): v for k, v in headers.items()}, etag=None)

    def f_429_Retry_After(self, rq, n):
        return self.status(rq, 429, Retry_After=1)

    def f_429_twice_of_three(self, rq, n):
        return self.good(rq) if n % 3 == 0 else self.status(rq, 429, Retry_After=0)

    def f_503_Retry_After_an_hour(self, rq, n):
        return self.status(rq, 503, Retry_After=3600)

    def f_503_twice_of_three(self, rq, n):
        return self.good(rq) if n % 3 == 0 else self.status(rq, 503)

    def f_500(self, rq, n):
        return self.status(rq, 500)

    def f_502_every_other(self, rq, n):
        return self.status(rq, 502) if n % 2 else self.good(rq)

    def f_redirect_loop(self, rq, n):
        return self.status(rq, 302, Location=f"/{NAME}?{n}")

    def f_redirect_nowhere(self, rq, n):
        return self.status(rq, 302)

    def f_signed_URL_expired(self, rq, n):
        return self.status(rq, 403)

    def f_redirect_to_an_expired_URL(self, rq, n):
        return self.status(rq, 403) if "signature" in rq.path else \
            self.status(rq, 302, Location=f"/{NAME}?signature=old{n}")

    def f_401(self, rq, n):
        return self.status(rq, 401)

    def f_404(self, rq, n):
        return self.status(rq, 404)

    def f_DNS_failure(self, rq, n):
        return self.status(rq, 302, Location=f"http://no-such-host.invalid/{NAME}")

    def f_black_hole(self, rq, n):
        with self.lock:
            if not hasattr(self, "hole"):
                self.hole = self.black_hole()
        return self.status(rq, 302, Location=f"http://127.0.0.1:{self.hole}/{NAME}")

    def f_ETag_changes(self, rq, n):
        return self.good(rq, self.other, etag='"v2"')

    def f_ETag_changes_each_time(self, rq, n):
        return self.good(rq, self.other if n % 2 else self.data, etag=f'"e{n}"')

    def f_ETag_and_412(self, rq, n):
        if rq.headers.get("if-match", '"v2"') != '"v2"':
            return self.status(rq, 412)
        return self.good(rq, self.other, etag='"v2"')

    def f_weak_ETag_changes(self, rq, n):
        return self.good(rq, self.other, etag='W/"v2"', mtime=MTIME + 60)

    def f_no_ETag_any_more(self, rq, n):
        return self.good(rq, etag=None)

    def f_no_ETag_and_other_bytes(self, rq, n):
        return self.good(rq, self.other, etag=None, mtime=MTIME + 60)

    def f_shrunk(self, rq, n):
        small = self.other[:len(self.data) // 3]
        if rq.range and rq.range[0] >= len(small):
            return self.reply(rq, 416, b"", {"Content-Range": f"bytes */{len(small)}"}, etag='"v2"')
        return self.good(rq, small, etag='"v2"')

    def f_grown(self, rq, n):
        return self.good(rq, self.other + b"more", etag='"v2"')


def versions_of(fault, data, other):
    """The contents that a reader may get from beginning to end."""
    news = {"shrunk": other[:len(data) // 3], "grown": other + b"more"}
    changed = fault.startswith(("ETag", "weak ETag", "no ETag and")) or fault in news
    return [data, news.get(fault, other)] if changed else [data]


# Faults with the expected outcome: "right": retries get the right bytes; "error": reads fail; "either": one
# of the two.
FAULTS = [
    ("none", "right"),
    ("refused", "error"),
    ("silent listener", "error"),
    ("black hole", "error"),
    ("DNS failure", "error"),
    ("silent", "error"),
    ("stall in the body", "either"),
    ("one stalls, the next is good", "right"),
    ("drip", "error"),
    ("slow but steady", "right"),
    ("daemon killed", "right"),  # by cell.py: the origin is slow but steady
    ("reset at once", "error"),
    ("reset in the body", "right"),
    ("body too short", "right"),
    ("body too long", "right"),
    ("chunked body too short", "error"),
    ("chunked body too long", "error"),
    ("length lies", "either"),
    ("wrong Content-Range", "error"),
    ("no Content-Range", "error"),
    ("200 for 206", "error"),
    ("multipart", "error"),
    ("gzip", "error"),
    ("garbage", "error"),
    ("huge header", "error"),
    ("429, Retry-After", "error"),
    ("429 twice of three", "right"),
    ("503, Retry-After an hour", "error"),
    ("503 twice of three", "right"),
    ("500", "error"),
    ("502 every other", "right"),
    ("redirect loop", "error"),
    ("redirect nowhere", "error"),
    ("signed URL expired", "error"),
    ("redirect to an expired URL", "error"),
    ("401", "error"),
    ("404", "error"),
    ("ETag changes", "error"),
    ("ETag and 412", "error"),
    ("ETag changes each time", "either"),
    ("weak ETag changes", "error"),
    ("no ETag any more", "right"),
    ("no ETag and other bytes", "error"),
    ("shrunk", "error"),
    ("grown", "error"),
]


def random_data(nbytes, seed):
    return random.Random(seed).randbytes(nbytes)
