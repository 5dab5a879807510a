#!/usr/bin/python3
"""The Python package's tensors on a GPU, or on the mock as far as that goes; device_cuda.sh runs this file."""
import ctypes
import importlib
import os

import tap

tap.python_package()  # or SKIP

import numpy

import penstock

FIELDS = {"data": penstock.Bytes("bin"), "label": penstock.Int("cls")}


class DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device", ctypes.c_int32 * 2), ("ndim", ctypes.c_int32),
                ("dtype", ctypes.c_uint8 * 4), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("offset", ctypes.c_uint64)]


def raises(kind, function, *args, **kwargs):
    try:
        function(*args, **kwargs)
    except kind:
        return
    raise AssertionError("%s was not raised" % kind.__name__)


def dltensor(capsule):
    """The capsule's tensor, which is valid as long as the capsule."""
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.POINTER(DLTensor), [ctypes.py_object, ctypes.c_char_p]
    return get(capsule, b"dltensor").contents


def loader(**options):
    tap.make_tar("t.tar", [f for i in range(40) for f in (("%02d.bin" % i, b"%d" % i * i), ("%02d.cls" % i, b"%d" % i))])
    return penstock.Loader("t.tar", batch=8, fields=FIELDS, order="none", device="cuda", **options)


def framework(name):
    """Imports a framework, if there is a GPU: frameworks cannot use the mock's memory."""
    if not os.environ.get("PENSTOCK_TEST_GPU"):
        raise tap.Skip("no GPU")
    try:
        return importlib.import_module(name)
    except ImportError as e:
        raise tap.Skip(str(e)) from e


@tap.test
def tensors_report_their_device_and_memory():
    batch = next(iter(loader()))
    label = batch["label"]
    tap.equal(label.__dlpack_device__(), (2, 0))
    capsules = label.__dlpack__(stream=2), label.__dlpack__(dl_device=(1, 0))
    t, host = map(dltensor, capsules)
    tap.equal(tuple(t.device), (2, 0))
    tap.equal((t.ndim, t.shape[0], t.strides[0]), (1, 8, 1))
    tap.equal(tuple(host.device), (1, 0))
    assert t.data != host.data
    interface = label.__cuda_array_interface__
    tap.equal(interface["data"][0], t.data)
    tap.equal(interface["stream"], 1)
    tap.equal(label.__array_interface__["data"][0], host.data)


@tap.test
def host_arrays_have_the_values_of_device_batches():
    got = [(int(x), row) for b in loader(format="numpy") for x, row in zip(b["label"], b["data"])]
    tap.equal(got, [(i, b"%d" % i * i) for i in range(40)])
    tap.equal([key for b in loader() for key in b["__key__"]], ["%02d" % i for i in range(40)])


@tap.test
def device_tensors_have_the_values_of_the_batch():
    load = loader()
    for n, batch in enumerate(load):
        capsule = batch["label"].__dlpack__(stream=1)
        t = dltensor(capsule)
        batch.synchronize()
        if os.environ.get("PENSTOCK_TEST_GPU"):  # a GPU's memory cannot be read from here
            import torch

            tap.equal(torch.from_dlpack(batch["label"]).cpu().tolist(), list(range(8 * n, 8 * n + 8)))
            continue
        seen = numpy.ctypeslib.as_array(ctypes.cast(t.data, ctypes.POINTER(ctypes.c_int64)), (8,))  # the mock's memory
        tap.equal(seen.tolist(), list(range(8 * n, 8 * n + 8)))
        del batch, capsule


@tap.test
def record_stream_takes_numbers_and_stream_objects():
    class Torch:
        cuda_stream = 1

    class CuPy:
        ptr = 2

    batch = next(iter(loader()))
    for stream in (1, 2, Torch(), CuPy()):
        batch.record_stream(stream)
    for wrong in ("x", None, 1.5):
        raises(TypeError, batch.record_stream, wrong)
    raises(ValueError, batch["label"].__dlpack__, stream=0)
    raises(BufferError, batch["label"].__dlpack__, dl_device=(2, 1))
    batch["label"].__dlpack__(stream=-1)


@tap.test
def batches_return_to_the_loader_after_use():
    load = loader(depth=2, epochs=20)
    for _ in range(20):
        for batch in load:
            batch["label"].__dlpack__(stream=1)
    tap.equal(load.stats()["batches"], 100)
    assert load.stats()["copied_bytes"] > 0


