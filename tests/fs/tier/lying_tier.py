"""A tier that misbehaves: forwards range requests to an origin, and answers as the file DIR/mode says.

usage: lying_tier.py DIR ORIGIN_HOST:PORT   writes its port to DIR/port, and a line a request to DIR/log, and the length of
each answer of the origin to DIR/fetched

Modes: ok, status, refuses, missing, other-version, redirect, etag, no-etag, range, unranged, short, long, cut,
reset, silent, drips-header, hints (103 without end), stalls (after a part), drips, garbage, encoded, wrong (other bytes under the right header), together (other bytes
under another ETag; all answers of the same half second are sent at once).
"""

import http.client
import os
import socket
import struct
import sys
import threading
import time

folder, origin = sys.argv[1:]
INVERTED = bytes(255 - b for b in range(256))


def mode():
    try:
        with open(os.path.join(folder, "mode"), encoding="ascii") as f:
            return f.read().strip()
    except OSError:
        return "ok"


def read_head(conn):
    data = b""
    while b"\r\n\r\n" not in data:
        part = conn.recv(65536)
        if not part:
            return None
        data += part
    return data.split(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")


def fetch(path, headers):
    host, port = origin.split(":")
    client = http.client.HTTPConnection(host, int(port))
    client.putrequest("GET", path, skip_host=True, skip_accept_encoding=True)
    for name, value in headers.items():
        if name not in ("connection",):
            client.putheader(name, value)
    client.endheaders()
    answer = client.getresponse()
    body = answer.read()
    return answer.status, dict((k.lower(), v) for k, v in answer.getheaders()), body


def simple(status, more=""):
    return f"HTTP/1.1 {status} X\r\nContent-Length: 0\r\n{more}\r\n".encode()


def head(status, headers, nbytes):
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {nbytes}"]
    lines += [f"{k}: {headers[k]}" for k in ("etag", "content-range", "content-encoding") if k in headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def answer(conn, path, headers):  # pylint: disable=too-many-branches
    """True: the connection stays open."""
    how = mode()
    if how == "silent":
        time.sleep(30)
        return False
    for name, bytes_ in (("drips-header", b"a: b\r\n"), ("hints", b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n")):
        if how == name:
            conn.sendall(b"HTTP/1.1 206 OK\r\n" if how == "drips-header" else b"")
            while True:
                conn.sendall(bytes_)
                time.sleep(0.3)
    for name, bytes_ in (
        ("status", simple(500)),
        ("refuses", simple(403)),
        ("missing", simple(404)),
        ("other-version", simple(412)),
        ("redirect", simple(302, "Location: http://127.0.0.1:1/x\r\n")),
        ("garbage", b"\x00\x01 not HTTP at all\r\n\r\n" * 50),
    ):
        if how == name:
            conn.sendall(bytes_)
            return False
    status, got, body = fetch(path, headers)
    with open(os.path.join(folder, "fetched"), "a", encoding="utf-8") as log:
        log.write(f"{len(body)}\n")
    if how == "together":
        body = body.translate(INVERTED)
        time.sleep(0.5 - time.time() % 0.5)
    if how in ("etag", "together"):
        got["etag"] = '"another"'
    elif how == "no-etag":
        got.pop("etag", None)
    elif how == "range":
        first, rest = got["content-range"].removeprefix("bytes ").split("-", 1)
        got["content-range"] = f"bytes {int(first) + 1}-{rest}"
    elif how == "unranged":
        status = 200
        got.pop("content-range")
    elif how == "encoded":
        got["content-encoding"] = "gzip"
    elif how == "wrong":
        body = body.translate(INVERTED)
    if how == "short":
        conn.sendall(head(status, got, len(body) // 2) + body[: len(body) // 2])
        return False
    if how == "long":
        conn.sendall(head(status, got, len(body) + 1000) + body + b"x" * 1000)
        return False
    conn.sendall(head(status, got, len(body)))
    half = len(body) // 2
    if how in ("cut", "reset", "stalls"):
        conn.sendall(body[:half])
        if how == "stalls":
            time.sleep(30)
        if how == "reset":
            conn.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return False
    if how == "drips":
        for at in range(0, len(body), 1000):
            conn.sendall(body[at : at + 1000])
            time.sleep(0.02)
        return True
    conn.sendall(body)
    return True


def serve(conn):
    try:
        with conn:
            while True:
                lines = read_head(conn)
                if not lines:
                    return
                path = lines[0].split(" ")[1]
                headers = {}
                for line in lines[1:]:
                    name, value = line.split(":", 1)
                    headers[name.lower()] = value.strip()
                with open(os.path.join(folder, "log"), "a", encoding="utf-8") as log:
                    log.write(f"{mode()} {path} {headers.get('range', '-')}\n")
                if not answer(conn, path, headers):
                    return
    except OSError:
        pass


def main():
    listener = socket.create_server(("127.0.0.1", 0), backlog=256)
    path = os.path.join(folder, "port")
    with open(path + ".new", "w", encoding="ascii") as f:
        f.write(str(listener.getsockname()[1]))
    os.rename(path + ".new", path)
    while True:
        conn, _ = listener.accept()
        conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=serve, args=(conn,), daemon=True).start()


main()
