#!/usr/bin/python3
"""The Python package: order= with sample numbers, as arrays, torch's samplers and other iterables."""
import array
import gc
import itertools
import json
import os
import pickle
import subprocess
import threading
import traceback

import tap

tap.python_package()  # or SKIP

import numpy
import torch
from torch.utils.data import BatchSampler, DistributedSampler, RandomSampler, SubsetRandomSampler, WeightedRandomSampler

import penstock

FIELDS = {"label": penstock.Int("cls")}
N = 30  # samples of shards(); the label of each is its number


def shards(counts=(10, 13, 7), index=True):
    number = 0
    for s, n in enumerate(counts):
        files = []
        for i in range(n):
            files.append(("%d-%02d.cls" % (s, i), b"%d" % number))
            number += 1
        tap.make_tar("t-%d.tar" % s, files)
    names = ["t-%d.tar" % s for s in range(len(counts))]
    if index:
        subprocess.run([tap.LOADER, "index"] + names, check=True, capture_output=True)
    return names


def loader(order, names=None, **options):
    return penstock.Loader(names or shards(), **{"fields": FIELDS, "order": order, "format": "numpy", **options})


def batches_of(load):
    return [[int(x) for x in b["label"]] for b in load]


def raises(kind, function, *words):
    try:
        function()
    except kind as e:
        for word in words:
            assert word in str(e), "%r is not in %r" % (word, str(e))
        return e
    raise AssertionError("%s was not raised" % kind.__name__)


def cut(numbers, batch):
    return [list(numbers[i : i + batch]) for i in range(0, len(numbers), batch)]


# -- Arrays -------------------------------------------------------------------------------------------------


@tap.test
def arrays_of_all_kinds_give_the_order():
    names, want = shards(), [29, 0, 0, 7, 12, 3, 29]
    for order in (want, tuple(want), numpy.array(want), numpy.array(want, dtype="u1"), torch.tensor(want),
                  array.array("i", want), [numpy.int64(x) for x in want]):
        load = loader(order, names, batch=3)
        for _ in range(2):  # the same in each epoch
            tap.equal(batches_of(load), cut(want, 3))
        tap.equal(len(load), 3)
        tap.equal(load.samples(), 7)
    tap.equal(batches_of(loader(range(29, -1, -1), names, batch=8)), cut(list(range(29, -1, -1)), 8))


@tap.test
def arrays_of_batches_give_the_batches():
    names, want = shards(), [[4, 4], [1], [29, 28, 27, 0, 5], [9]]
    for options in ({}, {"end": "drop_last"}, {"end": "uneven"}, {"batch": 6}, {"threads": 1, "readers": 1}):
        load = loader(want, names, **options)
        tap.equal(batches_of(load), want)
        tap.equal(batches_of(load), want)
        tap.equal((len(load), load.samples()), (4, 9))
    square = numpy.arange(30).reshape(5, 6)[::-1]
    tap.equal(batches_of(loader(square, names)), square.tolist())
    tap.equal(batches_of(loader(torch.tensor(square.copy()), names)), square.tolist())
    tap.equal(batches_of(loader([numpy.array(b) for b in want], names)), want)
    tap.equal(batches_of(loader(want, names, steps=2)), want[:2])
    padded = [[int(x) for x, v in zip(b["label"], b["__valid__"]) if v] for b in loader(want, names, end="pad")]
    tap.equal(padded, want)
    raises(ValueError, lambda: loader([[1], []], names), "batch 1 has no numbers")
    raises(ValueError, lambda: loader(want, names, batch=2), "batch 2 has 5 numbers", "raise batch")


@tap.test
def end_and_steps_decide_the_last_batches_of_an_array():
    names, want = shards(), list(range(7))
    tap.equal(batches_of(loader(want, names, batch=3, end="drop_last")), cut(want[:6], 3))
    tap.equal(len(loader(want, names, batch=3, end="drop_last")), 2)
    tap.equal([b.rows for b in loader(want, names, batch=3, end="pad")], [3, 3, 3])
    tap.equal(batches_of(loader(want, names, batch=3, steps=2)), cut(want[:6], 3))
    tap.equal(len(loader(want, names, batch=3, steps=2)), 2)
    tap.equal(batches_of(loader(want, names, batch=3, steps=9)), cut(want, 3))  # steps never repeat numbers


