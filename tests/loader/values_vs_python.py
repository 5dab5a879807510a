#!/usr/bin/python3
"""Compares values in every form that a member may have with what numpy and Python's json read."""
import ast
import io
import itertools
import json
import operator
import random

import tap

tap.python_package()  # or SKIP

import numpy

import penstock


def npy(array):
    out = io.BytesIO()
    numpy.save(out, array)
    return out.getvalue()


def rows(members, fields, **options):
    """One batch of samples with these members, in this order."""
    files = [("%06d.%s" % (i, suffix), data) for i, sample in enumerate(members) for suffix, data in sample.items()]
    tap.make_tar("t.tar", files)
    load = penstock.Loader("t.tar", len(members), fields, order="none", format="numpy", **options)
    return next(iter(load))


@tap.test
def arrays_convert_between_types_as_in_numpy():
    kinds = {"u8": "u1", "u16": "u2", "i16": "i2", "i32": "i4", "i64": "i8", "f16": "f2", "f32": "f4", "f64": "f8"}
    tried = 0
    for (source, code), (dtype, wanted) in itertools.product(kinds.items(), kinds.items()):
        if not numpy.can_cast(code, wanted, "safe"):
            continue
        info = numpy.iinfo(code) if code[0] in "iu" else numpy.finfo(code)
        values = numpy.array([[info.min, info.max, 0], [1, 2, info.max // 3]]).astype(code)
        forms = [values.astype(order + code) for order in "<>"] + [numpy.asfortranarray(values)]
        try:
            got = rows([{"npy": npy(v)} for v in forms], [penstock.Array("npy", (2, 3), dtype)])["npy"]
        except penstock.Error as e:
            assert "dtype" in str(e), e  # a type that fields do not have
            continue
        for row in got:
            assert numpy.array_equal(row, values.astype(wanted)), (source, dtype, row, values)
        tried += 1
    assert tried >= 20, tried


@tap.test
def boxes_are_the_same_in_every_form():
    boxes = numpy.array([[1, 2, 30, 40], [5, 6, 7, 8], [0, 0, 100, 90]])
    forms = [("json", json.dumps({"b": boxes.tolist()}).encode()),
             ("txt", "\n".join(" ".join(map(str, b)) for b in boxes.tolist()).encode())]
    for code in "u1", "i2", "i4", "i8", "f2", "f4", "f8":
        for array in boxes.astype("<" + code), boxes.astype(">" + code), numpy.asfortranarray(boxes.astype(code)):
            forms.append(("npy", npy(array)))
    photo = tap.read(tap.PHOTOS[0])
    got = []
    for form, data in forms:
        name = "json:b" if form == "json" else form
        fields = {"x": penstock.Image("jpg", 64, crop="none"), "boxes": penstock.Boxes(name, follow="x")}
        got.append(numpy.array(rows([{"jpg": photo, form: data}], fields)["boxes"].values))
    assert got[0].shape == (3, 4) and got[0].any(), got[0]
    for (form, data), one in zip(forms, got):
        assert numpy.array_equal(one, got[0]), (form, data, one, got[0])
    for wrong in b"1 2 3", b"1 2 3 x", npy(boxes.T), npy(boxes[0]), npy(boxes)[:-1]:
        form = "npy" if wrong.startswith(b"\x93") else "txt"
        fields = {"x": penstock.Image("jpg", 64), "boxes": penstock.Boxes(form, follow="x")}
        try:
            rows([{"jpg": photo, form: wrong}], fields)
            raise AssertionError(wrong)
        except penstock.Error as e:
            assert form in str(e), e


TEXTS = ["", "plain", "quote\" and \\ and /", "\b\f\n\r\t", "\x7f", "é", "ÿ", "߿", "ࠀ", "日本", "\ud7ff", "\ue000", "\uffff",
         "\U00010000", "\U0001f600!", "\U0010ffff", "mixed é日\U0001f600 z"]


@tap.test
def json_strings_equal_what_pythons_json_reads():
    docs = [json.dumps({"t": text}, ensure_ascii=ascii).encode() for text in TEXTS for ascii in (True, False)]
    docs += [b'{"t": "\\/\\u0041\\u00e9\\u00E9"}', b' {"a" : 1 , "t" :\t"x"\r\n}']
    got = rows([{"json": d} for d in docs], [penstock.Text("json:t")])["json:t"]
    for doc, one in zip(docs, got):
        want = json.loads(doc)["t"]
        assert (one if isinstance(one, str) else bytes(one).decode()) == want, (doc, one)
    # Names that are spelled with escapes, and names that have the separator of paths in them.
    docs = [b'{"\\u0061": {"b.c": "yes"}}', b'{"a": {"b": {"c": "no"}, "b.c": "yes"}}', b'{"x": 0, "\\u0061": {"b.c": "yes"}}']
    got = rows([{"json": d} for d in docs], [penstock.Text("json:a.b\\.c")])["json:a.b\\.c"]
    tap.equal([one if isinstance(one, str) else bytes(one).decode() for one in got], ["yes"] * 3)


@tap.test
def json_strings_are_cut_between_characters():
    for most in range(1, 12):
        docs = [json.dumps({"t": text}, ensure_ascii=ascii).encode() for text in TEXTS for ascii in (True, False)]
        batch = rows([{"json": d} for d in docs], [penstock.Text("json:t", pad_to=most, overflow="truncate")])
        for doc, row, n in zip(docs, batch["json:t"], batch["json:t:lengths"]):
            whole = json.loads(doc)["t"].encode()
            want = whole[:most]
            while want:
                try:
                    want.decode()
                    break
                except UnicodeDecodeError:
                    want = want[:-1]
            assert bytes(row) == want.ljust(most, b"\0") and n == len(want), (doc, most, bytes(row), want, n)


@tap.test
def invalid_json_is_a_bad_sample():
    bad = ['', ' ', '{', '}', '{"a": 1', '{"a" 1}', '{"a": }', '{"a": 1,}', '{,}', '{a: 1}', '{"a": 1 "b": 2}', '[1, 2', '[1 2]',
           '[1,]', '[,]', '"x', '"\\x"', '"\\u12"', '"\\u12g4"', '"\t"', '"\n"', '01', '-', '+1', '1.', '.5', '1.e3', '1e', '1e+',
           '0x10', 'nul', 'tru', 'True', '1 2', '{} {}', '// x', "'x'", '[1}', '{"a": [}', '\x01', '[' * 100000]
    bad = [text.encode() for text in bad] + [b'"\xff"', b'"\xc0\x80"', b'"\xe0\x80\x80"', b'"\xf4\x90\x80\x80"',
                                             b'"\xf0\x80\x80\x80"', b'"\xe2\x82"', b'{"a": 1}\0']
    good = [b'{"a": 1}', b'[]', b' [ ] ', b'0', b'-0', b'-0.5e-7', b'1E+2', b'"\xf0\x90\x80\x80"', b'null', b'true', b'[[[[]]]]']
    for doc in good:
        json.loads(doc)
    for doc in bad:
        try:
            json.loads(doc)
            raise AssertionError(doc)
        except (ValueError, RecursionError):
            pass
    bad.append(b'"\xed\xa0\x80"')  # half of a surrogate pair, which Python accepts
    batch = rows([{"json": b"{}"}] + [{"json": d} for d in bad + good], [penstock.Json("json")], on_error="skip")
    tap.equal([bool(v) for v in batch["__valid__"]], [True] + [False] * len(bad) + [True] * len(good))


@tap.test
def json_numbers_equal_what_pythons_json_reads():
    rng = random.Random(5)
    texts = ["0", "-0", "1", "-1", "9007199254740993", "9223372036854775807", "-9223372036854775808", "1e22", "1e23", "5e-324",
             "2.2250738585072011e-308", "1.7976931348623157e308", "0.1", "123456789012345678901234567890", "true", "false"]
    texts += ["%.*e" % (rng.randrange(20), rng.uniform(-1, 1) * 10.0 ** rng.randrange(-300, 300)) for _ in range(300)]
    docs = [('{"v": %s}' % t).encode() for t in texts]
    got = rows([{"json": d} for d in docs], [penstock.Json("json:v", dtype="f64", shape=())])["json:v"]
    for text, one in zip(texts, got):
        assert float(one) == float(json.loads(text)), (text, float(one))
    whole = [t for t in texts if t.lstrip("-").isdigit() and -2**63 <= int(t) < 2**63] + ["true", "false"]
    got = rows([{"json": ('{"v": %s}' % t).encode()} for t in whole], [penstock.Int("json:v")])["json:v"]
    tap.equal([int(x) for x in got], [int(json.loads(t)) for t in whole])


@tap.test
def filters_compare_as_in_python():
    rng = random.Random(6)
    values = [{"i": rng.randrange(-3, 4), "f": rng.choice([-1.5, 0.0, 0.25, 3.0]), "t": rng.choice(["", "a", "ab", "b"])}
              for _ in range(60)]
    tap.make_tar("t.tar", [("%03d.json" % i, json.dumps(v).encode()) for i, v in enumerate(values)])
    tap.run("index", "--column", "i=json:i", "--column", "f=json:f", "--column", "t=json:t", "t.tar")
    for (name, limits), (op, holds) in itertools.product(
            (("i", ["0", "-1", "2.5"]), ("f", ["0", "0.25", "-9"]), ("t", ["''", "'a'", "'ab'"])),
            (("==", operator.eq), ("!=", operator.ne), ("<", operator.lt), ("<=", operator.le), (">", operator.gt),
             (">=", operator.ge))):
        for limit in limits:
            want = [i for i, v in enumerate(values) if holds(v[name], ast.literal_eval(limit))]
            if not want:
                continue
            load = penstock.Loader("t.tar", 1, [penstock.Int("json:i")], order="none", format="numpy",
                                   filter="%s %s %s" % (name, op, limit))
            tap.equal([int(k) for batch in load for k in batch["__key__"]], want)


@tap.test
def a_global_batch_is_split_among_the_ranks():
    tap.make_tar("t.tar", [("%03d.cls" % i, b"%d" % i) for i in range(48)])
    tap.run("index", "t.tar")
    want = None
    for world in 1, 2, 3, 4, 6, 12:
        ranks = [[numpy.array(b["cls"]) for b in penstock.Loader(
            "t.tar", 5, [penstock.Int("cls")], order="permutation", global_batch=12, world=world, rank=r, end="split",
            format="numpy")] for r in range(world)]
        tap.equal({len(b) for rank in ranks for b in rank}, {12 // world})
        steps = [sorted(int(x) for part in parts for x in part) for parts in zip(*ranks)]
        want = want or steps
        tap.equal(steps, want)
    try:
        penstock.Loader("t.tar", 5, [penstock.Int("cls")], global_batch=12, world=5, rank=0)
        raise AssertionError("12 rows of 5 ranks")
    except (penstock.Error, ValueError) as e:
        assert "multiple of world" in str(e), e


@tap.test
def weights_of_mixes_have_the_beta_distribution():
    tap.make_tar("t.tar", [("%04d.pgm" % i, b"P5 2 2 255\n\0\1\2\3") for i in range(64)])
    for alpha in 0.2, 1, 1.5, 4, 50:
        load = penstock.Loader("t.tar", 2, [penstock.Image("pgm", 2)], format="numpy", mixup_alpha=alpha, seed=1)
        drawn = numpy.array([b["__mix_lambda__"][0] for _ in range(50) for b in load], "f8")  # one for all rows
        n, variance = len(drawn), 1 / (4 * (2 * alpha + 1))
        tap.equal(n, 1600)
        assert ((0 <= drawn) & (drawn <= 1)).all()
        # Mean and variance are within six standard deviations; the seed is fixed.
        assert abs(drawn.mean() - 0.5) < 6 * (variance / n) ** 0.5, (alpha, drawn.mean())
        assert abs(drawn.var() / variance - 1) < 6 * (2 / n) ** 0.5, (alpha, drawn.var(), variance)


if __name__ == "__main__":
    tap.main()
