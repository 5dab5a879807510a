#!/usr/bin/python3
"""Token files of Megatron's and datatrove's own writers (tests/data/tokens) are read back token for token, packed in each
way."""
import os
import sys

import tap

tap.python_package(needed=("numpy",))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(tap.SRC, "tests/data/tokens"))
import make_tokens as made  # noqa: E402
import penstock  # noqa: E402

LENGTH, PAD = 64, -5


def batches(file, pack, **options):
    source = None if file.endswith(".bin") else "u16" if "u16" in file else "u32"
    field = penstock.Tokens(length=LENGTH if pack == "fit" else 63, pack=pack, dtype="i64", source_dtype=source,
                            parts=("positions", "segments", "mask", "cu", "document"), pad_value=PAD, **options)
    loader = penstock.Loader(os.path.join(tap.SRC, "tests/data/tokens", file), 4, {"x": field}, format="numpy", seed=3,
                             end="uneven", copy=True)
    return list(loader)


def parts_of(batch):
    """Each part: document, x, y, mask, positions, as lists."""
    flat = [batch[name].reshape(-1).tolist() for name in ("x", "x:y", "x:mask", "x:positions")]
    cu = batch["x:cu"].tolist()
    tap.equal(cu[-1], len(flat[0]), "cu ends with the tokens of the batch")
    for document, begin, end in zip(batch["x:document"].tolist(), cu, cu[1:]):
        yield (document, *(values[begin:end] for values in flat))


def place_of(part, document):
    """The place of a part in its document: no two places of a document have the same two tokens."""
    for place in range(len(document) - len(part) + 1):
        if document[place:place + len(part)] == part:
            return place
    raise AssertionError(f"{part} is not in {document}")


def read_back(file, pack, **options):
    def check():
        documents = made.documents(file)
        seen = [[0] * len(document) for document in documents]
        loss = made.losses if file == "datatrove_u16.ds" else lambda number, document: [True] * len(document)
        for batch in batches(file, pack, **options):
            for number, x, y, mask, positions in parts_of(batch):
                tap.equal(positions, list(range(len(x))))
                if number < 0:
                    tap.equal((x, y, sum(mask)), ([PAD] * len(x), [PAD] * len(x), 0), "padding")
                    continue
                document, counts = documents[number], loss(number, documents[number])
                place = place_of(x, document)
                for i in range(len(x)):
                    seen[number][place + i] += 1
                end = place + len(x) == len(document)
                tap.equal(y, document[place + 1:place + len(x) + 1] + [PAD] * end, "y is the document's next token")
                tap.equal(mask, [int(c) for c in counts[place + 1:place + len(x) + 1]] + [0] * end, "mask")
        tap.equal(seen, [[1] * len(document) for document in documents], "each token comes once")

    return check


def type_refused(file):
    def check():
        field = penstock.Tokens(length=LENGTH, pack="fit", source_dtype="u32")
        try:
            penstock.Loader(os.path.join(tap.SRC, "tests/data/tokens", file), 4, {"x": field})
        except (ValueError, penstock.Error) as e:
            assert file.split(".")[0] in str(e) and "source_dtype" in str(e), e
        else:
            raise AssertionError("a type that contradicts the index was taken")

    return check


@tap.test
def a_batch_says_the_sizes_of_its_parts():
    for cu_pad in (None, 500):
        field = penstock.Tokens(length=LENGTH, pack="fit", cu_pad=cu_pad, parts=("cu", "document"))
        file = os.path.join(tap.SRC, "tests/data/tokens/megatron_u16.bin")
        with penstock.Loader(file, 4, {"x": field}, format="numpy") as loader:
            spec, batch = loader.element_spec, next(iter(loader))
            spec = spec() if callable(spec) else spec
            parts = len(batch["x:document"])
            tap.equal(spec["x:cu"].shape, (cu_pad and 501,))
            tap.equal(spec["x:document"].shape, (cu_pad,))
            tap.equal(spec["x:longest"].shape, ())
            tap.equal(batch["x:cu"].shape, (parts + 1,))
            tap.equal((type(batch["x:longest"]), parts), (int, cu_pad or parts))
            tap.equal(batch["x:longest"], max(int(end - begin) for begin, end in zip(batch["x:cu"], batch["x:cu"][1:])))


@tap.test
def tokens_need_a_length():
    try:
        penstock.Tokens()
    except TypeError as e:
        assert "length=" in str(e), e
    else:
        raise AssertionError("Tokens() without length was taken")


@tap.test
def indexes_of_token_files_are_mounted_with_them():
    mounted = penstock.remote._with_indexes
    tap.equal(mounted("s3://b/web/*.bin", False, True), "s3://b/web/*{.bin,.idx}")
    tap.equal(mounted("hf://datasets/o/n/x-{0..3}.ds", False, True), "hf://datasets/o/n/x-{0..3}.ds{,.index,.loss}")
    tap.equal(mounted("s3://b/x.npy", False, True), "s3://b/x.npy")
    tap.equal(mounted("s3://b/x.bin", False, False), "s3://b/x.bin", "without tokens a .bin is a tar")
    tap.equal(mounted("s3://b/x.tar", True, True), "s3://b/x.tar{,.psx}")


def register(name, case):
    case.__name__ = name
    tap.test(case)


for FILE in made.FILES:
    for PACK, OPTIONS in (("fit", {}), ("concat", {}), ("whole", {"long_documents": "split"})):
        register(f"{FILE}-{PACK}-is-read-back-token-for-token", read_back(FILE, PACK, **OPTIONS))
for FILE in ("megatron_u16.bin", "megatron_i32.bin", "datatrove_u16.ds"):
    register(f"{FILE}-is-not-read-as-another-type", type_refused(FILE))

if __name__ == "__main__":
    tap.main()
