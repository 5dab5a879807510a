#!/usr/bin/python3
"""What a loader tells the penstock mount that its shards are on. The mount is a tmpfs with a pipe as its file for
plans; so this needs root, and a tmpfs with attributes of users (Linux 6.6)."""
import atexit
import json
import os
import subprocess
import tempfile
import time

import tap

tap.python_package()  # or SKIP

import penstock
from python_fixture import labels, shards

FIELDS = {"label": penstock.Int("cls"), "text": penstock.Bytes("txt")}


def make_mount():
    """Mounts it with three shards; returns a function that gives the lines since its last call."""
    atexit.register(os.rmdir, MNT)
    if os.geteuid() or subprocess.run(["mount", "-t", "tmpfs", "none", MNT], capture_output=True).returncode:
        tap.skip_all("no tmpfs can be mounted")
    atexit.register(subprocess.run, ["umount", "-l", MNT])
    before = os.getcwd()
    os.chdir(MNT)
    shards()
    os.chdir(before)
    try:
        for i in range(3):
            os.setxattr(os.path.join(MNT, "t-%d.tar" % i), "user.penstock.state", b"remote")
    except OSError:
        tap.skip_all("a tmpfs has no attributes of users here")
    plan = os.path.join(MNT, ".penstock/plan")
    os.mkdir(os.path.dirname(plan))
    os.mkfifo(plan)
    pipe = os.open(plan, os.O_RDWR | os.O_NONBLOCK)

    def take(n):
        text = b""
        for _ in range(500):
            try:
                text += os.read(pipe, 1 << 16)
            except BlockingIOError:
                pass
            if text.count(b"\n") >= n:
                break
            time.sleep(0.02)
        return [json.loads(line) for line in text.splitlines()]

    return take


MNT = tempfile.mkdtemp(prefix="penstock-test-")
take = make_mount()


def loader(**options):
    options = {"batch": 3, "fields": FIELDS, "lanes": 3, "shuffle_window": 12, "seed": 1, "epochs": 2, **options}
    return penstock.Loader(os.path.join(MNT, "t-{0..2}.tar"), **options)


def reads(lines):
    return [line for line in lines if "penstock_reads" in line]


@tap.test
def what_is_read_first_is_said_before_the_plan():
    with loader(order="none", lanes=None) as load:
        iter(load)
        lines = take(4)
    tap.equal(lines[0], {"penstock_reads": 1, "files": ["t-0.tar"], "from": [0], "bytes": 0})
    tap.equal([line["epoch"] for line in lines[1:] if "penstock_plan" in line], [0, 1])
    tap.equal(len(reads(lines)), 1)


@tap.test
def a_state_says_where_its_lanes_are_and_how_far_they_have_come():
    with loader() as load:
        batches = iter(load)
        for _ in range(5):
            next(batches)
        state, rest = load.state_dict(), labels(batches)
        take(4)
        load.load_state_dict(state)
        (line,) = reads(take(1))
        tap.equal(sorted(line["files"]), ["t-0.tar", "t-1.tar", "t-2.tar"])
        assert all(0 < offset < os.path.getsize(os.path.join(MNT, name)) for name, offset in zip(line["files"], line["from"])), line
        assert line["bytes"] > 0, line
        tap.equal(labels(load), rest)
    take(1)
    with loader(state=state) as load:
        lines = take(4)
        tap.equal(lines[0], line)
        tap.equal(labels(load), rest)


@tap.test
def lanes_are_named_from_the_next_one_on():
    with loader(batch=1) as load:
        batches = iter(load)
        order = ["t-%d.tar" % (labels([next(batches)])[0] // 100) for _ in range(3)]
        take(4)
        with loader(batch=1) as other:
            tap.equal(reads(take(4))[0]["files"], order)
            batches = iter(other)
            next(batches)
            take(1)
            other.load_state_dict(other.state_dict())
            tap.equal(reads(take(1))[0]["files"], order[1:] + order[:1])


@tap.test
def nothing_is_said_where_lanes_read_from_any_shard():
    for i in range(3):
        os.setxattr(os.path.join(MNT, "t-%d.tar" % i), "user.penstock.state", b"cached")  # so that an index is made
    with loader(order=[0, 11, 25], lanes=None, shuffle_window=None, batch=1, epochs=None, index="make") as load:
        tap.equal(labels(load), [0, 101, 205])
        tap.equal(reads(take(2)), [])


@tap.test
def the_shard_of_a_repeated_row_is_named_last():
    for i in range(3):
        os.setxattr(os.path.join(MNT, "t-%d.tar" % i), "user.penstock.state", b"cached")  # so that an index is made
    options = {"batch": 1, "world": 7, "lanes": 3, "shuffle_window": 1, "index": "make", "format": "numpy"}  # 30 samples: 2 in the last step
    with loader(rank=1, **options) as load:
        want = ["t-%d.tar" % (labels(load)[-1] // 100) for _ in range(2)]
    take(1)
    with loader(rank=5, **options) as load:  # 5 mod 2 is 1
        for epoch, n in (0, 5), (1, 3):
            batches = iter(load)
            last = next(batches)
            lines = take(n)
            for last in batches:
                pass
            tap.equal((last["__valid__"].tolist(), load.stats()["repeats"]), ([0], epoch + 1))
            tap.equal("t-%d.tar" % (labels([last])[0] // 100), want[epoch])
            plans = [line["files"] for line in lines if line.get("penstock_plan") and line["epoch"] == epoch]
            tap.equal((plans[-1][-1], plans[-1].count(want[epoch])), (want[epoch], 1), lines)


if __name__ == "__main__":
    tap.main()
