"""Clocks, memory and processes: how a single figure is taken."""

import json
import os
import shutil
import subprocess
import sys
import time

MIB = 1 << 20


class BenchError(Exception):
    """Something that makes a row impossible; its text says what to do."""


def say(text):
    print(f"read-path: {text}", file=sys.stderr, flush=True)


def parse_size(text):
    units = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
    unit = units.get(text[-1:].lower(), 1)
    return int(float(text[:-1] if unit > 1 else text) * unit)


def touch_memory(nbytes):
    """Touches memory: a virtual machine may have returned it to its host, and the next phase would pay for
    that."""
    pid = os.fork()
    if pid == 0:
        try:
            free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
            block = bytearray(min(nbytes, free * 3 // 4))
            view = memoryview(block)
            for at in range(0, len(view), 4096):
                view[at] = 1
        finally:
            os._exit(0)
    os.waitpid(pid, 0)


def drop_pages():
    """Writes dirty pages to the disk, because those would stay, and empties the kernel's page cache."""
    os.sync()
    try:
        with open("/proc/sys/vm/drop_caches", "w") as f:
            f.write("1\n")
    except OSError as e:
        raise BenchError(f"the page cache cannot be dropped ({e}); this row needs root") from e


def cpu_of(pid):
    """CPU seconds of a living process, of its ended threads too, to the nanosecond."""
    return time.clock_gettime((~pid << 3) | 2)


def memory_of(pid, field):
    """Bytes of a field of /proc/PID/status: VmRSS, VmHWM."""
    with open(f"/proc/{pid}/status") as f:
        for line in f:
            if line.startswith(field + ":"):
                return int(line.split()[1]) * 1024
    return 0


def sample(nbytes, seconds, cpu, **more):
    return {"gb_per_s": nbytes / seconds / 1e9, "cpu_s_per_gb": cpu / (nbytes / 1e9), "seconds": seconds, **more}


class Reader:
    """tests/bench/reader: reads as programs do, in C."""

    def __init__(self, program):
        self.program = program

    def __call__(self, paths, daemon=None, settle=None, **options):
        """daemon: pid whose CPU counts, too; settle: called after the clock is stopped, before CPU is
        read."""
        words = [word for name, value in options.items()
                 for word in ((f"--{name}",) if value is True else (f"--{name}", str(value)))]
        before = cpu_of(daemon) if daemon else 0
        done = subprocess.run([self.program, *words, *paths], stdout=subprocess.PIPE, check=True)
        out = json.loads(done.stdout)
        if settle:
            settle()
        cpu = out["cpu_seconds"] + (cpu_of(daemon) - before if daemon else 0)
        more = {"peak_rss_bytes": memory_of(daemon, "VmHWM")} if daemon else {}
        return sample(out["bytes"], out["seconds"], cpu, bytes_read=out["bytes"], first_byte_s=out["first_byte_seconds"], **more)


class Loader:
    """penstock-loader bench: samples to batches of bytes, in order."""

    def __init__(self, program):
        self.program = program

    def __call__(self, paths, epochs=1, daemon=None, user=None):
        """user: the id of a user without rights, as whom it runs."""
        words = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"] if user else []
        words += [self.program, "bench", "--field", "bin=bytes", "--order", "none", "--epochs", str(epochs),
                  "--json", *paths]
        before = cpu_of(daemon) if daemon else 0
        done = subprocess.run(words, stdout=subprocess.PIPE, check=True)
        out = json.loads(done.stdout)
        cpu = out["samples"] / out["samples_per_cpu_second"] + (cpu_of(daemon) - before if daemon else 0)
        return sample(out["bytes_read"], out["seconds"], cpu)


def run_all(commands, nbytes):
    """Runs commands at the same time, as one contestant; their CPU is counted to the end of the last."""
    start, cpu = time.monotonic(), 0.0
    children = [subprocess.Popen(command) for command in commands]
    failed = False
    for child in children:
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        failed = failed or status != 0
        cpu += usage.ru_utime + usage.ru_stime
    if failed:
        raise BenchError(f"failed: {' '.join(commands[0][:8])}...")
    return sample(nbytes, time.monotonic() - start, cpu)


def wait_for(what, condition, seconds=60, every=0.02):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise BenchError(f"{what}: not within {seconds} s")
        time.sleep(every)


def remove(path):
    shutil.rmtree(path, ignore_errors=True)
