#!/usr/bin/python3
"""The Python package: mix= by name and in stages, states that go on with another mix, batch or fields."""
import random
import subprocess

import tap

tap.python_package()  # or SKIP

import penstock

SETS = {"web": (20, 24, 17, 30), "code": (9, 11, 14), "math": (6, 5, 8), "new": (7, 9)}
FIELDS = {"label": penstock.Int("cls")}


def shards():
    """The label of a sample is 1000 times its dataset's number, plus its own. Returns the shards by name."""
    found = {}
    for d, (name, counts) in enumerate(SETS.items()):
        number = 1000 * d
        for s, n in enumerate(counts):
            files = []
            for i in range(n):
                files.append(("%d-%02d.cls" % (s, i), b"%d" % number))
                number += 1
            tap.make_tar("%s-%d.tar" % (name, s), files)
        found[name] = ["%s-%d.tar" % (name, s) for s in range(len(counts))]
        subprocess.run([tap.LOADER, "index"] + found[name], check=True, capture_output=True)
    return found


ALL = shards()
THREE = {name: ALL[name] for name in ("web", "code", "math")}


def loader(mix, names=None, **options):
    given = {"fields": FIELDS, "format": "numpy", "global_batch": 8, "steps": 400, "shuffle_window": 32, "rank": 0, "world": 1}
    return penstock.Loader(names or THREE, mix=mix, **{**given, **options})


def labels(load, batches):
    found = []
    for batch in load:
        found.append([int(x) for x in batch["label"]])
        if len(found) == batches:
            break
    return found