@tap.test
def numbers_are_not_split_among_ranks():
    names = shards()
    for rank in range(3):
        want = list(range(rank, 20, 3))
        tap.equal(batches_of(loader(want, names, batch=4, rank=rank, world=3)), cut(want, 4))


@tap.test
def wrong_arrays_are_refused_with_a_reason():
    names = shards()
    raises(IndexError, lambda: loader([0, 1, 30], names), "sample 30", "number 2", "hold 30 samples", "0 to 29")
    raises(IndexError, lambda: loader([0, -1], names), "sample -1")
    raises(IndexError, lambda: loader([1 << 70], names), "no sample")
    raises(ValueError, lambda: loader([], names), "no numbers")
    raises(TypeError, lambda: loader([0.5], names), "0.5")
    raises(TypeError, lambda: loader(numpy.array([0.5]), names), "float64")
    raises(TypeError, lambda: loader(numpy.ones(30, dtype=bool), names), "mask")
    raises(TypeError, lambda: loader([True, False], names), "mask")
    raises(TypeError, lambda: loader(list(numpy.ones(30, dtype=bool)), names), "mask")
    raises(TypeError, lambda: loader(list(torch.ones(30, dtype=torch.bool)), names), "mask")
    raises(ValueError, lambda: loader([numpy.zeros((2, 2), dtype=int)], names), "one dimension, not 2")
    raises(TypeError, lambda: loader([[1], 2], names), "among batches")
    raises(TypeError, lambda: loader(True, names), "order")
    raises(TypeError, lambda: loader(object(), names), "order")
    raises(ValueError, lambda: loader(numpy.zeros((2, 2, 2), dtype=int), names), "not 3")
    raises(ValueError, lambda: loader([0], names, skip=1), "skip", "sample numbers")
    raises(ValueError, lambda: loader([0], names, filter="x == 1"), "filter")
    raises(ValueError, lambda: loader([0], names, repeat=2), "repeat")
    raises(ValueError, lambda: loader("sorted", names), "sorted")


@tap.test
def sample_numbers_need_an_index():
    names = shards(index=False)
    raises(ValueError, lambda: loader([3, 1], names), "penstock-loader index", 'index="make"')
    raises(ValueError, lambda: loader(RandomSampler(range(N)), names), "penstock-loader index", 'index="make"')
    tap.equal(batches_of(loader([3, 1], names, index="make")), [[3, 1]])


@tap.test
def a_state_resumes_with_the_same_array_only():
    names, want = shards(), [int(x) for x in numpy.random.default_rng(1).integers(0, N, 50)]
    ragged = [want[:3], want[3:4], want[4:11], want[11:20]]
    for order, batches, options in ((want, cut(want, 4), {"batch": 4}), (ragged, ragged, {})):
        for k in range(len(batches)):
            load = loader(order, names, **options)
            it = iter(load)
            tap.equal([[int(x) for x in next(it)["label"]] for _ in range(k)], batches[:k])
            state = json.loads(json.dumps(load.state_dict()))
            tap.equal(batches_of(loader(order, names, state=state, **options)), batches[k:])
            other = loader(order, names, **options)
            batches_of(other)
            other.load_state_dict(state)
            tap.equal(batches_of(other), batches[k:])
            tap.equal(batches_of(other), batches)
            tap.equal(batches_of(pickle.loads(pickle.dumps(load))), batches[k:])
    load = loader(want, names, batch=4)
    next(iter(load))
    state = load.state_dict()
    changed = want[:-1] + [(want[-1] + 1) % N]
    raises(penstock.StateError, lambda: loader(changed, names, batch=4, state=state), "other sample numbers")
    raises(penstock.StateError, lambda: loader(cut(want, 4), names, batch=4, state=state), "other sample numbers")
    raises(penstock.StateError, lambda: loader("window", names, batch=4, state=state), "order sample numbers")
    raises(penstock.StateError, lambda: loader(want, names, batch=5, state=state), "open it with batch=4")
    raises(penstock.StateError, lambda: loader(want, names, batch=4, state=state, rank=1, world=2),
           "rank 0 of world 1", "rank 1 of world 2")


