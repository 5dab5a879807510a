#!/usr/bin/python3
"""The Python package: weights= of all samples, and an exact number of draws."""
import collections
import fractions
import math
import pickle
import subprocess

import tap

tap.python_package()  # or SKIP

import numpy
import torch

import penstock

FIELDS = {"label": penstock.Int("cls")}
COUNTS = (10, 300, 7, 256, 1)  # sums are stored for every 256th sample of a shard
N = sum(COUNTS)


def shards(columns=None):
    number, names = 0, []
    for s, n in enumerate(COUNTS):
        files = []
        for i in range(n):
            files.append(("%d-%03d.cls" % (s, i), b"%d" % number))
            if columns:
                files.append(("%d-%03d.json" % (s, i), b'{"w": %r}' % columns[number]))
            number += 1
        names.append(tap.make_tar("t-%d.tar" % s, files))
    more = ["--column", "w=json:w", "--column", "label=cls"] if columns else []
    subprocess.run([tap.LOADER, "index", *more, *names], check=True, capture_output=True)
    return names


def loader(names, weights, **options):
    return penstock.Loader(names, **{"fields": FIELDS, "weights": weights, "format": "numpy", "batch": 32, **options})


def drawn(load):
    return [int(x) for b in load for x in b["label"][b["__valid__"] == 1]]


def raises(kind, function, *words):
    try:
        function()
    except kind as e:
        for word in words:
            assert word in str(e), "%r is not in %r" % (word, str(e))
        return
    raise AssertionError("%s was not raised" % kind.__name__)


def check_counts(labels, weights, draws):
    """Asserts that each sample comes floor or ceil of draws * w / sum times, `draws` in all."""
    tap.equal(len(labels), draws)
    counts = collections.Counter(labels)
    total = sum(fractions.Fraction(float(w)) for w in weights)
    for i, w in enumerate(weights):
        share = fractions.Fraction(float(w)) * draws / total
        assert math.floor(share) <= counts[i] <= math.ceil(share), (i, float(share), counts[i])
    return counts


@tap.test
def the_number_of_draws_is_exact_and_each_sample_has_its_share():
    names, rng = shards(), numpy.random.default_rng(3)
    for weights in ([1] * N, rng.random(N), rng.random(N) ** 20, list(range(N)), [0] * 400 + [3.5] + [0] * (N - 402) + [7]):
        for draws in (1, 100, N, 5000):
            seen = set()
            for order in ("window", "shards", "none"):
                load = loader(names, weights, draws=draws, order=order)
                tap.equal(load.samples(), draws)
                counts = check_counts(drawn(load), weights, draws)
                seen.add(tuple(sorted(counts.items())))
            tap.equal(len(seen), 1)  # the draws do not depend on the order
    for kind in (tuple, numpy.float32, torch.tensor, numpy.array):
        tap.equal(len(drawn(loader(names, kind([1.0] * N)))), N)  # the default: as many draws as samples


@tap.test
def epochs_and_seeds_draw_other_samples():
    names, weights = shards(), numpy.random.default_rng(4).random(N)
    load = loader(names, weights, draws=100, shuffle_window=64)
    epochs = [drawn(load) for _ in range(3)]
    for epoch in epochs:
        check_counts(epoch, weights, 100)
    assert len({tuple(sorted(e)) for e in epochs}) == 3
    tap.equal(drawn(loader(names, weights, draws=100, shuffle_window=64)), epochs[0])
    assert sorted(drawn(loader(names, weights, draws=100, seed=1))) != sorted(epochs[0])
    mean = collections.Counter()
    load = loader(names, weights, draws=100)
    for _ in range(300):
        mean.update(drawn(load))
    for i in numpy.argsort(weights)[-20:]:
        want = 300 * 100 * weights[i] / weights.sum()
        assert abs(mean[i] - want) < 6 * math.sqrt(want), (i, mean[i], want)


@tap.test
def every_world_size_draws_the_same_in_each_global_batch():
    names, weights = shards(), numpy.random.default_rng(5).random(N)
    for order in ("window", "permutation"):
        steps = {}
        for world in (1, 2, 4):
            ranks = [[[int(x) for x in b["label"]] for b in loader(names, weights, batch=32 // world, order=order, draws=320,
                                                                   rank=rank, world=world)] for rank in range(world)]
            steps[world] = [sorted(sum((r[k] for r in ranks), [])) for k in range(len(ranks[0]))]
        tap.equal(steps[2], steps[1], order)
        tap.equal(steps[4], steps[1], order)
        tap.equal(sum(map(len, steps[1])), 320)