def by_set(batches):
    found = {name: [] for name in SETS}
    for batch in batches:
        for label in batch:
            found[list(SETS)[label // 1000]].append(label)
    return found


def in_place(function):
    """A test of the shards that were made above."""
    function.in_place = True
    return tap.test(function)


def raises(kind, function, *words):
    try:
        function()
    except kind as e:
        for word in words:
            assert word in str(e), "%r is not in %r" % (word, str(e))
        return
    raise AssertionError("%s was not raised" % kind.__name__)


@in_place
def mixes_are_given_by_name_by_number_and_in_stages():
    rows = by_set(labels(loader({"web": 6, "code": 3, "math": 1}), 50))
    assert [round(len(rows[name]) / 40) for name in THREE] == [6, 3, 1], {k: len(v) for k, v in rows.items()}
    same = labels(penstock.Loader(["web-{0..3}.tar", "code-{0..2}.tar", "math-{0..2}.tar"], mix=[6, 3, 1], fields=FIELDS,
                                  format="numpy", batch=8, steps=50), 50)
    assert [len(v) for v in by_set(same).values()] == [len(v) for v in rows.values()]
    # At once: math waits until step 10. Linearly: code has half of what it has at the end.
    first = labels(loader([(0, {"web": 1, "code": 1}), (10, {"math": 1})]), 20)
    assert all(label < 2000 for batch in first[:10] for label in batch)
    assert all(label >= 2000 for batch in first[10:] for label in batch)
    ramp = by_set(labels(loader([(0, {"web": 1}), (40, {"code": 1}, "linear")]), 40))
    assert abs(len(ramp["code"]) - 160) <= 3, len(ramp["code"])
    steps = labels(loader([(0, {"web": 1}), (10, {"code": 1})]), 20)
    assert labels(loader([(0, {"web": 1}), (80, {"code": 1}, "rows")]), 20) == steps


@in_place
def wrong_mixes_are_refused():
    for mix, words in (
        ({"web": 1, "cod": 1}, ["'cod'", "web, code, math"]),
        ([(0, {"web": 1}), (0, {"code": 1})], ["stage 1 begins at row 0", "not after stage 0"]),
        ([(5, {"web": 1})], ["the first stage must begin at 0"]),
        ([(0, {"web": 1}), (10, {"code": 1}, "slowly")], ["'slowly'", "linear"]),
        ([(0, {"web": 0})], ["all weights of stage 0 are 0"]),
        ({"web": -1, "code": 1}, ["weight -1", "0 or more"]),
        ([1, 2], ["2 weights for 3"]),
        (None, ["needs mix="]),
    ):
        raises(ValueError, lambda: loader(mix), *words)
    raises(ValueError, lambda: loader({"web": 1}, ["web-0.tar", "code-0.tar"]), "no names")


@in_place
def a_run_resumes_at_each_step_of_a_schedule_in_any_world():
    stages = [(0, {"web": 8, "code": 2}), (6, {"web": 1, "code": 1, "math": 1}, "linear"), (9, {"math": 1}), (12, {"web": 1})]
    whole = labels(loader(stages, steps=16), 16)
    for step in range(1, 16):
        first = loader(stages, steps=16)
        assert labels(first, step) == whole[:step]
        state = first.state_dict()
        for world in (1, 2, 4):
            ranks = []
            for rank in range(world):
                load = loader(stages, steps=16, rank=rank, world=world)
                load.load_state_dict(state)
                ranks.append(labels(load, 16))
            rest = [sorted(sum(rows, [])) for rows in zip(*ranks)]
            assert rest == [sorted(rows) for rows in whole[step:]], (step, world)


@in_place
def a_mix_changed_at_each_of_100_steps_loses_and_repeats_nothing():
    rnd = random.Random(3)
    own = by_set(labels(loader({"web": 1, "code": 1, "math": 1}), 400))
    run = loader({"web": 1, "code": 1, "math": 1})
    got = labels(run, 1)
    for step in range(100):
        weights = {name: rnd.randrange(1, 9) for name in THREE if rnd.random() < 0.8} or {"web": 1}
        mix = [(0, weights), (2, {"math": 1})] if step % 2 else weights
        state = run.state_dict()
        names = THREE if step % 3 else dict(reversed(list(THREE.items())))
        run = loader(mix, names)
        if any(weights.get(name, 0) != 1 for name in THREE):
            raises(penstock.StateError, lambda: run.load_state_dict(state))
        run.load_state_dict(state, mix="new")
        got += labels(run, 1)
    for name, rows in by_set(got).items():
        assert rows == own.get(name, [])[: len(rows)], name
    assert all(len(rows) > 50 for name, rows in by_set(got).items() if name != "new")


@in_place
def a_new_dataset_begins_at_its_first_row_and_one_that_left_goes_on_when_it_comes_back():
    options = {"order": "shards"}
    own = by_set(labels(loader({"web": 2, "code": 1, "math": 1}, **options), 100))
    fresh = by_set(labels(loader({"web": 1, "new": 1}, {"web": ALL["web"], "new": ALL["new"]}, **options), 40))
    run = loader({"web": 2, "code": 1, "math": 1}, **options)
    got = labels(run, 10)
    for sets, mix in ((("web", "new"), {"web": 1, "new": 1}), (("new", "web", "code", "math"), {"code": 2, "math": 1, "new": 1})):
        state = run.state_dict()
        run = loader(mix, {name: ALL[name] for name in sets}, **options)
        run.load_state_dict(state, mix="new")
        got += labels(run, 10)
    rows = by_set(got)
    for name in THREE:
        assert rows[name] == own[name][: len(rows[name])], name
    assert rows["new"] == fresh["new"][: len(rows["new"])] and len(rows["new"]) > 50
    assert abs(len(rows["code"]) - 60) <= 3
    # The state of a changed run is resumed without mix="new".
    run = loader(mix, {name: ALL[name] for name in sets}, state=run.state_dict(), **options)
    rows = iter(run)
    labels(rows, 3)
    state = run.state_dict()
    rest = labels(rows, 5)
    again = loader(mix, {name: ALL[name] for name in sets}, state=state, **options)
    assert labels(again, 5) == rest


@in_place
def a_schedule_with_the_same_past_is_taken_and_another_is_refused():
    first = loader([(0, {"web": 1, "code": 1}), (10, {"math": 1})])
    labels(first, 6)
    state = first.state_dict()
    other = loader([(0, {"web": 1, "code": 1}), (7, {"web": 1, "math": 1})])
    other.load_state_dict(state)
    assert len(labels(other, 3)) == 3
    raises(penstock.StateError, lambda: loader([(0, {"web": 1, "code": 1}), (5, {"math": 1})]).load_state_dict(state),
           'dataset "', "of 48 rows", 'mix="new"')
    raises(penstock.StateError, lambda: loader({"web": 1, "code": 1, "math": 1}, {**THREE, "code": ALL["new"]}).load_state_dict(
        state, mix="new"), 'other shards of dataset "code"')


@in_place
def a_run_goes_on_with_another_global_batch():
    mix = [(0, {"web": 3, "code": 1}), (10, {"code": 1, "math": 1}, "linear")]
    rows = sum(labels(loader(mix, steps=30, lanes=8), 30), [])
    run = loader(mix, steps=30)
    plain = sum(labels(loader(mix, steps=30), 30), [])
    got = labels(run, 7)
    for batch, steps in ((12, 5), (5, 4), (16, 100)):
        state = run.state_dict()
        run = loader(mix, steps=30, global_batch=batch)
        run.load_state_dict(state)
        assert len(run) == len(got) + -(-(240 - sum(map(len, got))) // batch)
        got += labels(run, steps)
    assert [len(b) for b in got] == [8] * 7 + [12] * 5 + [5] * 4 + [16] * 6 + [8]
    assert sum(got, []) == plain and len(rows) == 240
    following = labels(run, 100)  # the epoch after it: as many samples
    assert [len(b) for b in following] == [16] * 15
    # A loader that was given other lanes is refused.
    raises(penstock.StateError, lambda: loader(mix, steps=30, lanes=3).load_state_dict(state), "lanes")


@in_place
def fields_may_differ_if_they_are_ignored():
    run = loader({"web": 1, "code": 1, "math": 1})
    rows = iter(run)
    labels(rows, 3)
    state = run.state_dict()
    rest = labels(rows, 3)
    other = loader({"web": 1, "code": 1, "math": 1}, fields={"label": penstock.Int("cls"), "again": penstock.Int("cls")},
                   transform_version=3)
    raises(penstock.StateError, lambda: other.load_state_dict(state), "transform_version")
    other.load_state_dict(state, ignore="fields")
    assert labels(other, 3) == rest
    third = loader({"web": 1, "code": 1, "math": 1}, fields={"label": penstock.Int("cls"), "again": penstock.Int("cls")})
    raises(penstock.StateError, lambda: third.load_state_dict(state), 'ignore="fields"')
    raises(ValueError, lambda: third.load_state_dict(state, ignore="order"), "ignore")
    raises(ValueError, lambda: third.load_state_dict(state, mix={"web": 1}), "mix")


tap.main()
