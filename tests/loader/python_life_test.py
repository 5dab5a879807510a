#!/usr/bin/python3
"""The Python package: lifetimes of loaders, batches and tensors; processes and threads; errors in a program."""
import ctypes
import gc
import gzip
import io
import json
import multiprocessing
import os
import pickle
import resource
import signal
import subprocess
import sys
import threading
import time
import warnings

import tap

tap.python_package()  # or SKIP

import numpy
import torch

import penstock
from python_fixture import labels, loader, shards


@tap.test
def a_state_after_an_epoch_resumes_with_the_next():
    pattern = shards()
    load = loader(pattern)
    epochs = [labels(load) for _ in range(3)]
    load = loader(pattern)
    tap.equal(labels(load), epochs[0])
    state = load.state_dict()
    tap.equal(state["epoch"], 1)
    other = loader(pattern, state=state)
    tap.equal([labels(other), labels(other)], epochs[1:])
    load.load_state_dict(state)
    tap.equal([labels(load), labels(load)], epochs[1:])


@tap.test
def a_tensor_outlives_its_loader_and_a_copy_holds_no_batch():
    pattern = shards()
    load = loader(pattern, format="torch")
    first = next(iter(load))["image"]
    want = first.clone()
    del load
    gc.collect()
    other = loader(pattern, format="torch")
    for _ in other:
        pass
    assert torch.equal(first, want)
    kept = [b["image"] for b in loader(pattern, format="torch", copy=True, depth=2)]
    tap.equal(len(kept), 8)
    assert torch.equal(kept[0], want)


