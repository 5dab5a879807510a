#!/usr/bin/env python3
"""owner.py FILE [mount|fork] ARGUMENT...: runs `penstock mount --owner FD ARGUMENT...`, and writes the
mountpoint to FILE, and "ended" once the daemon has closed the socket. With `fork` a child has the socket,
too, and its process ID is FILE's second line. Ends when it is killed."""
import os
import signal
import socket
import subprocess
import sys

signal.signal(signal.SIGTERM, signal.SIG_DFL)
file, how, arguments = sys.argv[1], sys.argv[2], sys.argv[3:]
ours, theirs = socket.socketpair()
with theirs:
    run = subprocess.run(["penstock", "mount", "--owner", str(theirs.fileno()), *arguments],
                         stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, pass_fds=[theirs.fileno()])
said = b""
while run.returncode == 0 and not said.endswith(b"\0"):
    more = ours.recv(4096)
    if not more:
        break
    said += more
child = os.fork() if how == "fork" else 0
if how == "fork" and child == 0:
    signal.pause()
with open(file + ".tmp", "w") as out:
    out.write(said.decode().rstrip("\0") + "\n" if run.returncode == 0 else "failed: " + run.stderr)
    if child:
        out.write("%d\n" % child)
os.rename(file + ".tmp", file)
if run.returncode:
    sys.exit(1)
ours.recv(1)
with open(file, "a") as out:
    out.write("ended\n")
signal.pause()