@tap.test
def copies_of_a_sample_have_their_own_random_numbers():
    """Each use of a sample has its own random numbers, the same in each run and after a resume."""
    photo = tap.read(tap.PHOTOS[0])
    tap.make_tar("p.tar", [("a.jpg", photo), ("b.jpg", photo)])
    subprocess.run([tap.LOADER, "index", "p.tar"], check=True, capture_output=True)

    def pictures(state=None):
        load = penstock.Loader("p.tar", batch=2, order=[0, 0, 1, 0], fields=[penstock.Image("jpg", size=32)],
                               format="numpy", copy=True, state=state)
        return [(picture, load.state_dict()) for batch in load for picture in batch["jpg"]]

    first = pictures()
    assert not (first[0][0] == first[1][0]).all() and not (first[0][0] == first[3][0]).all()
    for again in (pictures(), first[:2] + pictures(first[0][1])):
        assert len(again) == 4 and all((a == b).all() for (a, _), (b, _) in zip(first, again))


# -- Iterables ----------------------------------------------------------------------------------------------


class Seeded:
    """A common kind of sampler: another permutation in each epoch."""

    def __init__(self, n=N):
        self.n, self.epoch, self.pulled, self.threads = n, 0, 0, set()

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return self.n

    def of(self, epoch):
        return [int(x) for x in numpy.random.default_rng(epoch).permutation(self.n)]

    def __iter__(self):
        for x in self.of(self.epoch):
            self.pulled += 1
            self.threads.add(threading.get_ident())
            yield x


@tap.test
def samplers_of_torch_give_the_order():
    names = shards()

    def same(make, batch=4, **options):
        torch.manual_seed(5)
        sampler = make()
        want = []
        for _ in range(3):
            want.append(list(sampler))
        torch.manual_seed(5)
        load = loader(make(), names, batch=batch, **options)
        for epoch in want:
            tap.equal(batches_of(load), epoch if isinstance(epoch[0], list) else cut(epoch, batch))

    same(lambda: RandomSampler(range(N)))
    same(lambda: RandomSampler(range(N), replacement=True, num_samples=50))
    same(lambda: WeightedRandomSampler([1.0] * 10 + [5.0] * 20, 40))
    same(lambda: SubsetRandomSampler([3, 4, 5, 9, 29]))
    same(lambda: BatchSampler(RandomSampler(range(N)), 7, False), batch=None)
    same(lambda: BatchSampler(RandomSampler(range(N)), 7, True), batch=None)
    tap.equal(len(loader(RandomSampler(range(N)), names, batch=4)), 8)
    tap.equal(len(loader(RandomSampler(range(N)), names, batch=4, end="drop_last")), 7)
    tap.equal(len(loader(BatchSampler(RandomSampler(range(N)), 7, True), names)), 4)
    tap.equal([len(b) for b in batches_of(loader(RandomSampler(range(N)), names, batch=4, end="drop_last"))], [4] * 7)


@tap.test
def set_epoch_reaches_the_sampler():
    names = shards()
    for wrap in (lambda s: s, lambda s: BatchSampler(s, 5, False)):
        seen = []
        for rank in range(2):
            sampler = DistributedSampler(range(N), num_replicas=2, rank=rank, seed=3)
            load = loader(wrap(sampler), names, batch=5, rank=rank, world=2)
            own = [batches_of(load) for _ in range(2)]
            load.set_epoch(7)
            own.append(batches_of(load))
            for epoch, got in zip((0, 1, 7), own):
                sampler.set_epoch(epoch)
                tap.equal(got, cut(list(sampler), 5))
            seen += own[0]
        tap.equal(sorted(itertools.chain(*seen)), list(range(N)))


@tap.test
def an_iterable_is_taken_depth_batches_ahead_by_the_callers_thread():
    sampler = Seeded()
    load = loader(sampler, batch=2, depth=3)
    tap.equal(sampler.pulled, 0)
    for k, batch in enumerate(load, 1):
        assert 2 * k <= sampler.pulled <= 2 * (k + 2), (k, sampler.pulled)
        batch.release()
    tap.equal(sampler.threads, {threading.get_ident()})


