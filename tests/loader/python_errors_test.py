#!/usr/bin/python3
"""What the Python package raises: one class for each cause, with what it is about, and words that Python has."""
import errno
import multiprocessing
import os
import pickle

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
def advice_fits_the_cause():
    image = tap.read(tap.PHOTOS[0])
    tap.make_tar("t.tar", [("%d.%s" % (i, s), data) for i in range(4) for s, data in (("cls", b"1"), ("jpg", image))])
    for fields, says in ((penstock.Image("jgp"), 'has no field .jgp; it has .cls, .jpg; did you mean "jpg"?'),
                         (penstock.Image("png"), 'did you mean "png;jpg"?'),
                         (penstock.Int("class"), 'did you mean "cls"?'),
                         (penstock.Text("caption"), "no sample of this batch has it: check the field's name"),
                         (penstock.Int("jpg"), "no sample of this batch is good: check that the field's kind fits")):
        text = str(failure("t.tar", fields))
        assert text.endswith(says) and "repair" not in text, (says, text)
    tap.make_tar("t.tar", [("a.txt", b"a"), ("b.txt", b"\xff"), ("c.cls", b"1")])
    assert str(failure("t.tar", TEXT)).endswith('; repair the shard, or skip such samples by on_error="skip"')
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


if __name__ == "__main__":
    tap.main()
