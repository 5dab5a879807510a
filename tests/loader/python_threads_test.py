#!/usr/bin/python3
"""The Python package in programs with threads: calls that several threads may make at once, and calls that are refused.
A Python without a GIL shows races that others hide. The test does without torch, which not every such Python has."""
import gc
import queue
import random
import subprocess
import sys
import sysconfig
import threading
import time
import warnings

import tap

tap.python_package(needed=("numpy",))  # or SKIP

import numpy

import penstock
from penstock import _penstock

FIELDS = {"image": penstock.Image("jpg", size=16, dtype="u8", layout="nhwc"), "label": penstock.Int("cls")}
REFUSED = "another thread is in this loader"
NSAMPLES = 60


def shards():
    for s in range(3):
        files = []
        for i in range(20):
            files += [("%02d.jpg" % i, tap.read(tap.PHOTOS[i % len(tap.PHOTOS)])),
                      ("%02d.cls" % i, b"%d" % (s * 20 + i))]
        tap.make_tar("t-%d.tar" % s, files)
    return "t-{0..2}.tar"


def loader(pattern, **options):
    return penstock.Loader(pattern, **{"batch": 4, "fields": FIELDS, "format": "numpy", **options})


def labels(batches):
    return [int(x) for b in batches for x in b["label"]]


