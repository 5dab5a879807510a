"""Runs a command on a terminal of its own and prints what it draws, as a user would see it.

terminal.py ROWSxCOLUMNS[,ROWSxCOLUMNS...] KEY COMMAND...: sets the window to each size in turn, and prints
the third screen that the command draws then, after a line "== ROWSxCOLUMNS". Then the key is pressed. The
last line is "exit CODE", and whether the terminal was restored."""
import fcntl
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time

sizes = [tuple(map(int, size.split("x"))) for size in sys.argv[1].split(",")]
master, slave = pty.openpty()
before = termios.tcgetattr(slave)


def resize(rows, columns):
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def alive():
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None


def read(n):
    """Reads until the n-th screen from now begins."""
    text, end = "", time.monotonic() + 30
    while text.count("\033[H") < n and time.monotonic() < end and alive():
        if select.select([master], [], [], 0.1)[0]:
            text += os.read(master, 65536).decode(errors="replace")
    return text


def screen(text, rows, columns):
    """The lines of a screen; a line that does not fit into the window begins with "!"."""
    picture = text.rsplit("\033[H", 2)[-2] if text.count("\033[H") > 1 else text
    lines = [re.sub("\033\\[[0-9?]*[A-Za-z]", "", line) for line in picture.split("\n")]
    lines = [line.rstrip("\r").rsplit("\r", 1)[-1] for line in lines]
    return ["!" * (len(line) > columns or i >= rows) + line for i, line in enumerate(lines)]


resize(*sizes[0])
pid = os.fork()
if pid == 0:
    os.setsid()
    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
    for fd in range(3):
        os.dup2(slave, fd)
    os.environ.update(TERM="xterm", LC_ALL="C.UTF-8")
    os.execvp(sys.argv[3], sys.argv[3:])
for i, size in enumerate(sizes):
    if i:
        resize(*size)
        read(1)  # this screen may still have the old size
    print(f"== {size[0]}x{size[1]}", *screen(read(4), *size), sep="\n")
os.write(master, sys.argv[2].encode().decode("unicode_escape").encode())
end, text, status = time.monotonic() + 30, "", None
while status is None and time.monotonic() < end:
    if select.select([master], [], [], 0.05)[0]:
        text += os.read(master, 65536).decode(errors="replace")
    ended, code = os.waitpid(pid, os.WNOHANG)
    status = code if ended else None
if status is None:
    os.kill(pid, signal.SIGKILL)
if select.select([master], [], [], 0.05)[0]:
    text += os.read(master, 65536).decode(errors="replace")
restored = text.rstrip().endswith("\033[?25h\033[?1049l") and termios.tcgetattr(slave) == before
code = os.waitstatus_to_exitcode(status) if status is not None else "never"
print("exit", code, "as it was" if restored else repr(text[-200:]))
