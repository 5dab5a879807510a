#!/usr/bin/python3
"""Samples one at a time, with select() and rename(); two iterators; the number of samples in a state."""
import copy
import json
import os

import tap

tap.python_package(needed=("numpy",))  # or SKIP

import penstock

N = 22


def refused(call, *words):
    try:
        call()
    except penstock.ConfigError as error:
        assert all(word in str(error) for word in words), error
    else:
        raise AssertionError("not refused: %s" % (words,))


def make(batch=5, **options):
    if not os.path.exists("s.tar"):  # loaders have it open
        tap.make_tar("s.tar", [m for i in range(N) for m in (
            ("%03d.cls" % i, b"x" if i == 7 else b"%d" % i), ("%03d.txt" % i, b"text %d" % i))])
    options = {"format": "numpy", "fields": {"cls": penstock.Int("cls"), "txt": penstock.Text("txt")}, "on_error": "skip", **options}
    return penstock.Loader("s.tar", batch, rank=0, world=1, **options)


@tap.test
def samples_are_the_good_rows_of_the_batches_epoch_by_epoch():
    for options in ({"order": "none"}, {"seed": 3}, {"end": "pad", "seed": 3}):
        with make(**options) as batches, make(**options) as loader:
            samples = loader.samples_iter()
            for _ in range(3):
                want = [(key, int(y), text) for b in batches for key, y, text, good in
                        zip(b["__key__"], b["cls"], b["txt"], b["__valid__"]) if good]
                tap.equal([(s["__key__"], int(s["cls"]), s["txt"]) for s in samples], want)
                tap.equal(len(want), N - 1)  # without the bad one


@tap.test
def select_and_rename_can_be_chained():
    with make(order="none") as loader:
        odd = loader.select(lambda s: s["cls"] % 2)
        tap.equal([int(s["cls"]) for s in odd], [i for i in range(1, N, 2) if i != 7])
        renamed = odd.rename(label="class;cls").select(lambda s: s["label"] > 15)
        tap.equal([sorted(s) for s in renamed], [["__key__", "label", "txt"]] * 3)
        tap.equal([sorted(s) for s in loader.rename(keep=False, a="cls").select(lambda s: s["a"] == 2)], [["a"]])
        refused(lambda: next(iter(loader.rename(image="clss"))), "clss", "cls")


@tap.test
def what_works_on_batches_is_refused():
    for name, value in (("transform", dict), ("collate", list), ("columns", ["cls"])):
        with make(**{name: value}) as loader:
            refused(loader.samples_iter, name)
    with open("t.bin", "wb") as file:
        file.write(bytes(range(200)))
    for parts in (["positions", "cu"], ["document"], ["positions", "segments", "mask"]):
        field = penstock.Tokens(length=8, pack="concat", source_dtype="u16", end_token=0, parts=parts)
        with penstock.Loader("t.bin", 2, {"x": field}, rank=0, world=1, format="numpy") as loader:
            if parts[-1] == "mask":
                tap.equal([len(value) for name, value in next(iter(loader.samples_iter())).items() if name != "__key__"], [8] * 5)
            else:
                refused(loader.samples_iter, "'x'", repr(parts[-1]), "parts=")


@tap.test
def a_copy_of_a_loader_iterates_independently():
    with make(seed=5) as first:
        whole = [b["cls"].tolist() for b in make(seed=5)]
        a = iter(first)
        got = [next(a)["cls"].tolist()]
        with copy.copy(first) as second:
            rest = [b["cls"].tolist() for b in second]
            tap.equal(rest, whole[1:])
        got += [b["cls"].tolist() for b in a]
        tap.equal(got, whole)


@tap.test
def a_state_has_the_samples_that_all_ranks_received_in_the_epoch():
    def seen(loader):
        return loader.state_dict().get("num_samples")

    for world in (1, 2):
        with make(seed=1, batch=4, steps=5) if world == 1 else penstock.Loader(
                "s.tar", 4, {"txt": penstock.Text("txt")}, rank=0, world=2, steps=5, seed=1) as loader:
            tap.equal(seen(loader), 0)
            for epoch in range(2):
                for i, _ in enumerate(loader, 1):
                    tap.equal(seen(loader), i * 4 * world)
                tap.equal(seen(loader), 0)
    with make(seed=1, batch=4) as loader:
        run = iter(loader)
        next(run), next(run)
        state = json.loads(json.dumps(loader.state_dict()))
        tap.equal(state["num_samples"], 8)
        with make(seed=1, batch=4, state=state) as other:
            tap.equal(seen(other), 8)
            run = iter(other)
            next(run)
            tap.equal(seen(other), 12)
            other.peek()
            tap.equal(seen(other), 12)
            other.set_epoch(3)
            tap.equal(seen(other), 0)
            other.load_state_dict(state)
            next(iter(other))
            tap.equal(seen(other), 12)
            other.set_epoch(3)
            other.load_state_dict(state, ignore="fields")
            tap.equal(seen(other), 8)
            next(iter(other))
            tap.equal(seen(other), 12)
            del state["num_samples"]  # as 0.3 wrote it
            other.load_state_dict(state)
            tap.equal(seen(other), None)
            list(other)
            tap.equal(seen(other), 0)


if __name__ == "__main__":
    tap.main()