def warned(load):
    """All batches of an epoch, and the texts of the warnings."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        batches = list(load)
    return batches, [str(w.message) for w in seen]


@tap.test
def more_batches_than_depth_may_be_held():
    pattern = shards()
    want = [(b.index, labels([b])) for b in loader(pattern, seed=3)]
    for format in (None, "numpy", "torch"):
        load = loader(pattern, seed=3, depth=2, format=format)
        batches, texts = warned(load)
        tap.equal([(b.index, labels([b])) for b in batches], want)
        tap.equal((len(texts), load.stats()["added_batches"] >= len(want) - 2), (1, True), "one warning")
        assert texts[0].startswith("all 2 batches are held (the oldest, batch 0 of epoch 0") and "copy=True" in texts[0], texts
        tap.equal(warned(load)[1], [], "in the second epoch there are enough batches")
    tap.equal([i for _, i in zip(loader(pattern), range(3))], [0, 1, 2])


@tap.test
def held_batches_are_limited_by_the_budget():
    pattern = shards()
    load = penstock.Loader(pattern, 4, [penstock.Image("jpg", 256)], depth=2, memory_budget="40M", order="none")
    epoch, held = iter(load), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            while True:
                held.append(next(epoch))
        except penstock.BatchesHeldError as e:
            text = str(e)
    assert 2 < len(held) < 7, len(held)
    for part in ("all %d batches are held, the oldest (batch 0 of epoch 0) by 2" % len(held), "copy=True", "memory_budget of 40 MiB"):
        assert part in text, text
    tap.equal(held[0].index, 0)
    del held[0]
    tap.equal(next(epoch).index, len(held) + 1, "after a release the loader continues")
    view = held[0]["jpg"]
    try:
        held[0].release()
        raise AssertionError("a batch was released while a tensor was in use")
    except BufferError:
        pass
    tap.equal(view.shape, (4, 3, 256, 256))
    tap.make_tar("large.tar", [("%d.bin" % i, bytes(1 << 20)) for i in range(64)])
    load = penstock.Loader("large.tar", 1, penstock.Bytes("bin"), depth=2, memory_budget="16M", order="none")
    held = []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for batch in load:
                held.append(batch)
        raise AssertionError("a budget of 16 MiB held %d MiB" % len(held))
    except penstock.BatchesHeldError:
        assert 2 <= len(held) < 16, len(held)
    budget = penstock.Budget("24M")
    load = penstock.Loader(pattern, 4, [penstock.Image("jpg", 256)], depth=2, memory_budget="40M", budget=budget)
    try:
        warned(load)
        raise AssertionError("the loader went beyond the budget")
    except penstock.BatchesHeldError as e:
        assert "budget" in str(e), e
    load.close()
    del load
    tap.equal(budget.used, 0)


@tap.test
def next_waits_for_batches_that_are_released_meanwhile():
    load = loader(depth=2)
    epoch = iter(load)
    held = [next(epoch), next(epoch)]
    timer = threading.Timer(0.03, held.clear)
    timer.start()
    tap.equal(next(epoch).index, 2)
    timer.join()
    tap.equal(load.stats()["added_batches"], 0)
    # Each batch is held several times. The holds end one at a time, each before next() gives up.
    held = [[b["image"], b["label"], b] for b in (next(epoch), next(epoch))]
    del held[0][2], held[1][2]

    def slowly():
        for _ in range(4):
            time.sleep(0.06)
            held[-1].pop()
            if not held[-1]:
                held.pop()

    thread = threading.Thread(target=slowly)
    thread.start()
    tap.equal(next(epoch).index, 5)
    thread.join()
    tap.equal(load.stats()["added_batches"], 0, "no batch is added while holds become fewer")


@tap.test
def a_consumer_may_release_a_batch_without_the_gil():
    load = loader(depth=2)
    epoch = iter(load)
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    rename = ctypes.pythonapi.PyCapsule_SetName
    rename.argtypes = [ctypes.py_object, ctypes.c_char_p]
    managed = []
    for _ in range(2):
        capsule = next(epoch)["label"].__dlpack__()
        managed.append(pointer(capsule, b"dltensor"))
        rename(capsule, b"used_dltensor")
    del capsule
    # struct DLManagedTensor: the deleter is its last member. CFUNCTYPE calls without the GIL, as XLA's
    # threads do.
    deleters = [ctypes.CFUNCTYPE(None, ctypes.c_void_p)(ctypes.c_void_p.from_address(m + 56).value) for m in managed]
    lock = threading.Lock()

    def let_go():
        with lock:  # the consumer has the lock while it is in next()
            deleters[0](managed[0])

    thread = threading.Thread(target=let_go)
    with lock:
        thread.start()
        tap.equal(next(epoch).index, 2)
    thread.join()
    tap.equal(load.stats()["added_batches"], 1, "a batch is added if only the consumer could end the wait")
    load.close()
    deleters[1](managed[1])


@tap.test
def batches_with_copy_hold_no_memory_of_the_loader():
    pattern = shards()
    want = [(b.index, labels([b]), [str(k) for k in b["__key__"]], [bytes(x) for x in b["text"]])
            for b in loader(pattern, format="numpy")]
    for format in ("numpy", "torch"):
        load = loader(pattern, format=format, copy=True, depth=2)
        batches, texts = warned(load)
        tap.equal([(b.index, labels([b]), [str(k) for k in b["__key__"]], [bytes(x) for x in b["text"]]) for b in batches], want)
        tap.equal((texts, load.stats()["added_batches"]), ([], 0))
        tap.equal([int(x) for b in batches for x in b["__valid__"]], [1] * 30)
        batches[0].release()
    tap.make_tar("bad.tar", [("a.cls", b"1"), ("b.cls", b"x"), ("c.cls", b"3")])
    batch = next(iter(penstock.Loader("bad.tar", 3, penstock.Int("cls"), on_error="skip", format="numpy", copy=True, order="none")))
    tap.equal((batch.bad, [b["row"] for b in batch.bad_samples()], batch["__valid__"].tolist()), (1, [1], [1, 0, 1]))


@tap.test
def a_state_resumes_as_json_and_a_loader_by_pickle():
    pattern = shards()
    load = loader(pattern, format="numpy", seed=3)
    epoch = iter(load)
    for _ in range(3):
        next(epoch)
    state = load.state_dict()
    rest = [(b.index, labels([b])) for b in epoch]
    json.dumps(state)
    again = loader(pattern, format="numpy", seed=3)
    again.load_state_dict(json.loads(json.dumps(state)))
    tap.equal([(b.index, labels([b])) for b in again], rest)
    fresh = loader(pattern, format="numpy", seed=3, state=state, threads=2)
    tap.equal([(b.index, labels([b])) for b in fresh], rest)
    tap.equal(labels(fresh), labels(load), "both loaders continue with the next epoch")
    half = iter(again)
    next(half)
    clone = pickle.loads(pickle.dumps(again))
    tap.equal([labels([b]) for b in clone], [labels([b]) for b in half])
    for bad in ({}, {"version": 1, "epoch": 0, "state": "AAAA"}, {"version": 1, "epoch": 0, "state": "%"}, 7):
        try:
            again.load_state_dict(bad)
            raise AssertionError("%r was accepted" % bad)
        except penstock.StateError:
            pass
    try:
        loader(pattern, seed=4).load_state_dict(state)
        raise AssertionError("a state of another seed was accepted")
    except penstock.StateError as e:
        assert "seed" in str(e), e


@tap.test
def an_epoch_that_is_left_is_followed_by_the_next():
    load = loader(format="numpy")
    for batch in load:
        break
    tap.equal(batch.epoch, 0)
    del batch
    old = iter(load)
    tap.equal(next(old).epoch, 1)
    new = iter(load)
    tap.equal((next(new).epoch, next(new).index), (2, 1))
    try:
        next(old)
        raise AssertionError("an old iterator continued")
    except RuntimeError as e:
        assert "no longer valid" in str(e), e


@tap.test
def peek_and_element_spec_use_up_no_batch():
    pattern = shards()
    want = [[(b.epoch, b.index, labels([b])) for b in load] for load in [loader(pattern, seed=3)] for _ in range(2)]
    load = loader(pattern, seed=3, format="numpy", copy=True)
    tap.equal(load.element_spec, {"image": ((4, 3, 32, 32), "f32"), "label": ((4,), "i64"), "text": ((4, None), "u8")})
    tap.equal(labels([load.peek()]), want[0][0][2])
    seen = []
    for batch in load:
        seen.append((batch.epoch, batch.index, labels([batch])))
        if len(seen) == 3:
            tap.equal(labels([load.peek()]), want[0][3][2], "peek() gives the next batch")
            state = load.state_dict()
    tap.equal(seen, want[0])
    tap.equal(labels([load.peek()]), want[1][0][2], "after an epoch peek() gives the next one's first batch")
    tap.equal([(b.epoch, b.index, labels([b])) for b in load], want[1])
    again = loader(pattern, seed=3, state=state)
    tap.equal(labels([again.peek()]), want[0][3][2])
    tap.equal([(b.epoch, b.index, labels([b])) for b in again], want[0][3:])
    for i in range(0, 3):
        tap.equal(tap.run("index", "t-%d.tar" % i).returncode, 0)
    left = loader(pattern, seed=3)
    for _ in left:
        break
    state = left.state_dict()
    tap.equal(labels([left.peek()]), want[1][0][2], "an epoch whose iterator is gone does not continue")
    tap.equal(left.state_dict(), state, "peek() does not change the state")
    last = loader(pattern, seed=3, epochs=1)
    tap.equal([(b.epoch, b.index, labels([b])) for b in last], want[0])
    tap.equal(last.peek(), None)
    last = penstock.Image("jpg", size=(8, 16), layout="channels_last")
    tap.equal(loader(pattern, fields={"image": last}).element_spec["image"].shape, (4, 3, 8, 16))
    padded = loader(pattern, fields={"text": penstock.Bytes("txt", pad_to="longest")}).element_spec
    tap.equal((padded["text"].shape, padded["text:mask"].shape, padded["text:lengths"].shape), ((4, None), (4, None), (4,)))
    fed = loader("t-{0..2}.tar", order=iter([5, 6, 7, 8, 9]), batch=2)
    tap.equal(fed.element_spec["label"], penstock.Spec((2,), "i64"))
    try:
        fed.peek()
        raise AssertionError("peek() of an iterator was accepted")
    except ValueError as e:
        assert "element_spec" in str(e), e
    tap.equal(labels(fed), [5, 6, 7, 8, 9])


@tap.test
def leaving_an_epoch_after_one_batch_warns():
    load = loader(format="numpy")
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        next(iter(load))
        next(iter(load))
        next(iter(load))
    tap.equal([str(w.message).startswith("epoch 0 was left after one batch, and epoch 1 begins; peek()") for w in seen], [True])
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        load = loader(format="numpy", batch=100)
        for _ in range(2):
            tap.equal(len(list(load)), 1, "an epoch of one batch")
        load = loader(format="numpy")
        next(iter(load))
        load.set_epoch(0)
        for _ in load:
            pass
    tap.equal([str(w.message) for w in seen], [])


def npy(array):
    file = io.BytesIO()
    numpy.save(file, array)
    return file.getvalue()


@tap.test
def ragged_rows_become_lists_and_padded_and_nested_tensors():
    fields = {"tokens": penstock.Array("npy", (0,), dtype="i32"), "text": penstock.Text("txt"), "raw": penstock.Bytes("bin")}
    tap.make_tar("t.tar", [f for i in range(3) for f in (
        ("%d.npy" % i, npy(numpy.arange(i + 1, dtype="i4"))), ("%d.txt" % i, b"%d" % i * i), ("%d.bin" % i, b"\0" * i))])
    for format in (None, "numpy", "torch"):
        for copy in (False, True):
            batch = next(iter(penstock.Loader("t.tar", 3, fields, order="none", format=format, copy=copy)))
            tokens = batch["tokens"]
            tap.equal((tokens.to_list(), batch["text"].to_list(), batch["raw"].to_list()),
                      ([[0], [0, 1], [0, 1, 2]], ["", "1", "22"], [b"", b"\0", b"\0\0"]))
            tap.equal(str(tokens[2].dtype).replace("torch.", ""), str(numpy.asarray(tokens.values).dtype))
            tap.equal(tokens.to_padded(7).tolist(), [[0, 7, 7], [0, 1, 7], [0, 1, 2]])
            tap.equal(tokens.to_padded(length=2).tolist(), [[0, 0], [0, 1], [0, 1]])
            tap.equal([row.tolist() for row in tokens.to_nested().unbind()], [[0], [0, 1], [0, 1, 2]])
    tap.make_tar("j.tar", [("a.json", b'{"x": 1}')])
    tap.equal(next(iter(penstock.Loader("j.tar", 1, {"meta": penstock.Json("json")}, format="numpy")))["meta"][0], b'{"x": 1}')
    text = repr(next(iter(loader(format="torch"))))
    assert text.startswith("penstock.Batch(epoch 0, index 0: image (4, 3, 32, 32) float32, label (4,) int64, text"), text


@tap.test
def a_dataloader_around_a_loader_fails_with_one_clear_line():
    tap.make_tar("t.tar", [("a.cls", b"1"), ("b.cls", b"2")])
    for indexed in (False, True):
        if indexed:
            tap.equal(tap.run("index", "t.tar").returncode, 0)
        for shuffle in (False, True):
            load = penstock.Loader("t.tar", 2, penstock.Int("cls"), format="torch")
            try:
                list(torch.utils.data.DataLoader(load, shuffle=shuffle))
                assert False, "it worked"
            except TypeError as e:
                assert str(e).startswith("the loader is the DataLoader: iterate"), e
    tap.equal((len(load), [batch.rows for batch in load]), (1, [2]))
    assert "DataLoader" in penstock.Loader.__doc__


def child_of_fork(load, queue):
    try:
        next(iter(load))
        queue.put("a batch")
    except Exception as e:
        queue.put(str(e))


def child_of_spawn(load, queue):
    queue.put(labels(load))


@tap.test
def a_forked_loader_is_refused_and_a_spawned_one_works():
    load = loader()
    want = labels(loader("t-{0..2}.tar"))
    for method, child in ("fork", child_of_fork), ("spawn", child_of_spawn):
        if method == "fork" and not tap.forked_may_start_threads():
            continue
        context = multiprocessing.get_context(method)
        queue = context.Queue()
        process = context.Process(target=child, args=(load, queue))
        process.start()
        answer = queue.get(timeout=240)  # the child imports torch, while other tests run
        process.join(60)
        tap.equal(process.exitcode, 0, method)
        if method == "fork":
            assert "process" in answer, answer
        else:
            tap.equal(answer, want)
    tap.equal(labels(load), want, "the parent's loader continues")


@tap.test
def the_interpreter_ends_while_a_loader_reads():
    shards()
    code = ("import penstock, torch\n"
            "load = penstock.Loader('t-{0..2}.tar', 4, [penstock.Image('jpg', 32)], format='torch')\n"
            "kept = next(iter(load))['jpg']\n"
            "more = next(iter(load))\n"
            "print(kept.shape[0])\n")
    for extra in ("", "import os; os.kill(os.getpid(), 2)\n", "raise SystemExit(0)\n"):
        r = subprocess.run([sys.executable, "-c", code + extra], capture_output=True, timeout=60, text=True)
        tap.equal(r.stdout, "4\n", r.stderr)
        assert r.returncode in (0, -2, 1, 130) and "Fatal" not in r.stderr, (r.returncode, r.stderr)


@tap.test
def ctrl_c_ends_a_wait_and_the_loader_goes_on():
    os.mkfifo("pipe")
    load = penstock.Loader("pipe", 4, [penstock.Int("cls")], format="numpy")

    def press():
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGINT)

    old = signal.signal(signal.SIGINT, signal.default_int_handler)
    thread = threading.Thread(target=press)
    thread.start()
    epoch = iter(load)
    try:
        next(epoch)
        raise AssertionError("an empty pipe gave a batch")
    except KeyboardInterrupt:
        pass
    finally:
        thread.join()
        signal.signal(signal.SIGINT, old)
    tap.make_tar("t.tar", [("%d.cls" % i, b"%d" % i) for i in range(4)])
    with open("pipe", "wb") as f:
        f.write(tap.read("t.tar"))
    tap.equal(sorted(next(epoch)["cls"].tolist()), [0, 1, 2, 3])


@tap.test
def calls_are_refused_while_another_thread_is_in_the_loader():
    os.mkfifo("pipe")
    load = penstock.Loader("pipe", 1, [penstock.Int("cls")])

    def read():
        while True:
            try:
                return list(load)
            except RuntimeError as e:  # state_dict() was first
                assert "another thread" in str(e), e

    thread = threading.Thread(target=read)
    thread.start()
    until = time.monotonic() + 30
    while True:
        try:
            load.state_dict()
            assert time.monotonic() < until, "two threads in one loader"
            time.sleep(0.01)
        except RuntimeError as e:
            assert "another thread" in str(e), e
            break
    tap.make_tar("t.tar", [("1.cls", b"1")])
    with open("pipe", "wb") as f:
        f.write(tap.read("t.tar"))
    thread.join(60)
    assert not thread.is_alive()


@tap.test
def a_tensor_stays_valid_after_close():
    with loader(format="torch") as load:
        batch = next(iter(load))
        image = batch["image"]
        want = image.clone()
    del batch
    assert torch.equal(image, want)
    try:
        next(iter(load))
        raise AssertionError("a closed loader gave a batch")
    except ValueError as e:
        assert "closed" in str(e), e


@tap.test
def a_dataloader_of_torch_passes_whole_batches_on():
    import penstock.torch

    load = loader(format="torch", columns=("image", "label"))
    data = torch.utils.data.DataLoader(penstock.torch.Dataset(load), batch_size=None)
    tap.equal(sum(len(y) for x, y in data), 30)
    if not tap.forked_may_start_threads():
        return
    workers = torch.utils.data.DataLoader(penstock.torch.Dataset(load), batch_size=None, num_workers=1)
    try:
        next(iter(workers))
        raise AssertionError("a loader in a worker was accepted")
    except Exception as e:
        assert "num_workers=0" in str(e), e


@tap.test
def samples_over_the_budget_need_few_descriptors():
    for s in range(150):
        tap.make_tar("f-%03d.tar" % s, [("%03d-%d.%s" % (s, i, suffix), data) for i in range(3) for suffix, data in
                                        (("bin", bytes([s]) * 100000), ("cls", b"%d" % (3 * s + i)))])
    was = resource.getrlimit(resource.RLIMIT_NOFILE)
    fields = {"bin": penstock.Bytes("bin"), "label": penstock.Int("cls")}
    resource.setrlimit(resource.RLIMIT_NOFILE, (128, was[1]))
    try:
        load = penstock.Loader("f-{000..149}.tar", 50, fields, format="numpy", lanes=150, memory_budget="26M", depth=2)
        seen = []
        for batch in load:
            tap.equal([row[:1] + row[-1:] for row in batch["bin"]], [bytes([y // 3]) * 2 for y in batch["label"]])
            seen += batch["label"].tolist()
            batch.release()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, was)
    tap.equal(sorted(seen), list(range(450)))


@tap.test
def open_compressed_shards_stay_within_the_descriptor_limit():
    for s in range(300):
        tap.make_tar("z.tar", [("%d.cls" % s, b"%d" % s)])
        with open("z.tar", "rb") as plain, gzip.open("z-%03d.tar.gz" % s, "wb", 1) as out:
            out.write(plain.read())
    was = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (295, was[1]))
    try:
        with penstock.Loader("z-{000..299}.tar.gz", 300, {"label": penstock.Int("cls")}, format="numpy", copy=True) as load:
            tap.equal(sorted(x for batch in load for x in batch["label"].tolist()), list(range(300)))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, was)


@tap.test
def memory_does_not_grow_from_epoch_to_epoch():
    load = loader(format="torch")
    counts = []
    for _ in range(30):
        for batch in load:
            batch["image"], batch["label"], list(batch["text"])
        gc.collect()
        counts.append(tap.rss_bytes())
    # A sanitizer keeps freed memory for a while.
    assert "LD_PRELOAD" in os.environ or counts[-1] - counts[5] < 8 << 20, counts


if __name__ == "__main__":
    tap.main()
