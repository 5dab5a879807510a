#!/usr/bin/python3
"""The Python package: what lives how long, in which process and thread, and what may go wrong in a program."""
import gc
import gzip
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

import tap

tap.python_package()  # or SKIP

import torch

import penstock
from python_fixture import labels, loader, shards


@tap.test
def a_state_of_an_epochs_end_is_of_the_next_one():
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
def a_tensor_keeps_its_memory_and_a_copy_is_free_of_it():
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


@tap.test
def holding_all_batches_is_an_error_and_not_a_hang():
    held = iter(loader(depth=2))
    batches = [next(held), next(held)]
    try:
        next(held)
        raise AssertionError("a third batch of two")
    except penstock.BatchesHeldError as e:
        assert "all 2 batches are held" in str(e) and "copy=True" in str(e), e
    tap.equal(batches[0].index, 0)
    del batches[0]
    tap.equal(next(held).index, 2)
    view = batches[0]["image"]
    try:
        batches[0].release()
        raise AssertionError("released under a tensor")
    except BufferError:
        pass
    tap.equal(view.shape, (4, 3, 32, 32))


@tap.test
def a_state_resumes_in_another_process_and_by_pickle():
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
    tap.equal(labels(fresh), labels(load), "and both go on with the next epoch")
    half = iter(again)
    next(half)
    clone = pickle.loads(pickle.dumps(again))
    tap.equal([labels([b]) for b in clone], [labels([b]) for b in half])
    for bad in ({}, {"version": 1, "epoch": 0, "state": "AAAA"}, {"version": 1, "epoch": 0, "state": "%"}, 7):
        try:
            again.load_state_dict(bad)
            raise AssertionError("took %r" % bad)
        except penstock.StateError:
            pass
    try:
        loader(pattern, seed=4).load_state_dict(state)
        raise AssertionError("took a state of another seed")
    except penstock.StateError as e:
        assert "seed" in str(e), e


@tap.test
def a_broken_off_epoch_is_followed_by_the_next():
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
        raise AssertionError("an old iterator went on")
    except RuntimeError as e:
        assert "no longer valid" in str(e), e


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
def a_forked_loader_says_so_and_a_spawned_one_works():
    load = loader()
    want = labels(loader("t-{0..2}.tar"))
    for method, child in ("fork", child_of_fork), ("spawn", child_of_spawn):
        if method == "fork" and not tap.forked_may_start_threads():
            continue
        context = multiprocessing.get_context(method)
        queue = context.Queue()
        process = context.Process(target=child, args=(load, queue))
        process.start()
        answer = queue.get(timeout=60)
        process.join(60)
        tap.equal(process.exitcode, 0, method)
        if method == "fork":
            assert "process" in answer, answer
        else:
            tap.equal(answer, want)
    tap.equal(labels(load), want, "the parent goes on")


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
        raise AssertionError("a batch of an empty pipe")
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
def threads_of_one_loader_are_told_apart():
    os.mkfifo("pipe")
    load = penstock.Loader("pipe", 1, [penstock.Int("cls")])
    thread = threading.Thread(target=lambda: list(load))
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
def closing_waits_for_the_last_tensor():
    with loader(format="torch") as load:
        batch = next(iter(load))
        image = batch["image"]
        want = image.clone()
    del batch
    assert torch.equal(image, want)
    try:
        next(iter(load))
        raise AssertionError("a batch of a closed loader")
    except ValueError as e:
        assert "closed" in str(e), e


@tap.test
def a_dataloader_of_torch_takes_whole_batches():
    import penstock.torch

    load = loader(format="torch", columns=("image", "label"))
    data = torch.utils.data.DataLoader(penstock.torch.Dataset(load), batch_size=None)
    tap.equal(sum(len(y) for x, y in data), 30)
    if not tap.forked_may_start_threads():
        return
    workers = torch.utils.data.DataLoader(penstock.torch.Dataset(load), batch_size=None, num_workers=1)
    try:
        next(iter(workers))
        raise AssertionError("a loader in a worker")
    except Exception as e:
        assert "num_workers=0" in str(e), e


@tap.test
def samples_that_no_budget_holds_need_few_descriptors():
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
def compressed_shards_that_stay_open_are_no_more_than_a_process_may_open():
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
def steady_state_takes_no_memory():
    load = loader(format="torch")
    counts = []
    for _ in range(30):
        for batch in load:
            batch["image"], batch["label"], list(batch["text"])
        gc.collect()
        counts.append(tap.rss_bytes())
    # A sanitizer keeps what was freed for a while.
    assert "LD_PRELOAD" in os.environ or counts[-1] - counts[5] < 8 << 20, counts


if __name__ == "__main__":
    tap.main()
