#!/usr/bin/env python3
"""kill_starts.py KEEPER DAEMON dies|hangs: kills the daemon. Then it kills three daemons that the
keeper starts, each at its start (dies), or stops the first of them by SIGSTOP (hangs)."""
import os
import signal
import sys

keeper, last, way = int(sys.argv[1]), sys.argv[2], sys.argv[3]
os.kill(int(last), signal.SIGKILL)
done = 0
while done < 3:
    try:
        with open(f"/proc/{keeper}/task/{keeper}/children") as f:
            pids = f.read().split()
    except OSError:
        break
    if pids and pids[0] != last:
        last = pids[0]
        os.kill(int(last), signal.SIGKILL if way == "dies" else signal.SIGSTOP)
        done += 1 if way == "dies" else 3
