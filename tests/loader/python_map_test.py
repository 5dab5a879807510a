#!/usr/bin/python3
"""map=, map_factory=, map_serial=, decode=, collate=: what a user's function gets, and what it cannot break."""
import gc
import io
import os
import random
import signal
import subprocess
import sys
import threading
import time
import warnings
import weakref

import tap

tap.python_package()  # or SKIP

import numpy
import torch

import penstock
from python_fixture import FIELDS, labels, loader, shards

PIXELS = {"image": penstock.Image("jpg", size=32, dtype="u8", layout="nhwc"), "label": penstock.Int("cls")}


def pixels(**options):
    return penstock.Loader(options.pop("pattern", None) or shards(), **{"batch": 4, "fields": PIXELS, "format": "numpy", "copy": True, **options})


def draws(load):
    return [(int(a), float(b)) for batch in load for a, b in zip(batch["label"], batch["draw"])]


def drawing(sample, rng):
    sample["draw"] = rng.random()
    return sample


DRAW = {"map": drawing, "outputs": {"draw": penstock.Output(dtype="f64")}}


@tap.test
def an_identity_as_map_changes_nothing():
    pattern = shards()
    for a, b in zip(pixels(pattern=pattern), pixels(pattern=pattern, map=lambda s: s)):
        assert (a["image"] == b["image"]).all() and (a["label"] == b["label"]).all()


@tap.test
def a_map_gets_fields_and_returns_others():
    seen = []

    def see(sample):
        seen.append({name: type(value).__name__ for name, value in sample.items()})
        assert sample["image"].shape == (32, 32, 3) and sample["image"].dtype == "u1"
        sample["image"][:] = 255 - sample["image"]
        return {"label": sample["label"] + 1000, "mean": sample["image"].mean(), "image": sample["image"],
                "ids": list(sample["text"][:2])}

    fields = {**PIXELS, "text": penstock.Bytes("txt", hidden=1)}
    outputs = {"mean": penstock.Output(dtype="f64"), "ids": penstock.Output((0,), "i32", max_bytes=64)}
    pattern = shards()
    for plain, mapped in zip(pixels(pattern=pattern), pixels(pattern=pattern, fields=fields, map=see, outputs=outputs)):
        assert (mapped["image"] == 255 - plain["image"]).all()
        tap.equal(mapped["label"].tolist(), (plain["label"] + 1000).tolist())
        assert numpy.allclose(mapped["mean"], mapped["image"].reshape(len(mapped["label"]), -1).mean(1))
        tap.equal(sorted(mapped), ["ids", "image", "label", "mean"])
        for ids, label in zip(mapped["ids"], plain["label"]):
            tap.equal(list(ids), list(("ä".encode() * (label % 100))[:2]))
    tap.equal(seen[0], {"image": "ndarray", "label": "int", "text": "bytes"})


@tap.test
def an_output_replaces_a_field_of_its_name():
    def shrink(sample):
        return {"image": sample["image"][::2, ::2].transpose(2, 0, 1) / numpy.float32(255)}

    pattern = shards()
    mapped = list(pixels(pattern=pattern, map=shrink, outputs={"image": penstock.Output((3, 16, 16))}))
    plain = list(pixels(pattern=pattern))
    for a, b in zip(plain, mapped):
        assert b["image"].dtype == "f4" and b["image"].shape[1:] == (3, 16, 16)
        assert numpy.array_equal(b["image"], a["image"][:, ::2, ::2].transpose(0, 3, 1, 2) / numpy.float32(255))
        tap.equal(a["label"].tolist(), b["label"].tolist())


@tap.test
def draws_of_a_map_are_the_same_for_any_threads_and_after_a_resume():
    pattern = shards()
    want = draws(pixels(pattern=pattern, threads=1, **DRAW))
    assert len({d for _, d in want}) == 30
    for threads in (2, 7):
        tap.equal(draws(pixels(pattern=pattern, threads=threads, depth=3, **DRAW)), want)
    load = pixels(pattern=pattern, threads=3, **DRAW)
    half = iter(load)
    got = [(int(a), float(d)) for b in (next(half), next(half), next(half)) for a, d in zip(b["label"], b["draw"])]
    state = load.state_dict()
    tap.equal(got + draws(pixels(pattern=pattern, threads=2, state=state, **DRAW)), want)
    load.load_state_dict(state)
    tap.equal(got + draws(load), want)
    assert draws(pixels(pattern=pattern, seed=1, **DRAW)) != want


