#!/usr/bin/python3
"""Frameworks that are installed take batches in host memory by DLPack; torch's profiler shows ranges."""
import importlib
import os
import subprocess
import sys
import warnings

import tap

# The current versions for Debian 12's Python. torch is Debian's own.
tap.python_environment("jax", ["jax"], ["numpy==2.2.6"], over=tap.DOCS)
tap.python_package()

import numpy

import penstock

FIELDS = {"image": penstock.Image("jpg", size=8), "label": penstock.Int("cls"), "text": penstock.Bytes("txt")}


def loader(**options):
    tap.make_tar("t.tar", [f for i in range(12) for f in (
        ("%02d.jpg" % i, tap.read(tap.PHOTOS[i % len(tap.PHOTOS)])), ("%02d.cls" % i, b"%d" % i), ("%02d.txt" % i, b"%d" % i * i))])
    return penstock.Loader("t.tar", 4, FIELDS, order="none", **options)


def framework(name):
    try:
        return importlib.import_module(name)
    except ImportError as e:
        raise tap.Skip(str(e)) from e


def raises(kind, function, *args, **kwargs):
    try:
        function(*args, **kwargs)
    except kind:
        return
    raise AssertionError("no %s" % kind.__name__)


def reference():
    return numpy.concatenate([numpy.array(b["image"]) for b in loader(format="numpy")])


@tap.test
def torch_takes_batches_without_a_copy():
    torch = framework("torch")
    batch = next(iter(loader()))
    image = torch.from_dlpack(batch["image"])
    tap.equal((image.device.type, image.data_ptr() % 64), ("cpu", 0))
    again = torch.from_dlpack(batch["image"])
    tap.equal(image.data_ptr(), again.data_ptr(), "both tensors have the same memory")
    tap.equal([x for b in loader(format="torch") for x in b["label"].tolist()], list(range(12)))
    raises(ValueError, batch["image"].__dlpack__, stream=1)


@tap.test
def numpy_takes_batches_without_a_copy():
    batch = next(iter(loader()))
    array = numpy.from_dlpack(batch["image"])
    tap.equal(array.__array_interface__["data"][0], numpy.asarray(batch["image"]).__array_interface__["data"][0])
    raises(BufferError, batch["image"].__dlpack__, dl_device=(2, 0))


@tap.test
def jax_takes_batches():
    jax = framework("jax")
    got = [numpy.array(b["image"]) for b in loader(format="jax")]
    assert numpy.array_equal(numpy.concatenate(got), reference())
    labels = [int(x) for b in loader(format="jax", depth=2) for x in jax.jit(lambda y: y + 1)(b["label"])]
    tap.equal(labels, list(range(1, 13)))
    batch = next(iter(loader(format="jax")))
    tap.equal([int(n) for n in batch["text"].offsets], [0, 0, 1, 3, 6])


@tap.test
def cupy_takes_batches():
    cupy = framework("cupy")
    try:
        cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as e:
        raise tap.Skip(str(e)) from e
    got = numpy.concatenate([cupy.asnumpy(b["image"]) for b in loader(format="cupy")])
    assert numpy.array_equal(got, reference())


@tap.test
def torch_profiler_shows_ranges_of_next():
    torch = framework("torch")
    load = loader(format="torch")
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as seen:
        batches = sum(1 for _ in load)
    tap.equal(batches, 3)
    events = {e.key: e for e in seen.key_averages() if e.key.startswith("penstock.")}
    tap.equal(sorted(events), ["penstock.next", "penstock.wait"])
    tap.equal(events["penstock.next"].count, 4, "three batches and the end")
    parents = {e.cpu_parent.name for e in seen.events() if e.name == "penstock.wait"}
    tap.equal(parents, {"penstock.next"})


@tap.test
def the_profiler_flag_of_torch_2_turns_ranges_on():
    torch = framework("torch")
    profiler, module = torch.autograd.profiler, penstock.loader
    if hasattr(profiler, "_is_profiler_enabled"):
        raise tap.Skip("this torch has the flag: the test before this one covers it")
    try:
        module._profiler_asks = module._profiler_look
        profiler._is_profiler_enabled = False
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as seen:
            load = loader(format="torch")
            iterator = iter(load)
            next(iterator)
            assert module._profiler is profiler and module._profiler_asks is None
            profiler._is_profiler_enabled = True
            tap.equal(sum(1 for _ in iterator), 2)
    finally:
        del profiler._is_profiler_enabled
        module._profiler_asks = module._profiler_look
    counts = {e.key: e.count for e in seen.key_averages() if e.key.startswith("penstock.")}
    tap.equal(counts, {"penstock.next": 3, "penstock.wait": 3}, "two batches and the end")