def together(*functions):
    """Runs each function on a thread of its own, all at once; raises what one of them raises."""
    barrier, raised = threading.Barrier(len(functions)), []

    def run(function):
        try:
            barrier.wait(20)
            function()
        except BaseException as e:
            raised.append(e)

    threads = [threading.Thread(target=run, args=(f,), daemon=True) for f in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "a thread hangs"
    if raised:
        raise raised[0]


def refused(call):
    try:
        call()
    except RuntimeError as e:
        if REFUSED in str(e):
            return True
        raise
    return False


def until(condition, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it takes more than %g s" % seconds
        time.sleep(0.005)


@tap.test
def the_module_leaves_the_gil_off():
    if not sysconfig.get_config_var("Py_GIL_DISABLED"):
        raise tap.Skip("this Python has a GIL")
    code = "import penstock, sys; assert not sys._is_gil_enabled()"
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, timeout=60)


@tap.test
def a_second_thread_in_a_loader_is_refused():
    gate = threading.Event()
    load = loader(shards(), map=lambda sample: gate.wait(20) and sample, threads=2)
    state, epoch, got = load.state_dict(), iter(load), []
    thread = threading.Thread(target=lambda: got.append(next(epoch)), daemon=True)
    thread.start()
    until(lambda: refused(load.state_dict))
    for call in (lambda: next(epoch), lambda: iter(load), lambda: load.set_epoch(3), load.peek, load.state_dict,
                 lambda: load.element_spec, lambda: load.load_state_dict(state), load.fingerprint):
        assert refused(call), call
    tap.equal(load.stats()["batches"], 0, "stats() is allowed meanwhile")
    gate.set()
    thread.join(20)
    tap.equal((got[0].index, next(epoch).index), (0, 1))
    load.close()


@tap.test
def threads_that_share_an_iterator_take_each_batch_once():
    pattern = shards()
    want = labels(loader(pattern, seed=2))
    load = loader(pattern, seed=2, depth=8)
    epoch, got, nrefused = iter(load), [], [0] * 4

    def take(k):
        while True:
            try:
                batch = next(epoch)
            except StopIteration:
                return
            except RuntimeError as e:
                assert REFUSED in str(e), e
                nrefused[k] += 1
                continue
            if batch.epoch == 0:
                got.append((batch.index, labels([batch])))

    together(*[lambda k=k: take(k) for k in range(4)])
    tap.equal([label for _, some in sorted(got) for label in some], want, "refused %r" % nrefused)
    load.set_epoch(0)
    tap.equal(labels(load), want)


@tap.test
def peeks_and_nexts_of_several_threads_lose_no_batch():
    pattern = shards()
    want = labels(loader(pattern, seed=1))
    load, seen = loader(pattern, seed=1), []

    def peek():
        for _ in range(30):
            try:
                seen.append(labels([load.peek()]))
            except RuntimeError as e:
                assert REFUSED in str(e), e

    together(peek, peek)
    assert seen, "every peek() was refused"
    assert all(some == want[:4] for some in seen), seen
    epoch, got, over = iter(load), [], threading.Event()

    def peek_on():
        while not over.is_set():
            refused(load.peek)

    def take():
        try:
            while True:
                try:
                    got.extend(labels([next(epoch)]))
                except StopIteration:
                    return
                except RuntimeError as e:
                    assert REFUSED in str(e), e
                    time.sleep(0.001)
        finally:
            over.set()

    together(peek_on, take)
    tap.equal(got, want)


@tap.test
def a_sampler_is_read_by_one_thread_at_a_time():
    pattern = shards()
    for s in range(3):
        tap.equal(tap.run("index", "t-%d.tar" % s).returncode, 0)
    order = random.Random(3).sample(range(NSAMPLES), NSAMPLES)
    load = loader(pattern, order=(n for n in order), steps=NSAMPLES // 4)
    epoch, got = iter(load), []

    def take():
        while True:
            try:
                batch = next(epoch)
            except StopIteration:
                return
            except RuntimeError as e:
                assert REFUSED in str(e), e
                continue
            if batch.epoch == 0:
                got.append((batch.index, labels([batch])))

    together(take, take, take)
    tap.equal([label for _, some in sorted(got) for label in some], order)


@tap.test
def loaders_on_many_threads_may_share_a_map():
    pattern = shards()
    want = [x + 1000 for x in labels(loader(pattern))]
    count, counts, overlaps, lock = {"serial": 0, "plain": 0}, [], [], threading.Lock()

    def serial(sample):
        n = count["serial"]
        random.random()  # the global generator, which is seeded for each sample
        time.sleep(0)
        count["serial"] = n + 1  # no count is lost: one call at a time, over all loaders
        return {"label": sample["label"] + 1000}

    def plain(sample):
        with lock:
            count["plain"] += 1
        return {"label": sample["label"] + 1000}

    def factory():
        mine, busy = [0], []
        counts.append(mine)

        def function(sample):
            if busy:
                overlaps.append(1)
            busy.append(1)
            mine[0] += 1
            time.sleep(0)
            busy.pop()
            return {"label": sample["label"] + 1000}

        return function

    def run(**how):
        for _ in range(3):
            tap.equal(labels(loader(pattern, threads=3, **how)), want)

    kinds = {"map": plain}, {"map_serial": serial}, {"map_factory": factory}
    together(*[lambda how=how: run(**how) for how in kinds * 2])
    # The counts may be higher: a loader at the end of an epoch has begun the next one.
    for total in (count["serial"], count["plain"], sum(mine[0] for mine in counts)):
        assert total >= 6 * NSAMPLES, (count, counts)
    tap.equal(overlaps, [])


@tap.test
def calls_of_a_serial_map_do_not_overlap():
    counted, seen = [0], []

    def count(sample):
        n = counted[0]
        for _ in range(50):
            pass
        counted[0] = n + 1
        seen.append(n)  # a number that appears twice comes from two calls at once

    pattern = shards()
    together(*[lambda: labels(loader(pattern, threads=4, map_serial=count)) for _ in range(3)])
    tap.equal(len(set(seen)), len(seen))
    assert len(seen) >= 3 * NSAMPLES


@tap.test
def all_exceptions_of_maps_on_many_threads_are_reported():
    def fail(sample):
        if sample["label"] % 3 == 0:
            raise ValueError("of %d" % sample["label"])

    pattern = shards()

    def run():
        told = []
        for batch in loader(pattern, threads=4, map=fail, on_error="skip"):
            told += [bad["traceback"].strip().splitlines()[-1] for bad in batch.bad_samples()]
        tap.equal(sorted(told), sorted("ValueError: of %d" % n for n in range(0, NSAMPLES, 3)))

    together(run, run, run)


@tap.test
def batches_that_another_thread_releases_are_reused():
    pattern = shards()
    for format in (None, "numpy"):
        load, given, got = loader(pattern, depth=2, format=format), queue.Queue(), []

        def make():
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                for _ in range(4):
                    for batch in load:
                        given.put(batch)
                        del batch
            given.put(None)

        def consume():
            while True:
                batch = given.get()
                if batch is None:
                    return
                got.extend(numpy.asarray(batch["label"]).tolist())
                time.sleep(0.002)
                del batch

        gc.disable()  # a garbage collection would free the batches, too, but later
        try:
            together(make, consume)
        finally:
            gc.enable()
        tap.equal((sorted(got), load.stats()["added_batches"]), (sorted(4 * list(range(NSAMPLES))), 0))


@tap.test
def batches_of_a_thread_that_waits_elsewhere_are_reused():
    load = loader(shards(), depth=2)
    given, epoch = queue.SimpleQueue(), iter(load)
    got = []
    given.put(next(epoch))
    given.put(next(epoch))  # both batches that there are, made by this thread

    def rest():
        time.sleep(0.2)  # until the main thread is in join()
        for _ in range(2):
            got.extend(labels([given.get()]))
        while True:
            batch = next(epoch, None)
            if batch is None:
                return
            got.extend(labels([batch]))
            del batch

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        together(rest)
    tap.equal(sorted(got), list(range(NSAMPLES)))
    tap.equal(load.stats()["added_batches"], 0)


@tap.test
def a_batch_may_be_released_while_other_threads_use_it():
    load = loader(shards(), format=None)
    for batch in (b for _ in range(5) for b in load):
        raw, used = batch._raw, threading.Event()
        batch.clear()
        del batch

        def use():
            while True:
                try:
                    image = raw.field("image")
                    tap.equal(len(image.tobytes()), image.nbytes)
                    raw.names(), raw.bad_samples(), raw.synchronize()
                    used.set()
                    del image
                    time.sleep(0.001)
                except ValueError as e:
                    assert "was released" in str(e), e
                    return

        def release():
            used.wait(20)
            while True:
                try:
                    raw.release()
                    return
                except BufferError:
                    time.sleep(0)

        together(use, use, release)
        try:
            raw.field("image")
            raise AssertionError("released")
        except ValueError:
            pass
    tap.equal(load.stats()["added_batches"], 0)


@tap.test
def many_threads_may_use_the_tensors_of_a_batch():
    load = loader(shards(), format=None, depth=2)
    for batch in load:
        image, label = batch["image"], batch["label"]
        want, numbers = image.tobytes(), label.tobytes()

        def use():
            for _ in range(20):
                tap.equal(image.tobytes(), want)
                array = numpy.asarray(image)
                tap.equal(array.tobytes(), want)
                tap.equal(numpy.from_dlpack(label).tobytes(), numbers)
                tap.equal(numpy.asarray(image.permute(0, 3, 1, 2)).shape[1], 3)
                tap.equal(numpy.asarray(batch["image"]).tobytes(), want)
                assert batch["__key__"][0] == batch["__key__"][-4]
                batch.bad_samples(), repr(image), repr(batch)

        together(*[use] * 4)
        del image, label
        until(lambda: released(batch))
    tap.equal(load.stats()["added_batches"], 0)


def released(batch):
    try:
        batch.release()
        return True
    except BufferError:
        return False


@tap.test
def close_may_be_called_while_next_runs():
    pattern = shards()
    gate = threading.Event()
    load = loader(pattern, map=lambda sample: gate.wait(20) and sample)
    epoch, ended = iter(load), []

    def go():
        try:
            while True:
                next(epoch)
        except (ValueError, StopIteration, penstock.Error, RuntimeError) as e:
            ended.append(e)

    thread = threading.Thread(target=go, daemon=True)
    thread.start()
    until(lambda: refused(load.state_dict))
    load.close()
    gate.set()
    thread.join(20)
    assert not thread.is_alive() and len(ended) == 1, ended
    for i in range(30):
        load = loader(pattern, map=(lambda sample: sample) if i % 2 else None)

        def read():
            try:
                while True:
                    for batch in load:
                        batch["label"].sum()
            except ValueError as e:
                assert "this loader was closed" in str(e), e
            except penstock.Error as e:
                assert i % 2, e  # the map is not called any more

        def close():
            time.sleep(random.Random(i).random() * 0.02)
            load.close()

        def look():
            try:
                while True:
                    load.stats()
            except ValueError as e:
                assert "this loader was closed" in str(e), e

        together(read, close, close, look)


@tap.test
def a_second_thread_that_writes_a_shard_is_refused():
    shard = _penstock.Shard("w.tar", 0)
    written = [0, 0]

    def write(k):
        for i in range(200):
            try:
                shard.add("%d-%03d.bin" % (k, i), bytes(100))
                written[k] += 1
            except ValueError as e:
                assert "another thread writes it" in str(e), e

    together(lambda: write(0), lambda: write(1))
    shard.finish(False)
    tap.equal(len(tap.ls("w.tar")[0]), sum(written))


ENDS = """
import sys
import penstock
def busy(sample):
    sum(range(20000))
    return sample
loaders = [penstock.Loader(sys.argv[1], batch=4, depth=8, fields={"label": penstock.Int("cls")}, format="numpy",
                           map=busy, threads=4) for _ in range(3)]
epochs = [iter(load) for load in loaders]
for _ in range(int(sys.argv[2])):
    for epoch in epochs:
        next(epoch)
print("end", flush=True)
"""


@tap.test
def a_program_ends_while_maps_run():
    pattern = shards()
    for n in range(6):
        r = subprocess.run([sys.executable, "-c", ENDS, pattern, str(n)], capture_output=True, text=True,
                           timeout=60)
        tap.equal((r.returncode, r.stdout, r.stderr), (0, "end\n", ""))


if __name__ == "__main__":
    tap.main()