@tap.test
def map_factory_makes_a_map_for_each_thread_and_seeds_it_per_sample():
    made = []

    class Compose:
        def __init__(self):
            made.append(threading.get_ident())
            self.random = random.Random()

        def set_random_seed(self, seed):
            self.random.seed(seed)

        def __call__(self, sample):
            assert threading.get_ident() in made
            return {**sample, "draw": self.random.random()}

    pattern = shards()
    runs = [draws(pixels(pattern=pattern, threads=n, map_factory=Compose, outputs=DRAW["outputs"])) for n in (1, 4)]
    tap.equal(runs[0], runs[1])
    tap.equal(len(set(made)), len(made))
    assert 2 <= len(made) <= 5, made


@tap.test
def map_serial_seeds_global_generators_per_sample():
    running = []

    def draw(sample):
        running.append(1)
        assert len(running) == 1
        value = random.random() + numpy.random.random() + float(torch.rand(()))
        time.sleep(0.0005)
        running.pop()
        return {**sample, "draw": value}

    pattern = shards()
    runs = [draws(pixels(pattern=pattern, threads=n, map_serial=draw, outputs=DRAW["outputs"])) for n in (1, 4)]
    tap.equal(runs[0], runs[1])
    assert len({d for _, d in runs[0]}) == 30


@tap.test
def decode_turns_members_into_outputs():
    def decode(data):
        return torch.load(io.BytesIO(data), weights_only=True).numpy()

    files = []
    for i in range(12):
        out = io.BytesIO()
        torch.save(torch.full((2, 3), i, dtype=torch.int64), out)
        files += [("%02d.pth" % i, out.getvalue()), ("%02d.cls" % i, b"%d" % i)]
    tap.make_tar("p.tar", files)
    load = penstock.Loader("p.tar", batch=5, fields={"label": penstock.Int("cls")}, format="torch",
                           decode={"pth": decode}, outputs={"pth": penstock.Output((2, 3), "i64")})
    n = 0
    for batch in load:
        assert torch.equal(batch["pth"], batch["label"][:, None, None].expand(-1, 2, 3))
        n += len(batch["label"])
    tap.equal(n, 12)


@tap.test
def collate_makes_a_batch_of_rows():
    got = list(pixels(map=lambda s: s, collate=lambda rows: [(int(r["label"]), r["image"].shape) for r in rows]))
    tap.equal(len(got), 8)
    tap.equal(got[0][0][1], (32, 32, 3))


def picky(sample):
    if sample["label"] % 100 == 3:
        raise KeyError("no such class: %d" % sample["label"])
    return sample


@tap.test
def an_exception_in_a_map_makes_its_sample_bad():
    pattern = shards(1)
    batches = list(pixels(pattern=pattern, order="none", map=picky, on_error="skip"))
    tap.equal([b.bad for b in batches], [1, 0, 0])
    bad = batches[0].bad_samples()[0]
    tap.equal((bad["key"], os.path.basename(bad["shard"])), ("s0/03", "t-0.tar"))
    assert "map: KeyError" in bad["reason"] and "in picky)" in bad["reason"], bad["reason"]
    assert "Traceback" in bad["traceback"] and "raise KeyError" in bad["traceback"], bad
    tap.equal(batches[0]["__valid__"].tolist(), [1, 1, 1, 0])
    load = pixels(pattern=pattern, order="none", batch=2, map=picky, threads=3)
    rest = iter(load)
    next(rest)
    try:
        next(rest)
        assert False
    except penstock.BadSampleError as error:
        assert "s0/03" in str(error) and "t-0.tar" in str(error) and "no such class: 3" in str(error), error
        assert isinstance(error.__cause__, KeyError)
        frames = error.__cause__.__traceback__
        while frames.tb_next:
            frames = frames.tb_next
        tap.equal(frames.tb_frame.f_code.co_name, "picky")


