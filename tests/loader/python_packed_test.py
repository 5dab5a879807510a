#!/usr/bin/python3
"""Packed rows of tokens agree with a model in Python (packed_model.py): in their order, for all worlds, from each point where
a run may resume, and with little memory. PENSTOCK_TEST_LONG=1 tries more files."""
import os
import struct
import warnings

import tap

tap.python_package(needed=("numpy",))

import numpy

import packed_model
import penstock

warnings.filterwarnings("ignore", ".* are in no row of .*")  # of small files, a row is much
LONG = os.environ.get("PENSTOCK_TEST_LONG") == "1"
PARTS = ("positions", "segments", "mask", "cu", "document")
END = 0


def token_file(path, lens, random, kind):
    """Writes a file of documents: "idx", "ds" or "end" (an end token after each). Returns its tokens and losses."""
    tokens = random.integers(1, 60000, sum(lens)).astype("<u2")
    loss = None
    ends = numpy.cumsum(lens, dtype="<i8")
    if kind == "end":
        tokens[ends[numpy.asarray(lens) > 0] - 1] = END
    if kind == "idx":
        with open(path[:-4] + ".idx", "wb") as f:
            f.write(struct.pack("<9sQBQQ", b"MMIDIDX\0\0", 1, 8, len(lens), len(lens) + 1))
            for column in (numpy.asarray(lens, "<i4"), (ends - lens) * 2, numpy.arange(len(lens) + 1, dtype="<i8")):
                f.write(column.tobytes())
    if kind == "ds":
        tap.write(path + ".index", ends.tobytes())
        loss = random.integers(0, 2, len(tokens)).astype("u1")
        tap.write(path + ".loss", loss.tobytes())
    tap.write(path, tokens.tobytes())
    return tokens, loss


def lengths(random, total):
    """Lengths of documents, of some distribution."""
    out, done = [], 0
    while done < total:
        n = [lambda: random.lognormal(3, 1), lambda: 40, lambda: random.integers(1, 5), lambda: random.lognormal(5, 1.5),
             lambda: random.integers(60, 70), lambda: 1 if random.random() < .9 else 3000][total % 6]()
        out.append(max(1, int(n)))
        done += out[-1]
    return out


