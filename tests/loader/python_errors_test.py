#!/usr/bin/python3
"""What the Python package raises: one class for each cause, with what it is about, and words that Python has."""
import errno
import importlib.util
import multiprocessing
import os
import pickle
import sys
import warnings

import python_fixture as fixture
import tap

import penstock


def raised(call, *args, **options):
    try:
        call(*args, **options)
    except Exception as e:
        return e
    raise AssertionError("nothing was raised")


def failure(pattern, fields, **options):
    return raised(lambda: list(penstock.Loader(pattern, **{"batch": 4, "fields": fields, "order": "none", **options})))


def about(error):
    return type(error).__name__, error.errno, error.shard, error.key, error.offset


TEXT = penstock.Text("txt")


@tap.test
def each_cause_has_its_class_and_says_what_it_is_about():
    tap.make_tar("t.tar", [("a.txt", b"a"), ("b.txt", b"\xff"), ("c.cls", b"1")])
    tap.equal(about(failure("t.tar", TEXT)), ("DamagedSampleError", errno.EBADMSG, "t.tar", "b", 1024))
    tap.make_tar("t.tar", [("a.txt", b"a"), ("c.cls", b"1")])
    tap.equal(about(failure("t.tar", TEXT)), ("MissingFieldError", errno.EBADMSG, "t.tar", "c", 1024))
    tap.equal(about(failure(["t.tar", "u.tar"], TEXT)), ("ShardNotFoundError", errno.ENOENT, "u.tar", None, None))
    tap.equal(about(failure("u*.tar", TEXT)), ("ShardNotFoundError", errno.ENOENT, "u*.tar", None, None))
    os.symlink("loop.tar", "loop.tar")
    tap.equal(about(failure("loop.tar", TEXT)), ("ShardReadError", errno.ELOOP, "loop.tar", None, None))
    tap.equal(about(failure("t.tar", TEXT, batch=0)), ("ConfigError", errno.EINVAL, None, None, None))
    tap.make_tar("t.tar", [("a.txt", b"ab")])
    tap.equal(about(failure("t.tar", penstock.Text("txt", pad_to=1))), ("ConfigError", errno.E2BIG, "t.tar", "a", 0))


@tap.test
def a_shard_that_was_replaced_is_a_change():
    tap.make_tar("t.tar", [("%d.txt" % i, b"%d" % i) for i in range(3)])
    tap.run("index", "t.tar")
    loader = penstock.Loader("t.tar", 1, TEXT)
    loader.get([0]).release()
    tap.make_tar("t.tar", [("x%d.txt" % i, b"%d" % i) for i in range(3)])
    kind, number, shard, _, _ = about(raised(loader.get, [1]))
    tap.equal((kind, number, shard), ("ShardChangedError", errno.ESTALE, "t.tar"))


@tap.test
def the_classes_of_before_still_catch():
    tap.make_tar("t.tar", [("a.txt", b"\xff")])
    e = failure("t.tar", TEXT)
    assert isinstance(e, penstock.BadSampleError) and isinstance(e, penstock.Error) and isinstance(e, ValueError)
    e = failure("u.tar", TEXT)
    assert isinstance(e, FileNotFoundError) and isinstance(e, penstock.BadSampleError)
    assert isinstance(failure("t.tar", TEXT, batch=0), ValueError)
    assert issubclass(penstock.ShardDeniedError, PermissionError) and issubclass(penstock.ShardReadError, OSError)


def fail_in_process(name):
    list(penstock.Loader(name, 1, TEXT))


@tap.test
def exceptions_come_whole_out_of_other_processes():
    tap.make_tar("t.tar", [("a.txt", b"\xff")])
    for e in failure("t.tar", TEXT), failure("u.tar", TEXT), failure("t.tar", TEXT, batch=0), penstock.StateError("x"):
        copy = pickle.loads(pickle.dumps(e))
        tap.equal((type(copy), str(copy), about(copy)), (type(e), str(e), about(e)))
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        tap.equal(about(raised(pool.apply, fail_in_process, ("t.tar",))), ("DamagedSampleError", errno.EBADMSG, "t.tar", "a", 0))
        tap.equal(about(raised(pool.apply, fail_in_process, ("u.tar",))), ("ShardNotFoundError", errno.ENOENT, "u.tar", None, None))


