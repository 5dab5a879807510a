#!/usr/bin/python3
"""A loader that is made before its process group, in two processes: torch's, and that of jax.distributed."""
import importlib.util
import json
import os
import pickle
import socket
import subprocess
import sys

import tap

tap.python_environment(tap.DOCS[0], [], tap.DOCS[1], required=False)
tap.python_package()

import penstock

SAMPLES, BATCH = 22, 4

# Each rank runs this before its test's own code; the argument is the rank.
PRELUDE = """
import json, os, pickle, sys, warnings
import penstock
rank = int(sys.argv[1])

def make(**options):
    return penstock.Loader("t-{0..2}.tar", %d, penstock.Int("cls"), seed=1, format="numpy", **options)

def group():
    import torch.distributed
    torch.distributed.init_process_group("gloo", rank=rank, world_size=2, init_method="file://" + os.path.abspath("group"))

def labels(loader):
    return [int(x) for batch in loader for x in batch["cls"]]

def place(loader):
    return loader.options["rank"], loader.options["world"]
""" % BATCH


def shards():
    sizes, n = (10, 7, 5), 0
    for s, size in enumerate(sizes):
        tap.make_tar("t-%d.tar" % s, [("%02d.cls" % i, b"%d" % i) for i in range(n, n + size)])
        n += size
    assert tap.run("index", "t-0.tar", "t-1.tar", "t-2.tar").returncode == 0