@tap.test
def a_maps_failure_is_the_cause_of_its_own_samples_error():
    """Also if the key is not UTF-8, or others that fail have keys within it."""
    def fails(sample):
        raise KeyError(sample["n"])

    for first, rest in (("aaa", ["a", "aa"]), ("b\udcff", ["b"])):
        tap.make_tar("k.tar", [(key + ".cls", b"%d" % n) for n, key in enumerate([first, *rest], 7)])
        load = penstock.Loader("k.tar", batch=1, order="none", threads=1, fields={"n": penstock.Int("cls")}, map=fails)
        try:
            next(iter(load))
            assert False
        except penstock.BadSampleError as error:
            tap.equal((error.key, repr(error.__cause__)), (first, "KeyError(7)"))


@tap.test
def a_wrong_result_of_a_map_is_an_error_with_the_declared_output():
    def of(value, output):
        try:
            list(pixels(map=lambda s: {"x": value}, outputs={"x": output}, pattern="t-{0..2}.tar"))
        except penstock.BadSampleError as error:
            return str(error)
        return "none"

    shards()
    assert "(2,)" in of([1, 2], penstock.Output((3,))) and "(3,)" in of([1, 2], penstock.Output((3,)))
    assert "0.5 has no value in i32" in of(numpy.full(2, 0.5), penstock.Output((2,), "i32"))
    assert "dtype complex128" in of(1j, penstock.Output((), "f32"))
    assert "room for 2" in of([1, 2, 3], penstock.Output((0,), "i32", max_bytes=8))
    assert "no 'y'" in str(_raised(lambda: list(pixels(map=lambda s: s, outputs={"y": penstock.Output()}))))
    assert "a dict" in str(_raised(lambda: list(pixels(map=lambda s: 3))))
    for wrong in (lambda: pixels(map=3), lambda: pixels(outputs={"x": penstock.Output()}), lambda: pixels(map=picky, map_serial=picky),
                  lambda: pixels(map_version=3), lambda: pixels(fields={"label": penstock.Int("cls", hidden=1)})):
        assert isinstance(_raised(wrong), (ValueError, TypeError))


def _raised(call):
    try:
        call()
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


@tap.test
def an_output_that_does_not_fit_its_dtype_is_a_bad_sample():
    def of(value, dtype, shape=()):
        try:
            return next(iter(pixels(pattern=pattern, map=lambda s: {"x": value}, outputs={"x": penstock.Output(shape, dtype)})))["x"][0].tolist()
        except penstock.BadSampleError as error:
            return str(error)

    pattern = shards(1)
    big = numpy.array([2**63 + 5], "u8")
    for value, dtype, shape in [(200, "i8", ()), (-129, "i8", ()), (40000, "i16", ()), (2**31, "i32", ()), (2**40, "i32", ()),
                                ([1, 2**40], "i32", (2,)), (numpy.uint64(2**63), "i64", ()), (2**70, "i64", ()), (256, "u8", ()),
                                ([1, 70000], "u16", (2,)), (numpy.array([300], "u2"), "u8", (1,)), (numpy.array([-1]), "u64", (1,)),
                                (numpy.array([3_000_000_000]), "i32", (1,)), (numpy.array([2**40], "u8"), "u32", (1,)), (big, "i64", (1,)),
                                (1e6, "f16", ()), (1e39, "f32", ()), (numpy.array([1e39]), "f32", (1,)), (70000, "f16", ()),
                                (1.5, "i64", ()), (2.0**63, "i64", ()), (float("nan"), "i32", ()), (float("inf"), "i64", ()),
                                ([2**60 + 1, 0.5], "i64", (2,)), (2, "bool", ()), (numpy.array([2.0]), "bool", (1,)),
                                (torch.tensor([2**40]), "i32", (1,)), ("ä", "i8", (2,)), ([2**63, -1], "i64", (2,))]:
        got = of(value, dtype, shape)
        assert "has no value in %s" % dtype in str(got) or "of dtype object" in str(got), (value, dtype, got)
    for value, dtype, shape, want in [(3, "u8", (), 3), (255, "u8", (), 255), (-128, "i8", (), -128), (2**63, "u64", (), 2**63),
                                      (numpy.array([5]), "u8", (1,), [5]), (numpy.array([4.0]), "i16", (1,), [4]),
                                      ([2**60, 0.0], "i64", (2,), [2**60, 0]), (float("inf"), "f16", (), float("inf")),
                                      (0.1, "f32", (), float(numpy.float32(0.1))), (True, "i32", (), 1), ([0, 1], "bool", (2,), [False, True]),
                                      (65504, "f16", (), 65504.0), (numpy.array([[1e30]]), "f32", (1, 1), [[float(numpy.float32(1e30))]])]:
        tap.equal(of(value, dtype, shape), want)
    for dtype, change, want in [("i8", lambda y: 200, "label: 200 has no value in i8"), ("i32", lambda y: y + 2**40, "has no value in i32")]:
        load = pixels(pattern=pattern, fields={"label": penstock.Int("cls", dtype=dtype)}, map=lambda s: {"label": change(s["label"])})
        assert want in str(_raised(lambda: next(iter(load)))), dtype