class Corpus:
    """Token files of all kinds, and the model of their rows."""

    def __init__(self, seed, sizes, length, pack, kinds=("idx", "ds", "end"), empty=True, **options):
        random = numpy.random.default_rng(seed)
        if pack == "whole":
            kinds = [kind for kind in kinds if kind != "end"]
            options["long_documents"] = ("split", "truncate", "drop")[seed % 3]
        self.paths, self.tokens, self.losses, files = [], [], [], []
        for i, total in enumerate(sizes):
            kind = kinds[i % len(kinds)]
            lens = lengths(random, total)
            if empty and kind != "end":
                lens[len(lens) // 2:len(lens) // 2] = [0, 0]
            path = "t%d-%03d.%s" % (seed, i, {"idx": "bin", "ds": "ds", "end": "npy"}[kind])
            tokens, loss = token_file(path, lens, random, kind)
            self.paths.append(path)
            self.tokens.append(tokens)
            self.losses.append(loss)
            files.append(lens)
        self.kinds, self.length, self.seed = kinds, length, seed
        self.options = {"pack": pack, "end_token": END, "source_dtype": "u16", "parts": PARTS, **options}
        self.model = packed_model.Model(files, length, pack, seed, options.get("long_documents"))

    def loader(self, batch, **options):
        options = {"order": "window", "seed": self.seed, "threads": 1, "format": "numpy", **options}
        return penstock.Loader(self.paths, batch, {"x": penstock.Tokens(length=self.length, **self.options)}, **options)

    def stretch_of(self, shard):
        return self.model.stretches[shard]

    def row(self, file, parts):
        """x, y, positions, segments, mask and the parts of a row, by the model."""
        x, y = numpy.zeros(self.length, "i8"), numpy.zeros(self.length, "i8")
        positions, segments, mask = (numpy.zeros(self.length, "i4") for _ in range(3))
        tokens, loss, at, lens, documents = self.tokens[file], self.losses[file], 0, [], []
        for number, (begin, n, document, ends) in enumerate(parts, 1):
            x[at:at + n] = tokens[begin:begin + n]
            m = n - ends
            y[at:at + m] = tokens[begin + 1:begin + 1 + m]
            positions[at:at + n] = numpy.arange(n)
            segments[at:at + n] = number
            mask[at:at + m] = 1 if loss is None else loss[begin + 1:begin + 1 + m]
            at += n
            lens.append(n)
            starts = self.model.starts[file]
            # Without an index: the first token of the document in its piece.
            documents.append(document if self.paths[file][-3:] != "npy" else max(starts[document], begin // self.model.piece * self.model.piece))
        if at < self.length:
            positions[at:] = numpy.arange(self.length - at)
            lens.append(self.length - at)
            documents.append(-1)
        return x, y, positions, segments, mask, lens, documents

    def check(self, batch, rows):
        """Compares a batch with the model's rows; returns their (file, number)."""
        names, lens, documents = [], [], []
        for k in range(len(batch["x"])):
            if not batch["__valid__"][k]:
                continue
            file, number = int(batch["__shard__"][k]), int(batch["__sample__"][k])
            names.append((file, number))
            want = self.row(file, rows[file, number])
            for name, value in zip(("x", "x:y", "x:positions", "x:segments", "x:mask"), want):
                if not (batch[name][k] == value).all():
                    raise AssertionError("%s of row %d of %s\nhave %s\nwant %s" % (name, number, self.paths[file], batch[name][k], value))
            lens += want[5]
            documents += want[6]
        if batch["__valid__"].all():
            tap.equal(batch["x:cu"].tolist(), numpy.cumsum([0, *lens]).tolist())
            tap.equal(batch["x:document"].tolist(), documents)
            tap.equal(batch["x:longest"], max(lens))
        return names


def taken(corpus, rows):
    """How often each token of each file is in the rows."""
    seen = [numpy.zeros(len(tokens), "i4") for tokens in corpus.tokens]
    for (file, _), parts in rows.items():
        for begin, n, _, _ in parts:
            seen[file][begin:begin + n] += 1
    return seen


def once(corpus, rows):
    """Every token is in a row, once, except less than a row at the end of a file. Returns how many are in none."""
    missing = 0
    for seen in taken(corpus, rows):
        assert seen.max() <= 1, seen.max()
        left = int((seen == 0).sum())
        if corpus.options["pack"] != "whole":
            assert left < corpus.length and (seen[:len(seen) - left] == 1).all(), left
        missing += left
    return missing


SMALL = [700, 3001, 90, 5000, 1234, 2222, 4003, 800, 6000, 3100, 2500, 1900]


def corpora():
    for pack in ("fit", "concat", "whole"):
        yield Corpus(len(pack), SMALL, 64, pack)
        yield Corpus(11, SMALL, 200, pack)
    for seed in range(20, 60 if LONG else 23):
        random = numpy.random.default_rng(seed)
        yield Corpus(seed, random.integers(100, 6000, 9).tolist(), int(random.integers(8, 400)), ("fit", "concat", "whole")[seed % 3])
    # Several pieces in a file: of 32 rows each.
    for pack in ("fit", "concat", "whole") if LONG else ("fit",):
        yield Corpus(60, [5 * 32 * 33000 + 7], 33000, pack, kinds=("idx",))
        yield Corpus(61, [3 * 32 * 33000 - 7], 33000, pack, kinds=("end",) if pack != "whole" else ("ds",))


@tap.test
def rows_are_those_of_the_model():
    for corpus in corpora():
        for epoch in range(2):
            rows = corpus.model.epoch(epoch)
            missing = once(corpus, rows)
            for order in ("none", "window"):
                load, names = corpus.loader(7, order=order, end="uneven"), []
                load.set_epoch(epoch)
                for batch in load:
                    names += corpus.check(batch, rows)
                if order == "none":
                    tap.equal(names, sorted(rows))
                tap.equal(sorted(names), sorted(rows))
                stats = load.stats()
                tap.equal((stats["tokens"], stats["tokens_left_out"]), (sum(map(len, corpus.tokens)), missing))
        if corpus.options["pack"] == "fit":
            parts = [part for row in rows.values() for part in row]
            padding = len(rows) * corpus.length - sum(n for _, n, _, _ in parts)
            tap.equal(padding, len(rows) * corpus.model.slack)


@tap.test
def every_world_has_the_same_steps():
    corpus = Corpus(3, SMALL * 6, 64, "fit")
    rows = [corpus.model.epoch(epoch) for epoch in range(2)]
    load = corpus.loader(64, end="drop_last")
    want = [set(corpus.check(batch, rows[epoch])) for epoch in range(2) for batch in load]
    for world in (2, 3, 4, 8, 16, 32, 64) if not LONG else range(2, 65):
        if 64 % world == 0:
            ranks = [corpus.loader(64 // world, rank=rank, world=world, end="drop_last") for rank in range(world)]
            have = [set() for _ in want]
            for load in ranks:
                for epoch in range(2):
                    n = len(want) // 2
                    for step, batch in enumerate(load):
                        have[n * epoch + step] |= set(corpus.check(batch, rows[epoch]))
            tap.equal(have == want, True, "world %d" % world)
        else:
            names = []
            for rank in range(world):
                for batch in corpus.loader(5, rank=rank, world=world, end="uneven"):
                    names += corpus.check(batch, rows[0])
            tap.equal(sorted(names), sorted(rows[0]), "world %d" % world)


@tap.test
def a_run_resumes_at_every_step_with_every_world():
    for pack in ("fit", "concat", "whole"):
        corpus = Corpus(5, SMALL * 2, 64, pack)
        rows = [corpus.model.epoch(epoch) for epoch in range(2)]
        load, steps, states = corpus.loader(64, end="drop_last"), [], []
        for epoch in range(2):
            for batch in load:
                steps.append((epoch, set(corpus.check(batch, rows[epoch]))))
                states.append(load.state_dict())
        for at, state in enumerate(states):
            for world in (1, 2, 4, 8, 16, 32, 64) if LONG else ((1, 8), (64,), (2,))[at % 3]:
                have = [set() for _ in steps]
                for rank in range(world):
                    load = corpus.loader(64 // world, rank=rank, world=world, end="drop_last")
                    load.load_state_dict(state)
                    step = at + 1
                    while step < len(steps):
                        for batch in load:
                            have[step] |= set(corpus.check(batch, rows[steps[step][0]]))
                            step += 1
                tap.equal(have[at + 1:] == [names for _, names in steps[at + 1:]], True, "step %d, world %d" % (at, world))


@tap.test
def with_memory_for_a_quarter_of_the_pieces_the_rows_are_the_same():
    """16 lanes have pieces of 2 MiB."""
    for kind in ("idx", "end", "ds"):
        random = numpy.random.default_rng(9)
        corpus = Corpus(9, [], 8192, "fit")
        for i in range(16):
            lens = numpy.maximum(1, random.lognormal(6, 1, 1000)).astype(int).tolist()
            path = "m%d.%s" % (i, {"idx": "bin", "ds": "ds", "end": "npy"}[kind])
            corpus.paths.append(path)
            token_file(path, lens, random, kind)
        runs = {}
        for budget in (0, 256 << 20, BUDGETS[kind]):
            load = corpus.loader(2, memory_budget=budget or None, lanes=16, end="uneven")
            runs[budget] = [(batch["x"].tobytes(), batch["x:y"].tobytes(), batch["x:mask"].tobytes(), batch["x:cu"].tobytes()) for batch in load]
            tap.equal((budget, load.stats()["reread"] > 0), (budget, budget == BUDGETS[kind]))
        tap.equal(runs[0] == runs[256 << 20] == runs[BUDGETS[kind]], True, kind)


def attention(x, q, k, v, same):
    """Causal attention of the tokens of x, between those that `same` allows."""
    scores = q[x] @ k[x].T / 4
    scores[~(same & numpy.tri(len(x), dtype=bool))] = -numpy.inf
    weights = numpy.exp(scores - scores.max(1, keepdims=True))
    return weights / weights.sum(1, keepdims=True) @ v[x]


@tap.test
def attention_by_cu_is_that_of_each_document_alone():
    corpus = Corpus(4, SMALL, 96, "fit")
    rows = corpus.model.epoch(0)
    q, k, v = numpy.random.default_rng(1).normal(size=(3, 60001, 16))
    for n, batch in zip(range(40), corpus.loader(4, end="drop_last")):
        cu, x = batch["x:cu"], batch["x"].reshape(-1)
        part = numpy.searchsorted(cu, numpy.arange(len(x)), "right")
        have, at = attention(x, q, k, v, part[:, None] == part), 0
        tap.equal(batch["x:longest"], int(numpy.diff(cu).max()))
        for file, number in corpus.check(batch, rows):
            for begin, n, _, _ in rows[file, number]:
                alone = corpus.tokens[file][begin:begin + n]
                want = attention(alone, q, k, v, numpy.ones((n, n), bool))
                assert numpy.allclose(have[at:at + n], want, atol=1e-9)
                at += n
            at += -at % corpus.length
        tap.equal(at, len(x))


BUDGETS = {"idx": 12 << 20, "end": 12 << 20, "ds": 16 << 20}

if __name__ == "__main__":
    tap.main()
