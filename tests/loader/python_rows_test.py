#!/usr/bin/python3
"""The rows of all ranks together, for 100 random numbers of samples and ranks, sizes of batches, ends, policies and
shards: each good sample is valid once, a rank without a sample repeats one, and no row is blank without a bad sample.
PENSTOCK_TEST_SEED repeats a run. rows_test.c tries more, in C."""
import os
import random
import time

import tap

tap.python_package()  # or SKIP

import penstock

SEED = int(os.environ.get("PENSTOCK_TEST_SEED", time.time()))
print("# PENSTOCK_TEST_SEED=%d" % SEED)
random = random.Random(SEED)
FIELDS = {"label": penstock.Int("cls"), "text": penstock.Text("txt")}


def dataset(n, nshards, bad):
    """Returns the names of shards with samples 0 to n - 1, of which those in `bad` have no number as label."""
    for s in range(nshards):
        tap.make_tar("r-%d.tar" % s, [f for i in range(s, n, nshards) for f in (
            ("%03d.cls" % i, b"x" if i in bad else b"%d" % (1000 + i)), ("%03d.txt" % i, b"text %d" % i))])
        if os.path.exists("r-%d.tar.psx" % s):
            os.unlink("r-%d.tar.psx" % s)
    return ["r-%d.tar" % s for s in range(nshards)]


def epoch(shards, rank, options):
    """Returns a rank's rows, (step, key, label, text, valid), the batches, the statistics, and the error at the end."""
    rows, error = [], None
    with penstock.Loader(shards, rank=rank, fields=FIELDS, format="numpy", copy=True, index="make", seed=5, **options) as load:
        batches = []
        try:
            for batch in load:
                rows += zip([len(batches)] * batch.rows, batch["__key__"], batch["label"].tolist(), batch["text"],
                            batch["__valid__"].tolist())
                batches.append((batch.rows, batch.valid, batch.bad))
        except penstock.BadSampleError as e:
            error = str(e)
        return rows, batches, load.stats(), error


def check(n, world, batch, end, on_error, nshards, bad):
    options = {"world": world, "batch": batch, "end": end, "on_error": on_error}
    ranks = [epoch(dataset(n, nshards, bad), r, options) for r in range(world)]
    rows = [row for r in ranks for row in r[0]]
    valid = [row for row in rows if row[4]]
    tap.equal(len({row[1] for row in valid}), len(valid), "a sample is valid twice")
    for step, key, label, text, ok in rows:
        if key:
            tap.equal((label, text), (1000 + int(key), "text %d" % int(key)))
        else:
            assert bad and not ok, "a blank row without a bad sample"
    if on_error == "fail":
        for _, batches, _, error in ranks:
            assert bool(bad) or error is None, error
            assert not any(b[2] for b in batches), batches
        if bad and end != "drop_last":
            assert any(error for *_, error in ranks)
        if bad:
            return
    else:
        for _, batches, stats, error in ranks:
            none = stats["samples"] > 0 and not any(b[1] for b in batches)
            assert (error is not None) == none, (error, batches, stats)
            assert not none or "had no good sample" in error, error
    delivered = n // (batch * world) * batch * world if end == "drop_last" else n
    tap.equal(sum(r[2]["samples"] for r in ranks), delivered)
    if end != "drop_last":
        tap.equal(sorted(int(row[1]) for row in valid), [i for i in range(n) if i not in bad])
    if end != "uneven":
        tap.equal(len({len(r[1]) for r in ranks}), 1, "ranks differ in their number of batches")
    steps = max(len(r[1]) for r in ranks)
    repeats = sum(r[2]["repeats"] for r in ranks)
    if end in ("uneven", "drop_last"):
        tap.equal(repeats, 0)
    elif steps and not bad:
        have = [r[1][steps - 1][1] for r in ranks]
        real = sum(have)
        tap.equal(repeats, have.count(0))
        for r in range(world):
            if have[r] == 0:
                own, other = ([row for row in ranks[k][0] if row[0] == steps - 1] for k in (r, r % real))
                tap.equal({row[1:4] for row in own}, {other[0][1:4]})


@tap.test
def the_rows_of_all_ranks_are_as_promised():
    for _ in range(100):
        n, world = random.randint(1, 30), random.randint(1, 7)
        bad = {i for i in range(n) if random.random() < random.choice((0.1, 0.7, 1))} if random.random() < 0.5 else set()
        case = (n, world, random.choice((1, 1, 2, 3, 5)), random.choice(("split", "split", "pad", "uneven", "drop_last")),
                random.choice(("fail", "skip", "skip")), random.randint(world, world + 3), bad)
        try:
            check(*case)
        except BaseException:
            print("# samples %d, world %d, batch %d, end %s, on_error %s, shards %d, bad %s" % case)
            raise


if __name__ == "__main__":
    tap.main()