@tap.test
def fields_of_a_batch_are_in_the_order_that_was_given():
    torch = framework("torch")
    fields = {"text": penstock.Bytes("txt"), "label": penstock.Int("cls"),
              "last": penstock.Image("jpg", size=8, layout="channels_last"), "image": penstock.Image("jpg", size=8)}
    loader().close()
    load = penstock.Loader("t.tar", 4, fields, order="none", format="torch")
    for i, batch in enumerate(load):
        tap.equal(list(batch), list(fields))
        tap.equal(batch["label"].tolist(), list(range(4 * i, 4 * i + 4)))
        tap.equal([bytes(x) for x in batch["text"]], [b"%d" % k * k for k in range(4 * i, 4 * i + 4)])
        tap.equal((tuple(batch["last"].shape), tuple(batch["image"].shape)), ((4, 3, 8, 8), (4, 3, 8, 8)))
        assert batch["last"].is_contiguous(memory_format=torch.channels_last)


@tap.test
def a_tensor_holds_its_batch_without_the_batch_object():
    framework("torch")
    load = loader(format="torch", depth=2)
    batches = iter(load)
    held = [next(batches)["label"] for _ in range(2)]
    tap.equal([x.tolist() for x in held], [[0, 1, 2, 3], [4, 5, 6, 7]])
    held.pop(0)
    batch = next(batches)
    label = batch["label"]
    raises(BufferError, batch.release)
    tap.equal((held[0].tolist(), label.tolist()), ([4, 5, 6, 7], [8, 9, 10, 11]))
    del label
    tap.equal(batch.synchronize(), None)  # a batch in host memory has arrived
    batch.release()
    raises(ValueError, batch.synchronize)
    tap.equal(load.stats()["added_batches"], 0)


@tap.test
def autograd_may_hold_more_batches_than_depth():
    torch = framework("torch")
    want = reference()
    loader().close()
    load = penstock.Loader("t.tar", 1, FIELDS, order="none", format="torch", depth=2)
    weight = torch.ones((), requires_grad=True)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        losses = [(batch["image"].float() * weight).square().sum() for batch in load]
    tap.equal(len(losses), 6 * 2)
    tap.equal([str(w.message).startswith("all 2 batches are held") for w in seen], [True], "one warning")
    assert load.stats()["added_batches"] >= 10
    sum(losses).backward()
    assert abs(float(weight.grad) - 2 * float((want.astype("float64") ** 2).sum())) < 1e-3 * float(weight.grad)


@tap.test
def jax_may_run_later_than_the_loop():
    jax = framework("jax")
    loader().close()
    how = {"order": "none", "depth": 2, "repeat": 6}
    want = [float(numpy.square(b["image"].astype("f8")).sum()) for b in penstock.Loader("t.tar", 1, FIELDS, format="numpy", **how)]

    @jax.jit
    def step(weight, x):  # takes longer than a batch
        slow = jax.numpy.full((300, 300), x.ravel()[0])
        return weight + 1, (x * x).sum() + 0 * (slow @ slow @ slow).sum()

    for copy in False, True:
        load = penstock.Loader("t.tar", 1, FIELDS, format="jax", copy=copy, **how)
        weight, losses = jax.numpy.zeros(()), []
        for batch in load:
            weight, loss = step(weight, batch["image"])
            losses.append(loss)
        tap.equal(len(losses), 72)
        assert numpy.allclose(numpy.array(losses), want, rtol=1e-4), (losses, want)
        if copy:
            tap.equal(load.stats()["added_batches"], 0, "copies hold no batch")


@tap.test
def jax_calls_back_while_next_waits():
    jax = framework("jax")
    from jax.experimental import io_callback
    seen = []
    step = jax.jit(lambda y: io_callback(lambda z: seen.append(numpy.array(z).tolist()), None, y, ordered=True))
    loader().close()
    for batch in penstock.Loader("t.tar", 1, FIELDS, order="none", format="jax", depth=2, repeat=4):
        step(batch["label"])
    jax.effects_barrier()
    tap.equal(seen, [[i] for i in range(12)] * 4)


@tap.test
def the_interpreter_ends_while_jax_holds_batches():
    framework("jax")
    loader().close()
    code = ("import penstock, jax\n"
            "step = jax.jit(lambda x: (x @ x.T).sum() + (jax.numpy.full((900, 900), x[0, 0]) @ jax.numpy.ones((900, 900))).sum())\n"
            "load = penstock.Loader('t.tar', 1, penstock.Int('cls', dtype='f32'), format='jax', depth=2, repeat=3)\n"
            "kept = [step(b['cls'].reshape(1, 1)) for b in load]\n"
            "print(len(kept))\n")
    for end in ("", "raise SystemExit(3)\n"):
        r = subprocess.run([sys.executable, "-W", "ignore", "-c", code + end], capture_output=True, text=True, timeout=120)
        tap.equal((r.stdout, r.returncode), ("36\n", 3 if end else 0), r.stderr)


@tap.test
def a_loader_does_not_import_torch():
    loader().close()
    code = ("import sys, penstock\n"
            "print(sum(b.rows for b in penstock.Loader('t.tar', 4, penstock.Int('cls'))), 'torch' in sys.modules)")
    r = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    tap.equal((r.stdout, r.returncode), ("12 False\n", 0), r.stderr)


tap.main()
