#!/usr/bin/env python3
"""A proxy that makes a server far or busy: narrow_link.py DIR HOST:PORT, writes its port to DIR/port.

The file DIR/delay has the seconds by which each request is late, DIR/rate the bytes a second that all connections share;
without a file there is no delay, and no limit.
"""
import os
import socket
import sys
import threading
import time

folder, server = sys.argv[1:]
host, port = server.split(":")
lock = threading.Lock()
free_s = 0.0  # when the link has sent all that was given to it


def number(name):
    try:
        with open(os.path.join(folder, name), encoding="ascii") as f:
            return float(f.read())
    except (OSError, ValueError):
        return 0.0


def pass_turn(nbytes):
    """Waits until the link has room for these bytes: connections take turns."""
    global free_s  # pylint: disable=global-statement
    rate = number("rate")
    if not rate:
        return
    with lock:
        now = time.monotonic()
        free_s = max(free_s, now) + nbytes / rate
        wait_s = free_s - now
    time.sleep(wait_s)


def answer(near, far):
    try:
        while data := far.recv(32768):
            pass_turn(len(data))
            near.sendall(data)
        near.shutdown(socket.SHUT_WR)
    except OSError:
        pass


def serve(near):
    try:
        with near, socket.create_connection((host, int(port))) as far:
            far.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=answer, args=(near, far), daemon=True).start()
            while data := near.recv(65536):
                time.sleep(number("delay"))
                far.sendall(data)
    except OSError:
        pass


def main():
    listener = socket.create_server(("127.0.0.1", 0), backlog=256)
    path = os.path.join(folder, "port")
    with open(path + ".new", "w", encoding="ascii") as f:
        f.write(f"{listener.getsockname()[1]}\n")
    os.rename(path + ".new", path)
    while True:
        conn, _ = listener.accept()
        conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=serve, args=(conn,), daemon=True).start()


main()