@tap.test
def jpegs_are_decoded_on_the_device():
    folder = os.path.join(os.environ["top_srcdir"], "tests/data/photos")
    photos = [tap.read(os.path.join(folder, name)) for name in sorted(os.listdir(folder)) if name.endswith(".jpg")]
    tap.make_tar("p.tar", [("%02d.jpg" % i, photo) for i, photo in enumerate(photos)])
    options = {"batch": 4, "fields": {"image": penstock.Image("jpg", size=32)}, "order": "none", "device": "cuda"}
    try:
        load = penstock.Loader("p.tar", gpu_decode=0.5, **options)
    except OSError as error:
        if not os.environ.get("PENSTOCK_TEST_GPU") or "nvJPEG" not in str(error):
            raise
        raise tap.Skip(str(error))
    for batch in load:
        tap.equal(batch["image"].shape, (4, 3, 32, 32))
        batch.synchronize()
    stats = load.stats()["gpu_decode"]
    tap.equal(stats["share"], 0.5)
    assert stats["engine_images"] + stats["hybrid_images"] > 0 and stats["cpu_images"] > 0, stats
    automatic = penstock.Loader("p.tar", gpu_decode="auto", **options)
    tap.equal(len(list(next(iter(automatic))["image"].shape)), 4)
    automatic.load_state_dict(load.state_dict())
    tap.equal(automatic.stats()["gpu_decode"]["share"], 0.5)
    raises(ValueError, penstock.Loader, "p.tar", gpu_decode=2, **options)
    raises((TypeError, ValueError), penstock.Loader, "p.tar", gpu_decode="much", **options)


def doubled_on_a_stream(load, stream, take):
    """All labels times two, computed by a framework on a stream of its own while the loader continues."""
    got = []
    for batch in load:
        with stream:
            got.append(take(batch["label"]) * 2)
        del batch
    return [int(x) for b in got for x in b]


@tap.test
def torch_waits_on_its_own_stream():
    torch = framework("torch")
    if not torch.cuda.is_available():
        raise tap.Skip("this torch has no CUDA")
    stream = torch.cuda.Stream()
    tap.equal(doubled_on_a_stream(loader(depth=2), torch.cuda.stream(stream), torch.from_dlpack),
              [2 * i for i in range(40)])
    kept = [b["label"] for b in loader(format="torch", copy=True, depth=2)]
    tap.equal([int(x) for t in kept for x in t], list(range(40)))
    host = torch.from_dlpack(numpy.asarray(next(iter(loader()))["label"]))
    assert host.is_pinned(), "host memory is page-locked, and torch reports it as such"


@tap.test
def cupy_waits_on_its_own_stream():
    cupy = framework("cupy")
    tap.equal(doubled_on_a_stream(loader(depth=2), cupy.cuda.Stream(non_blocking=True), cupy.from_dlpack),
              [2 * i for i in range(40)])


@tap.test
def jax_reads_device_batches():
    jax = framework("jax")
    if jax.default_backend() != "gpu":
        raise tap.Skip("this JAX has no GPU")
    got = [int(x) for b in loader(format="jax", depth=2) for x in jax.block_until_ready(b["label"] * 2)]
    tap.equal(got, [2 * i for i in range(40)])


def picture(n):
    return b"P6 24 20 255\n" + bytes((n * 31 + k * 7 + k // 24) % 256 for k in range(24 * 20 * 3))


def pictures(**options):
    tap.make_tar("p.tar", [("%02d.ppm" % i, picture(i)) for i in range(16)])
    field = penstock.Image("ppm", size=16, blur=0.5, jitter=0.5, brightness=0.4, blur_size=3)
    return penstock.Loader("p.tar", batch=8, fields={"x": field}, seed=3, **options)


@tap.test
def images_are_finished_on_the_device():
    load = pictures(device="cuda")
    want = [batch["x"] for batch in pictures(format="numpy", copy=True)]
    for n, batch in enumerate(load):
        x = batch["x"]
        raises(BufferError, lambda: x.__array_interface__)
        raises(BufferError, x.tobytes)
        raises(BufferError, x.__dlpack__, dl_device=(1, 0))
        batch.synchronize()
        if os.environ.get("PENSTOCK_TEST_GPU"):
            import torch

            seen = torch.from_dlpack(x).cpu().numpy()
        else:
            address = x.__cuda_array_interface__["data"][0]
            seen = numpy.ctypeslib.as_array(ctypes.cast(address, ctypes.POINTER(ctypes.c_float)), x.shape)
        assert numpy.array_equal(seen, want[n])
    tap.equal(load.stats()["pixels"], "cuda")


@tap.test
def images_are_finished_on_the_cpu_if_asked_for():
    for options in {"format": "numpy"}, {"device_pixels": "off"}:
        load = pictures(device="cuda", **options)
        batch = next(iter(load))
        tap.equal(numpy.asarray(batch["x"]).shape, (8, 3, 16, 16))
        tap.equal(load.stats()["pixels"], "cpu")


tap.main()