@tap.test
def a_map_may_return_its_fields_but_nothing_that_is_not_declared():
    fields = {**PIXELS, "text": penstock.Text("txt"), "raw": penstock.Bytes("cls", hidden=1)}

    def reason(function):
        return str(_raised(lambda: next(iter(pixels(pattern=pattern, fields=fields, map=function)))))

    def adds(sample):
        sample["more"] = 1

    pattern = shards(1)
    assert "returned a 'extra', which outputs= does not declare" in reason(lambda s: {**s, "extra": 1})
    assert "returned a 'more'" in reason(adds)
    assert "returned another 'text'" in reason(lambda s: {**s, "text": "other"})
    assert "returned another 'raw'" in reason(lambda s: {"raw": b"other"})
    plain = list(pixels(pattern=pattern, fields={**PIXELS, "text": penstock.Text("txt")}))
    for same in (lambda s: {**s}, lambda s: s, lambda s: None, lambda s: {}, lambda s: {"text": s["text"], "label": s["label"]}):
        for a, b in zip(plain, pixels(pattern=pattern, fields=fields, map=same)):
            tap.equal((list(a["text"]), a["label"].tolist()), (list(b["text"]), b["label"].tolist()))


@tap.test
def interrupts_exits_and_memory_errors_in_a_map_end_the_run():
    for kind in (KeyboardInterrupt, SystemExit, MemoryError):
        def stop(sample):
            if sample["label"] == 6:
                raise kind("now")
            return sample

        got = []
        try:
            for batch in pixels(order="none", map=stop, on_error="skip", max_bad=1000):
                got += batch["label"].tolist()
            assert False
        except kind as error:
            tap.equal(str(error), "now")
        tap.equal(got, [0, 1, 2, 3])


@tap.test
def a_state_is_refused_with_another_map():
    pattern = shards()
    load = pixels(pattern=pattern, map=picky, map_version="a", on_error="skip")
    next(iter(load))
    state = load.state_dict()
    for other in ({"map": picky, "map_version": "b"}, {}, {"map": picky}):
        try:
            pixels(pattern=pattern, state=state, on_error="skip", **other)
            assert False
        except penstock.StateError as error:
            assert "map" in str(error)
    assert load.fingerprint() != pixels(pattern=pattern, map=picky, map_version="b").fingerprint()
    tap.equal(len(list(pixels(pattern=pattern, state=state, map=picky, map_version="a", on_error="skip"))), 7)


@tap.test
def arrays_that_a_map_keeps_do_not_change():
    kept = []

    def keep(sample):
        kept.append((sample["image"], sample["image"].copy(), sample["image"][3:7], torch.from_numpy(sample["image"])))
        sample["image"] = numpy.zeros_like(sample["image"])
        return sample

    for _ in range(3):
        load = pixels(map=keep, threads=3, epochs=1)
        for batch in load:
            assert not batch["image"].any()
    del load, batch
    gc.collect()
    tap.equal(len(kept), 90)
    for image, copy, part, tensor in kept:
        assert (image == copy).all() and (part == copy[3:7]).all() and torch.equal(tensor, torch.from_numpy(copy))
    assert len({image.ctypes.data for image, *_ in kept}) == 90


@tap.test
def arrays_that_a_map_does_not_keep_are_reused():
    seen = set()
    list(pixels(threads=1, map=lambda s: seen.add(s["image"].ctypes.data)))
    assert len(seen) <= 2, len(seen)


