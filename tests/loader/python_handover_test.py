#!/usr/bin/python3
"""What frameworks take from a batch in host memory by DLPack, each as it is installed; ranges in torch's profiler."""
import importlib
import os
import subprocess
import sys

import tap

# The versions that are current on Debian 12's Python, beside its own torch.
tap.python_environment("jax", ["jax"], ["jax==0.4.38", "jaxlib==0.4.38", "ml_dtypes==0.5.1", "numpy==2.2.6",
                                        "scipy==1.15.3", "opt_einsum==3.4.0"])
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
def torch_takes_them():
    torch = framework("torch")
    batch = next(iter(loader()))
    image = torch.from_dlpack(batch["image"])
    tap.equal((image.device.type, image.data_ptr() % 64), ("cpu", 0))
    again = torch.from_dlpack(batch["image"])
    tap.equal(image.data_ptr(), again.data_ptr(), "both see one memory")
    tap.equal([x for b in loader(format="torch") for x in b["label"].tolist()], list(range(12)))
    raises(ValueError, batch["image"].__dlpack__, stream=1)


@tap.test
def numpy_takes_them():
    batch = next(iter(loader()))
    array = numpy.from_dlpack(batch["image"])
    tap.equal(array.__array_interface__["data"][0], numpy.asarray(batch["image"]).__array_interface__["data"][0])
    raises(BufferError, batch["image"].__dlpack__, copy=True)
    raises(BufferError, batch["image"].__dlpack__, dl_device=(2, 0))


@tap.test
def jax_takes_them():
    if os.environ.get("LD_PRELOAD"):
        raise tap.Skip("JAX's exceptions do not get on with a sanitizer")
    jax = framework("jax")
    got = [numpy.array(b["image"]) for b in loader(format="jax")]
    assert numpy.array_equal(numpy.concatenate(got), reference())
    labels = [int(x) for b in loader(format="jax", depth=2) for x in jax.jit(lambda y: y + 1)(b["label"])]
    tap.equal(labels, list(range(1, 13)))
    batch = next(iter(loader(format="jax")))
    tap.equal([int(n) for n in batch["text"].offsets], [0, 0, 1, 3, 6])


@tap.test
def cupy_takes_them():
    cupy = framework("cupy")
    try:
        cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as e:
        raise tap.Skip(str(e)) from e
    got = numpy.concatenate([cupy.asnumpy(b["image"]) for b in loader(format="cupy")])
    assert numpy.array_equal(got, reference())


@tap.test
def torch_profiler_shows_next():
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
def torch_is_not_imported_for_it():
    loader().close()
    code = ("import sys, penstock\n"
            "print(sum(b.rows for b in penstock.Loader('t.tar', 4, penstock.Int('cls'))), 'torch' in sys.modules)")
    r = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    tap.equal((r.stdout, r.returncode), ("12 False\n", 0), r.stderr)


tap.main()