@tap.test
def an_iterable_resumes_by_skipping_batches():
    names, sampler = shards(), Seeded()
    want = [cut(sampler.of(epoch), 4) for epoch in range(3)]
    for epoch in (0, 1):
        for k in range(len(want[0]) + 1):
            load = loader(Seeded(), names, batch=4)
            for _ in range(epoch):
                batches_of(load)
            it = iter(load)
            for _ in range(k):
                next(it)
            state = json.loads(json.dumps(load.state_dict()))
            for other in (loader(Seeded(), names, batch=4, state=state), pickle.loads(pickle.dumps(load))):
                tap.equal(other.state_dict()["order"], state["order"])
                tap.equal(batches_of(other), want[epoch][k:])
                tap.equal(batches_of(other), want[epoch + 1])
            load.load_state_dict(state)
            tap.equal(batches_of(load), want[epoch][k:])


@tap.test
def a_state_at_the_end_of_an_epoch_resumes_with_the_next():
    names = shards()
    load = loader(Seeded(), names, batch=4)
    batches_of(load)
    other = loader(Seeded(), names, batch=4, state=load.state_dict())
    tap.equal(batches_of(other), cut(Seeded().of(1), 4))
    tap.equal(batches_of(other), cut(Seeded().of(2), 4))


@tap.test
def a_sampler_that_gives_other_numbers_is_not_resumed():
    names = shards()
    load = loader(RandomSampler(range(N)), names, batch=4)  # seeded by torch's own generator
    it = iter(load)
    next(it), next(it)
    other = loader(RandomSampler(range(N)), names, batch=4, state=load.state_dict())
    raises(penstock.StateError, lambda: iter(other), "first 2 batches", "set_epoch")


class Stateful(Seeded):
    """A sampler with a state of its own, so that a resume need not skip numbers."""

    def __init__(self):
        super().__init__()
        self.at = 0

    def __iter__(self):
        order = self.of(self.epoch)
        while self.at < self.n:
            self.at += 1
            self.pulled += 1
            yield order[self.at - 1]
        self.at = 0

    def state_dict(self):
        return {"epoch": self.epoch, "at": self.at}

    def load_state_dict(self, state):
        self.epoch, self.at = state["epoch"], state["at"]


class StatefulIterator:
    """A sampler as torchdata's: its iterator has the state."""

    class Iterator:
        def __init__(self):
            self.at = 0

        def __iter__(self):
            return self

        def __next__(self):
            if self.at == N:
                raise StopIteration
            self.at += 1
            return N - self.at

        def state_dict(self):
            return {"at": self.at}

        def load_state_dict(self, state):
            self.at = state["at"]

    def __iter__(self):
        return self.Iterator()


@tap.test
def the_state_of_a_sampler_is_that_at_the_last_batch_delivered():
    names = shards()
    for make, epochs in ((Stateful, [cut(Seeded().of(e), 4) for e in range(3)]),
                         (StatefulIterator, [cut(list(range(N - 1, -1, -1)), 4)] * 3)):
        for k in (0, 1, 3, 8):
            load = loader(make(), names, batch=4)
            batches_of(load)
            it = iter(load)
            for _ in range(k):
                next(it)
            state = json.loads(json.dumps(load.state_dict()))
            fresh = make()
            other = loader(fresh, names, batch=4, state=state)
            tap.equal(batches_of(other), epochs[1][k:])
            tap.equal(batches_of(other), epochs[2])
            if make is Stateful:
                # A resume does not pull numbers just to skip them. At the end of an epoch one number more is
                # pulled, to find out whether the sampler goes on.
                tap.equal(fresh.pulled, {0: 2 * N + 1, 8: N + 1}.get(k, 2 * N - 4 * k))
    load = loader(Stateful(), names, batch=4)
    next(iter(load))
    raises(penstock.StateError, lambda: loader(Stateful(), names, batch=4, state=load.state_dict(), rank=1, world=2),
           "world")