@tap.test
def a_loader_that_its_own_map_refers_to_is_collected():
    class Model:
        def __init__(self, pattern):
            self.load = pixels(pattern=pattern, map=self.look)

        def look(self, sample):
            return sample

    before = threads_of_ours()
    pattern = shards()
    models = [Model(pattern) for _ in range(3)]
    for model in models:
        next(iter(model.load))
    gone = [weakref.ref(model) for model in models]
    del model, models
    # A loader is not collected while a thread is in its map.
    until(lambda: gc.collect() >= 0 and threads_of_ours() <= before)
    gc.collect()
    tap.equal([ref() for ref in gone], [None] * 3)


@tap.test
def a_map_adds_one_decode_thread_by_default():
    pattern, counts = shards(), []
    for map in (None, lambda sample: sample):
        before = threads_of_ours(b"ps-decode")
        load = pixels(pattern=pattern, map=map)
        counts.append(threads_of_ours(b"ps-decode") - before)
        load.close()
        until(lambda: threads_of_ours(b"ps-decode") == before)
    tap.equal(counts[1], counts[0] + 1)
    with pixels(pattern=pattern, map=map, threads=3):
        tap.equal(threads_of_ours(b"ps-decode"), before + 3, "threads= is the exact number")


def threads_of_ours(what=b"ps-"):
    names = []
    for task in os.listdir("/proc/self/task"):
        try:
            names.append(tap.read("/proc/self/task/%s/comm" % task))
        except OSError:
            pass
    return sum(name.startswith(what) for name in names)