@tap.test
def a_torch_worker_passes_the_class_on():
    import torch

    class Rows(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter(penstock.Loader("t.tar", 1, TEXT))

    tap.make_tar("t.tar", [("a.txt", b"\xff")])
    e = raised(list, torch.utils.data.DataLoader(Rows(), batch_size=None, num_workers=1))
    assert isinstance(e, penstock.DamagedSampleError) and "not UTF-8" in str(e), repr(e)


@tap.test
def a_missing_library_is_reported_when_the_loader_is_made():
    tap.make_tar("t.tar", [("a.txt", b"a")])
    finds = importlib.util.find_spec
    try:
        for name, option, says in (("numpy", {"format": "numpy"}, "apt install python3-numpy"), ("torch", {"format": "torch"}, "apt install python3-torch"),
                                   ("jax", {"format": "jax"}, "-m pip install jax"), ("cupy", {"format": "cupy"}, "-m pip install cupy-cuda12x"),
                                   ("numpy", {"map": lambda sample: sample}, "a map needs the Python package numpy")):
            here = sys.modules.pop(name, None)
            importlib.util.find_spec = lambda asked: None if asked == name else finds(asked)
            e = raised(penstock.Loader, "t.tar", 1, TEXT, **option)
            if here:
                sys.modules[name] = here
            assert isinstance(e, ModuleNotFoundError) and e.name == name, repr(e)
            assert says in str(e) and "(%s)" % sys.executable in str(e) and "pip install" in str(e), e
    finally:
        importlib.util.find_spec = finds


@tap.test
def a_mount_without_a_syslog_is_no_python_warning():
    with open("program", "w") as f:
        f.write("#!/bin/bash\n"
                "echo 'penstock: syslog is not running, so nothing is logged; use --log FILE, or mount with -f to log to stderr' >&2\n"
                "echo 'penstock mount: warning: the cache is small' >&2\n"
                "printf '/place\\0' >&${2#--owner=}\n")
    os.chmod("program", 0o755)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with penstock.remote._run([os.path.abspath("program"), "mount"], [], ["http://host/"], []) as place:
            tap.equal(os.fspath(place), "/place")
    tap.equal([str(w.message) for w in caught], ["the cache is small"])


@tap.test
def advice_fits_the_cause():
    image = tap.read(tap.PHOTOS[0])
    tap.make_tar("t.tar", [("%d.%s" % (i, s), data) for i in range(4) for s, data in (("cls", b"1"), ("jpg", image))])
    for fields, says in ((penstock.Image("jgp"), 'has no field .jgp; it has .cls, .jpg; did you mean "jpg"?'),
                         (penstock.Image("png"), 'did you mean "png;jpg"?'),
                         (penstock.Int("class"), 'did you mean "cls"?'),
                         (penstock.Text("caption"), "no sample of this batch has it: check the field's name"),
                         ([penstock.Image("webm"), penstock.Int("cls")], "no sample of this batch has it: check the field's name"),
                         (penstock.Int("jpg"), "no sample of this batch is good: check that the field's kind fits")):
        text = str(failure("t.tar", fields))
        assert text.endswith(says) and "repair" not in text, (says, text)
    tap.make_tar("t.tar", [("%d.jpg" % i, image) for i in range(4)])
    for label in penstock.Int("cls"), penstock.Float("cls"):
        text = str(failure("t.tar", {"image": penstock.Image("jpg;jpeg"), "label": label}))
        assert text.endswith("these shards have no labels: penstock-loader pack --classes makes labels from folders"), text
        assert "default" not in text, text
    tap.make_tar("t.tar", [("0.jpg", image), ("0.cls", b"1"), ("1.cls", b"1")])
    text = str(failure("t.tar", penstock.Image("jpg")))  # images cannot be optional
    assert text.endswith('; skip such samples with on_error="skip"') and "optional" not in text, text
    tap.make_tar("t.tar", [("0.txt", b"a"), ("1.txt", b"b")])
    assert "are the default fields" in str(failure("t.tar", None)), failure("t.tar", None)
    assert "default" not in str(failure("t.tar", {"image": penstock.Image(), "label": penstock.Int("cls")}))
    tap.make_tar("t.tar", [("a.txt", b"a"), ("b.txt", b"\xff"), ("c.cls", b"1")])
    assert str(failure("t.tar", TEXT)).endswith('or skip such samples with on_error="skip"')
    tap.make_tar("t.tar", [("a.cls", b"1"), ("b.txt", b"\xff")])  # b has the field, but is damaged
    assert "make the field optional" in str(failure("t.tar", TEXT)), failure("t.tar", TEXT)
    tap.make_tar("t.tar", [("a.txt", b"a"), ("c.cls", b"1")])
    assert "make the field optional" in str(failure("t.tar", TEXT)), failure("t.tar", TEXT)
    with open("no.tar", "wb") as f:
        f.write(b"print(1)\n" * 200)
    assert "; is this file a shard?" in str(failure("no.tar", TEXT)), failure("no.tar", TEXT)
    tap.make_tar("t.tar", [("a.txt", b"a"), ("b.txt", b"b")])
    text = str(failure("t.tar", TEXT, map=lambda sample: 1 / 0))
    assert "ZeroDivisionError" in text and "repair" not in text and "kind" not in text, text


@tap.test
def a_stop_iteration_of_the_callers_code_does_not_end_the_epoch():
    def stopping(*_):
        raise StopIteration

    fixture.shards()
    for options in (dict(transform=stopping), dict(collate=stopping), dict(map_factory=stopping)):
        e = raised(list, fixture.loader("t-{0..2}.tar", format="numpy", **options))
        assert type(e) is RuntimeError and isinstance(e.__cause__, StopIteration), (options, e)


@tap.test
def a_mistake_is_answered_with_what_to_write():
    import numpy

    pattern = fixture.shards(1)
    open_ = lambda **options: fixture.loader(pattern, **options)
    batch = next(iter(open_(format="numpy", copy=True)))
    for call, kind, says in (
        (lambda: batch["imgae"], KeyError, "the batch has no 'imgae', only image, label, text; did you mean \"image\"?"),
        (lambda: batch[0], KeyError, "a batch is a dict of fields: batch['image'][0] is a row"),
        (lambda: batch.image, AttributeError, "a batch is a dict of fields: write batch['image']"),
        (lambda: batch.imago, AttributeError, "'Batch' object has no attribute 'imago'"),
        (lambda: open_()[0], TypeError, "write loader.get([0])"),
        (lambda: len(open_().dataset), AttributeError, "for len(loader.dataset) write loader.samples()"),
        (lambda: open_().get(5), TypeError, "get: a list of sample numbers is needed, as [5], not 5"),
        (lambda: open_().get([0, -1]), IndexError, "sample -1: samples are counted from 0"),
        (lambda: penstock.Image("jpg", sizee=8), TypeError, 'Image() has no option "sizee"; did you mean "size"?'),
        (lambda: penstock.Image("jpg", flip=1), TypeError, 'Image() has no option "flip"; did you mean "hflip"?'),
        (lambda: penstock.Int("cls", zzz=1), TypeError, 'Int() has no option "zzz"; help(penstock.Int) lists them'),
        (lambda: open_(fields=penstock.Image("jpg", resize=9)), penstock.ConfigError,
         'resize has no effect: take crop="center" or "random_crop"'),
        (lambda: open_(fields={"image": "jpg"}), TypeError, "as Image('jpg'), Int('jpg') or Bytes('jpg'), not 'jpg'"),
        (lambda: open_(order="shuffle"), penstock.ConfigError, 'did you mean "window"?'),
        (lambda: open_(order="random"), penstock.ConfigError, 'did you mean "permutation"?'),
        (lambda: open_(format="pt"), penstock.ConfigError, 'did you mean "torch"?'),
        (lambda: open_(fields=penstock.Image("jpg", crop="centre")), penstock.ConfigError, 'did you mean "center"?'),
        (lambda: open_(fields=penstock.Image("jpg", dtype="float")).close() or open_(fields=penstock.Image("jpg", dtype="f23")),
         penstock.ConfigError, "dtype: 'f23' is none of"),
        (lambda: open_(state=open_(seed=4).state_dict()), penstock.StateError, "open it with seed=4"),
        (lambda: open_(state=open_(order="none").state_dict()), penstock.StateError, 'open it with order="none"'),
    ):
        e = raised(call)
        assert isinstance(e, kind) and says in (e.args[0] if kind is KeyError else str(e)), (says, e)
    assert not hasattr(batch, "__deepcopy__") and dict(batch).keys() == batch.keys()


@tap.test
def dtypes_and_numbers_are_taken_from_frameworks():
    import numpy
    import torch

    pattern = fixture.shards(1)
    tap.run("index", "t-0.tar")
    for dtype, word in ((torch.float16, "f16"), ("float16", "f16"), (numpy.float32, "f32"), (numpy.dtype("u1"), "u8"), (float, "f32"),
                        ("uint8", "u8"), (torch.bfloat16, "bf16"), ("half", "f16"), ("bf16", "bf16")):
        spec = fixture.loader(pattern, fields={"x": penstock.Image("jpg", size=8, dtype=dtype)}).element_spec["x"]
        tap.equal(spec.dtype, word, dtype)
    tap.equal(fixture.loader(pattern, fields={"x": penstock.Int("cls", dtype=torch.int32)}).element_spec["x"].dtype, "i32")
    loader = fixture.loader(pattern)
    for numbers in [3, 4], torch.tensor([3, 4]), numpy.array([3, 4]), range(3, 5):
        tap.equal(fixture.labels([loader.get(numbers)]), [3, 4], numbers)


@tap.test
def a_writer_keeps_the_cause_of_each_class():
    import json

    class Own(ValueError):
        def __init__(self, a, b):
            super().__init__("%s and %s" % (a, b))

    def encoder(suffix, value):
        if suffix == "own":
            raise Own(1, 2)
        return json.loads(value) if suffix == "js" else NotImplemented

    for sample, kind, cause in (({"txt": "\ud83d"}, ValueError, UnicodeEncodeError), ({"own": 1}, ValueError, Own),
                                ({"js": "{"}, ValueError, json.JSONDecodeError), ({"foo": object()}, TypeError, TypeError)):
        with penstock.ShardWriter("w-%06d.tar", encoder=encoder, overwrite=True) as sink:
            e = raised(sink.write, {"__key__": "k", **sample})
            sink.write({"__key__": "k", "txt": "x"})
        assert type(e) is kind and type(e.__cause__) is cause, (sample, e)
        assert "write: sample 'k': .%s: " % next(iter(sample)) in str(e) and str(e.__cause__) in str(e), e


if __name__ == "__main__":
    tap.main()
