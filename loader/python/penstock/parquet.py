"""Writes rows of Parquet files into shards, for `penstock-loader pack --from`."""
from __future__ import annotations

import argparse
import glob
import json
import os
import sys
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

from .writer import ShardWriter

_MAGIC = ((b"\xff\xd8\xff", "jpg"), (b"\x89PNG\r\n\x1a\n", "png"), (b"RIFF", "webp"))


class _Wrong(Exception):
    """An error of the command line or the files; its text is for the user."""


def _files(source: str) -> List[str]:
    files = sorted(glob.glob(os.path.join(glob.escape(source), "*.parquet")) if os.path.isdir(source) else glob.glob(source))
    if not files:
        raise _Wrong("--from %s: there is no %s" % (source, "*.parquet in it" if os.path.isdir(source) else "such file"))
    return files


def _column(word: str) -> Tuple[str, Optional[str]]:
    """Parses COLUMN or COLUMN=SUFFIX."""
    name, _, suffix = word.partition("=")
    if not name or word.endswith("="):
        raise _Wrong("%r: COLUMN or COLUMN=SUFFIX is needed, as image.bytes or label=cls" % word)
    return name, suffix or None


def _at(row: Any, path: str) -> Any:
    """row["a"]["b"] for "a.b", unless a column has that name with its dot."""
    if path in row:
        return row[path]
    for name in path.split("."):
        row = None if row is None else row[name]
    return row


def _suffix_of(name: str, value: Any) -> str:
    if isinstance(value, bytes):
        for magic, suffix in _MAGIC:
            if value.startswith(magic) and (suffix != "webp" or value[8:12] == b"WEBP"):
                return suffix
        raise _Wrong("column %s: its bytes are not a JPEG, PNG or WebP: give their suffix by %s=SUFFIX" % (name, name))
    if isinstance(value, dict) and isinstance(value.get("bytes"), bytes):
        raise _Wrong("column %s: the image is in %s.bytes: name that column" % (name, name))
    return "cls" if isinstance(value, int) else "txt" if isinstance(value, (str, float)) else "json"


def _samples(files: Sequence[str], columns: Sequence[Tuple[str, Optional[str]]], left_out: List[int]) -> Iterator[Dict[str, Any]]:
    import pyarrow.parquet

    number = 0
    for file in files:
        parquet = pyarrow.parquet.ParquetFile(file)
        have = parquet.schema_arrow.names
        for name, _ in columns:
            if name not in have and name.split(".")[0] not in have:
                raise _Wrong("%s: there is no column %s; there are %s" % (file, name, ", ".join(have)))
        for batch in parquet.iter_batches(batch_size=64, columns=[name for name, _ in columns]):
            for row in batch.to_pylist():
                sample: Dict[str, Any] = {"__key__": "%09d" % number}
                number += 1
                for name, suffix in columns:
                    try:
                        value = _at(row, name)
                    except (KeyError, TypeError):
                        raise _Wrong("%s: there is nothing at %s in its columns" % (file, name)) from None
                    if value is None:
                        continue
                    suffix = suffix or _suffix_of(name, value)
                    if suffix in sample:
                        raise _Wrong("two columns would be .%s, the second one %s: give one of them another suffix, as "
                                     "%s=SUFFIX" % (suffix, name, name))
                    sample[suffix] = value
                if len(sample) == 1 + len(columns):
                    yield sample
                else:
                    left_out[0] += 1


def _classes(file: str, columns: Sequence[Tuple[str, Optional[str]]]) -> List[str]:
    """The names of the classes, if the datasets library stored them."""
    import pyarrow.parquet

    noted = (pyarrow.parquet.read_schema(file).metadata or {}).get(b"huggingface")
    features = json.loads(noted).get("info", {}).get("features", {}) if noted else {}
    for name, _ in columns:
        feature = features.get(name)
        if isinstance(feature, dict) and feature.get("_type") == "ClassLabel" and feature.get("names"):
            return [str(name) for name in feature["names"]]
    return []


def _pack(o: argparse.Namespace) -> None:
    *words, out = o.words
    if not words:
        raise _Wrong("--from: name the columns, then the shards: --from x.parquet image.bytes label 'train-%06d.tar'")
    columns, files, left_out = [_column(word) for word in words], _files(o.source), [0]
    done: List[str] = []
    samples = 0
    with ShardWriter(out, o.max_count, o.max_size, index=o.index, level=o.zstd, overwrite=o.force, post=done.append) as sink:
        for sample in _samples(files, columns, left_out):
            sink.write(sample)
            samples += 1
    if not samples:
        raise _Wrong("--from %s: no row has all of %s" % (o.source, ", ".join(name for name, _ in columns)))
    if left_out[0]:
        print("penstock-loader pack: %d rows that lack a value in some column are left out" % left_out[0], file=sys.stderr)
    classes = _classes(files[0], columns)
    if classes:
        with open(os.path.join(os.path.dirname(out), "CLASSES.txt"), "w") as f:
            f.writelines(name.replace("\n", " ") + "\n" for name in classes)
    nbytes = sum(os.path.getsize(name) for name in done)
    if o.json:
        print(json.dumps({"shards": len(done), "samples": samples, "bytes": nbytes}))
    else:
        print("%d sample%s in %d shard%s, %d bytes" % (samples, "s"[: samples != 1], len(done), "s"[: len(done) != 1], nbytes))


def main(arguments: Optional[Sequence[str]] = None) -> int:
    parser = argparse.ArgumentParser(prog="penstock-loader pack", allow_abbrev=False)
    parser.add_argument("--from", dest="source", required=True)
    parser.add_argument("--max-size", type=int, default=1 << 30)
    parser.add_argument("--max-count", type=int, default=sys.maxsize)
    parser.add_argument("--zstd", type=int)
    for flag in ("--index", "--force", "--json"):
        parser.add_argument(flag, action="store_true")
    parser.add_argument("words", nargs="+")
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError as e:
        print("penstock-loader pack: --from reads Parquet with pyarrow, which %s does not have (%s): %s -m pip install pyarrow, or "
              "name another Python by PENSTOCK_PYTHON" % (sys.executable, e, sys.executable), file=sys.stderr)
        return 1
    try:
        _pack(parser.parse_args(arguments))
    except (_Wrong, OSError, ValueError) as e:
        print("penstock-loader pack: %s" % e, file=sys.stderr)
        return 1
    return 0