def until(condition, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it takes more than %d s" % seconds
        time.sleep(0.01)


@tap.test
def a_map_may_drop_the_last_reference_and_close_its_loader():
    pattern = shards()
    for what in ("drop", "close"):
        box, out = [], []

        def end(sample):
            if box and sample["label"] > 100:
                if what == "close":
                    box[0].close()
                box.clear()
                gc.collect()
                out.append(1)
            return sample

        before = threads_of_ours()
        box.append(pixels(map=end, threads=2, epochs=3, order="none", pattern=pattern))
        first = iter(box[0]._raw.next, None)
        try:
            next(first)
        except (penstock.Error, ValueError):
            pass
        del first
        until(lambda: out)
        until(lambda: threads_of_ours() <= before)


@tap.test
def a_map_cannot_call_its_own_loader():
    box, errors = [], []

    def call(sample):
        for f in (lambda: next(iter(box[0])), lambda: box[0].get([0]), lambda: box[0].set_epoch(2), lambda: box[0].state_dict()):
            try:
                f()
            except RuntimeError as error:
                errors.append(str(error))
        return sample

    load = pixels(map=lambda s: call(s) if box else s, batch=2, depth=2, pattern=shards())
    rest = iter(load)
    next(rest)
    box.append(load)
    for _ in rest:
        pass
    box.clear()
    assert errors and all("its own loader" in e or "another thread" in e for e in errors), set(errors)


@tap.test
def close_ends_a_running_map_and_waits_for_it():
    running, left = threading.Event(), []

    def slow(sample):
        running.set()
        time.sleep(0.3)
        left.append(1)
        return sample

    before = threads_of_ours()
    load = pixels(map=slow, threads=2)
    running.wait()
    load.close()
    n = len(left)
    tap.equal(threads_of_ours(), before)
    time.sleep(0.4)
    tap.equal(len(left), n)


@tap.test
def a_map_that_waits_for_the_consumers_lock_causes_no_deadlock():
    lock = threading.Lock()

    def locked(sample):
        with lock:
            return sample

    load = pixels(map=locked, threads=2, pattern=shards(), depth=2)
    rest = iter(load)
    with lock:
        time.sleep(0.3)
        state = load.state_dict()
        load.stats()
    next(rest)
    for _ in range(3):  # dropped and collected under the lock
        with lock:
            dropped = pixels(map=locked, threads=2, pattern="t-{0..2}.tar")
            time.sleep(0.02)
            del dropped
            gc.collect()
    until(lambda: load._raw.stats()["stages"][1]["waiting_output"] > 0)
    time.sleep(0.2)
    before = time.monotonic()
    with lock, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        next(rest)  # the batch was ready, and makes room for another
        time.sleep(0.2)
        load.close()  # the map waits for the lock: close() gives up
    assert 4 < time.monotonic() - before < 20, time.monotonic() - before
    assert any("still runs" in str(w.message) for w in caught), caught
    until(lambda: threads_of_ours() == 0)
    del state


@tap.test
def the_last_tensor_of_a_loader_may_end_it():
    before = threads_of_ours()
    load = pixels(map=lambda s: s, format="torch", copy=False, threads=3)
    image = next(iter(load))["image"]
    del load
    gc.collect()
    del image
    until(lambda: threads_of_ours() <= before)


def child(code, *args, **more):
    return subprocess.run([sys.executable, "-c", "import sys, os, time, threading, gc\nsys.path[:0] = %r\nimport penstock\n" % sys.path + code,
                           *args], capture_output=True, text=True, timeout=60, **more)


OPEN = """
def slow(sample):
    time.sleep(0.002)
    return sample
load = penstock.Loader("t-{0..2}.tar", batch=4, threads=3, fields={"label": penstock.Int("cls")}, map=slow, order="none", format="numpy")
rest = iter(load)
batch = next(rest)
"""


@tap.test
def a_program_may_end_while_maps_run():
    shards()
    for end in ("", "sys.exit(3)", "raise ValueError('x')", "os._exit(0)", "del load, rest", "load.close()",
                "x = __builtins__; x.kept = load", "threading.Thread(target=lambda: [0 for _ in rest]).start()"):
        ran = child(OPEN + end)
        tap.equal(ran.returncode, {"sys.exit(3)": 3, "raise ValueError('x')": 1}.get(end, 0), end + ran.stderr)
        assert "Fatal" not in ran.stderr and "still runs" not in ran.stderr, ran.stderr


@tap.test
def a_program_ends_though_a_map_never_returns():
    shards()
    ran = child(OPEN.replace("time.sleep(0.002)", "time.sleep(100 if sample['label'] > 3 else 0)").replace("rest)", "rest)\ntime.sleep(0.5)"))
    tap.equal(ran.returncode, 0, ran.stderr)
    assert "a map or source still runs" in ran.stderr, ran.stderr


@tap.test
def a_forked_child_ends_though_its_parents_maps_run():
    shards()
    ran = child(OPEN + """
pid = os.fork()
if pid == 0:
    load.close()
    sys.exit(5)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), sum(len(b["label"]) for b in rest) + 4)
""")
    tap.equal((ran.returncode, ran.stdout), (0, "5 30\n"), ran.stderr)


@tap.test
def ctrl_c_ends_a_wait_for_a_map():
    shards()
    ran = child(OPEN.replace("time.sleep(0.002)", "time.sleep(0 if sample['label'] < 0 else 3)").replace("batch = next(rest)", """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # SIGINT is ignored in background jobs of a shell
threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
before = time.monotonic()
try:
    next(rest)
except KeyboardInterrupt:
    print("interrupted", time.monotonic() - before < 2, flush=True)
os._exit(0)
"""))
    tap.equal(ran.stdout, "interrupted True\n", ran.stderr)


@tap.test
def memory_does_not_grow_with_a_map():
    def keep_nothing(sample, rng):
        return {"image": sample["image"][::-1], "label": sample["label"], "x": rng.random(1000)}

    load = pixels(map=keep_nothing, outputs={"x": penstock.Output((1000,), "f64")}, pattern=shards())
    for _ in range(5):
        list(load)
    before = tap.rss_bytes()
    for _ in range(40):
        list(load)
    grown = tap.rss_bytes() - before
    assert "LD_PRELOAD" in os.environ or grown < 16 << 20, grown  # a sanitizer keeps freed memory


@tap.test
def thread_locals_of_a_map_last_between_calls():
    own, made = threading.local(), []

    def count(sample):
        if not hasattr(own, "n"):
            own.n = 0
            made.append(1)
        own.n += 1
        return sample

    list(pixels(map=count, threads=2, batch=1))
    assert 1 <= len(made) <= 2, made


if __name__ == "__main__":
    tap.main()