@tap.test
def permuted_draws_are_independent():
    names, weights = shards(), numpy.random.default_rng(6).random(N)
    weights[:300] = 0
    load = loader(names, weights, order="permutation", draws=20000)
    labels = drawn(load)
    tap.equal(len(labels), 20000)
    counts = numpy.bincount(labels, minlength=N)
    tap.equal(int(counts[:300].sum()), 0)
    want = 20000 * weights / weights.sum()
    some = want > 0
    chi2 = ((counts - want)[some] ** 2 / want[some]).sum()
    freedom = some.sum() - 1
    assert abs(chi2 - freedom) < 6 * math.sqrt(2 * freedom), (chi2, freedom)  # systematic draws would be far below
    assert drawn(load) != labels
    tap.equal(drawn(loader(names, weights, order="permutation", draws=20000)), labels)


@tap.test
def a_state_resumes_with_the_same_weights_only():
    names, weights = shards(), numpy.random.default_rng(7).random(N) ** 4
    for options in ({}, {"order": "permutation"}, {"draws": 1000, "order": "shards"}, {"draws": 1500, "repeat": 2}):
        whole = drawn(loader(names, weights, **options))
        load = loader(names, weights, **options)
        it = iter(load)
        for k in range(1, 15, 3):
            for _ in range(3 if k > 1 else 1):
                next(it).release()
            state = load.state_dict()
            tap.equal(drawn(loader(names, weights, state=state, **options)), whole[32 * k :], options)
            tap.equal(drawn(pickle.loads(pickle.dumps(load))), whole[32 * k :], options)
        raises(penstock.StateError, lambda: loader(names, weights * 2 + 1e-9, state=state, **options), "weights")
        raises(penstock.StateError, lambda: loader(names, weights, state=state, **{**options, "draws": 77}), "draws")
    tap.equal(len(drawn(loader(names, weights, draws=1500, repeat=2))), 3000)


@tap.test
def columns_are_drawn_exactly_with_draws():
    values = [round(float(w), 3) for w in numpy.random.default_rng(8).random(N)]
    names = shards(values)
    check_counts(drawn(loader(names, "w", draws=900)), values, 900)
    tap.equal(sorted(drawn(loader(names, "w", draws=900))), sorted(drawn(loader(names, values, draws=900))))
    half = [0 if i >= 300 else w for i, w in enumerate(values)]
    check_counts(drawn(loader(names, "w", draws=500, filter="label < 300")), half, 500)
    check_counts(drawn(loader(names, values, filter="label < 300")), half, 300)
    tap.equal(len(drawn(loader(names, None, balance="label", draws=123))), 123)
    assert len(drawn(loader(names, "w"))) < N  # without draws= a sample comes with probability w


@tap.test
def wrong_weights_are_refused_with_a_reason():
    names = shards()
    raises(ValueError, lambda: loader(names, [1] * (N - 1)), "weights: %d are given" % (N - 1), "%d samples" % N)
    raises(ValueError, lambda: loader(names, [1] * (N + 1)), "weights: %d are given" % (N + 1))
    raises(ValueError, lambda: loader(names, [1] * 400 + [-1] + [1] * (N - 401)), "sample 400", "-1")
    raises(ValueError, lambda: loader(names, [1] * 400 + [float("nan")] + [1] * (N - 401)), "sample 400", "nan")
    raises(ValueError, lambda: loader(names, [1] * 400 + [float("inf")] + [1] * (N - 401)), "sample 400", "inf")
    raises(ValueError, lambda: loader(names, [0] * N), "samples that pass have the weight 0")
    raises(ValueError, lambda: loader(names, []), "0 are given")
    raises(ValueError, lambda: loader(names, [1] + [1e-9] * (N - 1), draws=100000), "65535")
    raises(ValueError, lambda: loader(names, None, draws=10), "draws: needs weights")
    raises(ValueError, lambda: loader(names, [1] * N, order=[1, 2]), "weights")
    raises(TypeError, lambda: loader(names, [["a"]]), "weights")
    raises(TypeError, lambda: loader(names, iter([1.0] * N)), "weights")  # a pickled loader needs them again
    raises(TypeError, lambda: loader(names, numpy.ones((2, 2))), "one dimension")
    for s in range(len(COUNTS)):
        tap.make_tar("n-%d.tar" % s, [("a.cls", b"1")])
    raises(penstock.Error, lambda: loader("n-{0..4}.tar", [1] * 5), "index")


@tap.test
def weights_of_any_size_keep_their_shares():
    names = shards()
    for weights in ([1e-300] * N, [1e300] * N, [5e-324] * N, [2.0 ** (i % 60) for i in range(N)], [1] * (N - 1) + [1e-200]):
        for draws in (N, 3000):
            check_counts(drawn(loader(names, weights, draws=draws)), weights, draws)


tap.main()