class StatefulDistributed(Seeded):
    """A sampler as torchdata's StatefulDistributedSampler: its state is not reset at the end of an epoch."""

    def __init__(self):
        super().__init__()
        self.yielded, self.loaded = 0, None

    def __iter__(self):
        self.yielded, self.loaded = self.loaded or 0, None
        for number in self.of(self.epoch)[self.yielded:]:
            self.yielded += 1
            yield number

    def state_dict(self):
        return {"yielded": self.yielded}

    def load_state_dict(self, state):
        self.loaded = state["yielded"]


@tap.test
def the_state_of_a_sampler_resumes_at_any_batch():
    names = shards()
    for make in Stateful, StatefulDistributed:
        for batch in 4, 5:
            want = [b for e in range(3) for b in cut(Seeded().of(e), batch)]
            for at in range(len(want)):
                for asked in "before iter", "after iter", "twice":
                    load, got = loader(make(), names, batch=batch), []
                    while len(got) < at:
                        for b in load:
                            got.append([int(x) for x in b["label"]])
                            if len(got) == at and asked != "before iter":
                                break
                    state = load.state_dict()
                    if asked != "before iter":
                        load = loader(make(), names, batch=batch, state=state)
                        iter(load)
                        state = load.state_dict()
                    if asked == "twice":
                        load = loader(make(), names, batch=batch, state=state)
                        state = load.state_dict()
                    load = loader(make(), names, batch=batch, state=json.loads(json.dumps(state)))
                    while len(got) < len(want):
                        got += batches_of(load)
                    tap.equal(got, want)


@tap.test
def set_epoch_drops_a_loaded_state_and_a_begun_epoch():
    names, sampler = shards(), Seeded()
    load = loader(Seeded(), names, batch=4)
    it = iter(load)
    next(it), next(it)
    state = load.state_dict()
    other = loader(Seeded(), names, batch=4, state=state)
    other.set_epoch(3)
    tap.equal(batches_of(other), cut(sampler.of(3), 4))
    load.set_epoch(5)
    other = loader(Seeded(), names, batch=4, state=load.state_dict())
    tap.equal(batches_of(other), cut(sampler.of(5), 4))


@tap.test
def a_state_of_another_world_size_is_refused():
    names = shards()
    load = loader(Seeded(), names, batch=4, rank=0, world=2)
    next(iter(load))
    state = load.state_dict()
    raises(penstock.StateError, lambda: loader(Seeded(), names, batch=4, state=state, rank=0, world=4),
           "world 2", "world 4")
    # A state of another rank of the same world size has the number of batches that were taken.
    tap.equal(batches_of(loader(Seeded(), names, batch=4, state=state, rank=1, world=2)), cut(Seeded().of(0), 4)[1:])
    raises(penstock.StateError, lambda: loader([1, 2], names, batch=4, state=state, rank=0, world=2), "other sample numbers")


@tap.test
def an_exception_of_an_iterator_is_raised_after_earlier_batches():
    def numbers():
        yield from range(5)
        raise KeyError("the sampler's own")

    class Broken:
        def __iter__(self):
            return numbers()

    load = loader(Broken(), batch=2)
    it, got = iter(load), []
    try:
        for batch in it:
            got.append([int(x) for x in batch["label"]])
    except KeyError as e:
        assert "numbers" in [f.name for f in traceback.extract_tb(e.__traceback__)]
        tap.equal(e.args, ("the sampler's own",))
    else:
        raise AssertionError("nothing was raised")
    tap.equal(got, [[0, 1], [2, 3]])
    tap.equal(list(it), [])  # the epoch is over
    tap.equal([int(x) for x in next(iter(load))["label"]], [0, 1])  # the next epoch begins again