def two(code):
    """What the code leaves in `result` on each rank."""
    shards()
    tap.write("rank.py", (PRELUDE + code + "\nprint(json.dumps(result))\n").encode())
    environ = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE")}
    running = [subprocess.Popen([sys.executable, "rank.py", str(i)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                text=True, env=environ) for i in range(2)]
    try:
        said = [p.communicate(timeout=100) for p in running]
    finally:
        for p in running:
            p.kill()
    assert all(p.returncode == 0 for p in running), [s[1][-2000:] for s in said]
    return [json.loads(s[0].splitlines()[-1]) for s in said]


def check_shares(epochs):
    """Two ranks' labels of an epoch: together all samples, none twice."""
    assert sorted(epochs[0] + epochs[1]) == list(range(SAMPLES)), epochs


@tap.test
def a_loader_made_before_the_group_has_its_ranks_share():
    got = two("""
loader = make()
before = place(loader)
group()
result = [before, labels(loader), place(loader), labels(loader), len(loader)]
""")
    for i in range(2):
        tap.equal((got[i][0], got[i][2], got[i][4]), ([0, 1], [i, 2], 3))
    check_shares([g[1] for g in got])
    check_shares([g[3] for g in got])
    assert got[0][1] != got[0][3], "the second epoch has another order"


@tap.test
def each_question_that_depends_on_the_rank_asks_for_it():
    got = two("""
made = {what: make() for what in ("iter", "len", "samples", "state_dict", "load_state_dict", "peek", "sampler", "pickle")}
group()
state = make().state_dict()
iter(made["iter"])
len(made["len"])
made["samples"].samples()
made["state_dict"].state_dict()
made["load_state_dict"].load_state_dict(state)
made["peek"].peek()
made["sampler"].sampler.set_epoch(2)
pickle.dumps(made["pickle"])
result = {what: place(loader) for what, loader in made.items()}
""")
    for i in range(2):
        tap.equal(set(map(tuple, got[i].values())), {(i, 2)}, got[i])


@tap.test
def a_pending_epoch_and_state_are_kept():
    got = two("""
class Two:                       # the states of a run of two ranks
    epoch = make(rank=rank, world=2)
    state = make(rank=rank, world=2)
steps = iter(Two.state)
first = [int(x) for x in next(steps)["cls"]]
saved = Two.state.state_dict()
of_epoch = make()
of_epoch.set_epoch(3)
begun = make()
iter(begun)                      # Lightning calls iter() to see whether that works
group()
Two.epoch.set_epoch(3)
of_state = make()
of_state.load_state_dict(saved)
result = [labels(of_epoch) == labels(Two.epoch), first + labels(of_state), labels(begun) == labels(make())]
""")
    check_shares([g[1] for g in got])
    tap.equal([g[0] for g in got] + [g[2] for g in got], [True] * 4)


@tap.test
def a_batch_of_another_rank_is_an_error():
    got = two("""
loader = make()
next(iter(loader))
group()
result = []
for question in (lambda: iter(loader), lambda: len(loader), loader.samples, loader.state_dict):
    try:
        question()
    except RuntimeError as e:
        result.append(str(e))
fresh = make()
fresh.peek()                     # delivers nothing
fresh.get([0])
result.append(len(labels(fresh)))
""")
    for i in range(2):
        tap.equal(len(got[i]), 5, got[i])
        for text in got[i][:4]:
            assert "rank 0 of 1" in text and "rank %d of 2" % i in text and "rank= and world=" in text, text
    tap.equal(got[0][4] + got[1][4], SAMPLES)


@tap.test
def a_length_that_changes_is_a_warning():
    got = two("""
loader, quiet = make(), make()
n = len(loader)
group()
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    labels(quiet)
    result = [n, len(caught), len(loader), [str(w.message) for w in caught]]
""")
    for i in range(2):
        tap.equal(got[i][:3], [6, 0, 3])
        [text] = got[i][3]
        assert text.startswith("len() of this loader was answered for rank 0 of 1"), text


@tap.test
def ranks_that_were_given_are_not_compared():
    got = two("""
loader = make(rank=1, world=4)   # as with tensor parallelism
group()
result = [place(loader), labels(loader), labels(make(rank=1, world=4))]
""")
    for g in got:
        tap.equal((g[0], g[1]), ([1, 4], g[2]))


@tap.test
def a_loader_that_is_sent_to_spawned_processes_has_their_ranks():
    got = two("""
loader = make()
loader.set_epoch(1)
again = pickle.loads(pickle.dumps(loader))
asks = place(again)
group()
want = make()
want.set_epoch(1)
result = [asks, labels(again), labels(want)]
""")
    check_shares([g[1] for g in got])
    for g in got:
        tap.equal((g[0], g[1]), ([0, 1], g[2]))


@tap.test
def a_loader_that_opens_again_takes_its_plan_back():
    got = two("""
loader = make()
old = loader._raw
group()
iter(loader)
try:
    old.length(0)
    result = "the old loader is open"
except ValueError as e:
    result = str(e)
""")
    for text in got:
        assert "closed" in text, text


@tap.test
def sampler_set_epoch_keeps_the_position_of_a_state():
    shards()

    def make(**options):
        return penstock.Loader("t-{0..2}.tar", BATCH, penstock.Int("cls"), seed=1, format="numpy", **options)

    def labels(loader):
        return [int(x) for batch in loader for x in batch["cls"]]

    whole = make()
    epochs = [labels(whole) for _ in range(3)]
    loader = make()
    for epoch in (0, 1, 2):
        loader.sampler.set_epoch(epoch)
        tap.equal(labels(loader), epochs[epoch])
    loader.sampler.set_epoch(1)
    tap.equal(labels(loader), epochs[1], "back to an earlier epoch")
    loader.sampler.set_epoch(1)
    steps = iter(loader)
    had = [int(x) for _ in range(2) for x in next(steps)["cls"]]
    state = loader.state_dict()
    again = make()
    again.load_state_dict(state)
    again.sampler.set_epoch(1)
    tap.equal(had + labels(again), epochs[1])
    again.load_state_dict(state)
    iter(again)
    again.sampler.set_epoch(1)
    tap.equal(had + labels(again), epochs[1], "after an iterator that took no batch")
    again.load_state_dict(state)
    again.sampler.set_epoch(2)
    tap.equal(labels(again), epochs[2])
    steps = iter(loader)
    next(steps)
    loader.sampler.set_epoch(loader.epoch)
    tap.equal(labels(loader), epochs[2], "an epoch that was left begins again")


@tap.test
def the_adapter_deals_the_last_step_so_that_gathered_rows_begin_with_its_samples():
    import penstock.torch

    shards()
    for world in range(1, 6):
        for end in ("split", "pad"):
            adapters = [penstock.torch.DataLoader(penstock.Loader(
                "t-{0..2}.tar", BATCH, penstock.Int("cls"), seed=1, format="torch", rank=r, world=world, end=end))
                for r in range(world)]
            steps = [[{name: batch[name].tolist() for name in ("cls", "__valid__")} for batch in step]
                     for step in zip(*adapters)]
            left = SAMPLES % (BATCH * world)
            for adapter in adapters:
                tap.equal((len(adapter), len(adapter.dataset), adapter.remainder), (len(steps), SAMPLES, left))
            tap.equal(sum(adapter.loader.samples() for adapter in adapters), SAMPLES)
            rows = [[x for batch in step for x in batch["cls"]] for step in steps]
            valid = [[x for batch in step for x in batch["__valid__"]] for step in steps]
            tap.equal(sorted(sum(rows[:-1], []) + rows[-1][: left or None]), list(range(SAMPLES)), (world, end))
            if world > 1:
                tap.equal([len(step) for step in rows], [BATCH * world] * len(rows))
                tap.equal(valid[-1], [1] * left + [0] * (BATCH * world - left))
                assert set(rows[-1]) == set(rows[-1][:left])
    uneven = penstock.torch.DataLoader(penstock.Loader("t-{0..2}.tar", BATCH, penstock.Int("cls"), rank=0, world=2, end="uneven"))
    tap.equal((uneven.loader.options["end"], uneven._remainder()), ("uneven", -1))
    again = pickle.loads(pickle.dumps(uneven))
    tap.equal(len(again), len(uneven))


@tap.test
def a_loader_that_the_adapter_refuses_goes_on_as_it_was():
    import penstock.torch

    def make(**options):
        return penstock.Loader("t-{0..2}.tar", BATCH, penstock.Int("cls"), seed=1, format="torch", rank=0, world=2, **options)

    def labels(loader):
        return [int(x) for batch in loader for x in batch["cls"]]

    def refused(loader):
        try:
            penstock.torch.DataLoader(loader)
        except penstock.StateError as e:
            assert "before the loader's first batch" in str(e) and "end=\"gather\"" in str(e), e
            return e
        raise AssertionError("not refused")

    shards()
    whole = labels(make())
    loader = make()
    had = [int(x) for x in next(iter(loader))["cls"]]
    refused(loader)
    tap.equal(loader.options.get("end", "split"), "split")
    tap.equal(had + labels(loader), whole)
    state = make().state_dict()
    refused(make(state=state))
    # what the text says
    loader = make(end="gather")
    next(iter(loader))
    tap.equal(len(labels(penstock.torch.DataLoader(loader))), len(labels(make(end="gather"))))
    adapter = penstock.torch.DataLoader(make())
    tap.equal(labels(adapter), labels(make(end="gather")))


@tap.test
def an_option_that_does_not_fit_the_group_leaves_the_loader_as_it_was():
    got = two("""
loader = make(global_batch=3)
group()
texts = []
for _ in range(2):
    try:
        iter(loader)
    except penstock.ConfigError as e:
        texts.append(str(e))
result = [texts, loader.options["world"], loader._raw.stats()["batches"]]
""")
    for texts, world, batches in got:
        assert len(texts) == 2 and all("global_batch" in text for text in texts), texts
        tap.equal((world, batches), (1, 0))


@tap.test
def the_adapter_of_a_loader_that_is_made_before_the_group():
    got = two("""
import penstock.torch
adapter = penstock.torch.DataLoader(make())
n = len(adapter.dataset)
group()
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    rows = [[int(x) for x in batch["cls"]] for batch in adapter]
result = [n, len(adapter.dataset), rows, adapter.loader.options["end"], place(adapter.loader)]
""")
    for i in range(2):
        tap.equal(got[i][:2] + got[i][3:], [SAMPLES, SAMPLES, "gather", [i, 2]])
    tap.equal([len(step) for g in got for step in g[2]], [BATCH] * 6)
    tap.equal({x for g in got for step in g[2] for x in step}, set(range(SAMPLES)))


@tap.test
def jax_distributed_gives_the_rank_and_no_backend_is_started():
    if importlib.util.find_spec("jax") is None:
        raise tap.Skip("there is no jax")
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    got = two("""
import jax
import jax._src.xla_bridge as bridge
loader = make()
alone = [place(loader), bridge.backends_are_initialized()]
jax.distributed.initialize("127.0.0.1:%d", num_processes=2, process_id=rank)
mine = labels(loader)
result = [alone, mine, place(loader), place(make()), bridge.backends_are_initialized()]
""" % port)
    check_shares([g[1] for g in got])
    for i in range(2):
        tap.equal(got[i][:1] + got[i][2:], [[[0, 1], False], [i, 2], [i, 2], False])


@tap.test
def a_process_without_jax_does_not_import_it():
    shards()
    code = "import sys, penstock; len(penstock.Loader('t-{0..2}.tar', 4, penstock.Int('cls'))); print('jax' in sys.modules, 'torch' in sys.modules)"
    r = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    tap.equal((r.stdout, r.returncode), ("False False\n", 0), r.stderr)


if __name__ == "__main__":
    tap.main()