@tap.test
def wrong_numbers_of_an_iterable_are_refused_with_a_reason():
    names = shards()

    class Of:
        def __init__(self, items):
            self.items = items

        def __iter__(self):
            return iter(self.items)

    raises(IndexError, lambda: batches_of(loader(Of([0, 30]), names)), "sample 30", "30 samples")
    raises(IndexError, lambda: batches_of(loader(Of([0, -1]), names)), "sample -1")
    raises(TypeError, lambda: batches_of(loader(Of(["a"]), names)), "'a'")
    raises(TypeError, lambda: batches_of(loader(Of([0, [1]]), names)), "after a number")
    raises(ValueError, lambda: batches_of(loader(Of([[0], []]), names)), "batch 1", "no numbers")
    raises(ValueError, lambda: batches_of(loader(Of([[0] * 65]), names)), "65 numbers", "raise batch")
    raises(RuntimeError, lambda: batches_of(loader(Of([]), names)), "no batch in epoch 0")
    raises(ValueError, lambda: batches_of(loader(Of([numpy.zeros((2, 2), dtype=int)]), names)), "one dimension, not 2")
    load = loader(Of([[1, 2], numpy.array([3]), torch.tensor([4, 5, 6])]), names)
    tap.equal(batches_of(load), [[1, 2], [3], [4, 5, 6]])
    raises(penstock.UnknownLengthError, lambda: len(load), "length is not known")


@tap.test
def an_exception_of_next_holds_no_batches():
    load = loader(BatchSampler([0, 1, 2, 30], 1, False), copy=True)  # each epoch ends by IndexError
    gc.disable()
    try:
        for _ in range(6):
            raises(IndexError, lambda: [b for b in load], "sample 30")
    finally:
        gc.enable()


@tap.test
def an_iterator_goes_on_over_epochs_until_it_is_used_up():
    names = shards()
    load = loader(iter(range(7)), names, batch=2, steps=2)
    tap.equal(batches_of(load), [[0, 1], [2, 3]])
    tap.equal(batches_of(load), [[4, 5], [6]])
    raises(RuntimeError, lambda: batches_of(load), "used up", "epoch 2")
    endless = (i % N for i in itertools.count())
    load = loader(endless, names, batch=2, steps=2)
    tap.equal(len(load), 2)
    it = iter(load)
    tap.equal([int(x) for x in next(it)["label"]], [0, 1])
    iter(load), iter(load)
    tap.equal(batches_of(load), [[2, 3], [4, 5]])  # numbers that were taken ahead are not lost
    tap.equal(batches_of(load), [[6, 7], [8, 9]])
    state = load.state_dict()
    tap.equal(batches_of(loader((i % N for i in itertools.count()), names, batch=2, steps=2, state=state)),
              [[10, 11], [12, 13]])
    it = iter(loader(itertools.count(), names, batch=7))  # without steps it goes on to a wrong number
    tap.equal([int(next(it)["label"][0]) for _ in range(4)], [0, 7, 14, 21])
    raises(IndexError, lambda: next(it), "sample 30")


@tap.test
def an_epoch_can_be_left_at_any_batch():
    names, sampler = shards(), Seeded()
    load = loader(sampler, names, batch=3, threads=3, readers=3)
    for epoch in range(12):
        for k, batch in enumerate(load):
            tap.equal([int(x) for x in batch["label"]], sampler.of(epoch)[3 * k : 3 * k + 3])
            if k == epoch:
                break


@tap.test
def batches_of_any_length_are_fed_by_any_threads():
    names, rng = shards(), numpy.random.default_rng(11)
    for threads, readers, depth in ((1, 1, 2), (4, 8, 2), (2, 3, 5)):
        want = [[int(x) for x in rng.integers(0, N, rng.choice([1, 2, 3, 100, 200]))] for _ in range(400)]

        class Of:
            def __iter__(self):
                return iter(want)

        load = loader(Of(), names, batch=200, threads=threads, readers=readers, depth=depth)
        for _ in range(2):
            got = []
            for batch in load:
                got.append([int(x) for x in batch["label"]])
                batch.release()
            tap.equal(got, want)


@tap.test
def transform_and_columns_work_with_a_sampler():
    load = loader(Seeded(), batch=4, columns=["label"], transform=lambda b: b[0].tolist())
    tap.equal(list(load), cut(Seeded().of(0), 4))
    kept = [batch["label"] for batch in loader(Seeded(), batch=2, depth=2, format="numpy")]
    tap.equal([label.tolist() for label in kept], cut(Seeded().of(0), 2), "more batches than `depth` may be kept")


tap.main()
