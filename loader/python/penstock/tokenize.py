"""Writes text as token files, for `penstock-loader tokenize`: one .bin and one .idx (Megatron's format) for each file."""
from __future__ import annotations

import argparse
import ctypes
import fcntl
import glob
import hashlib
import itertools
import json
import multiprocessing
import os
import signal
import struct
import subprocess
import sys
from array import array
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

_PROGRAMS = {".gz": "gzip", ".zst": "zstd"}
_worker: Dict[str, Any] = {}  # of a process of the pool


class _Wrong(Exception):
    """An error of the command line or the files; its text is for the user."""


def _stem(path: str) -> Tuple[str, str, Optional[str]]:
    """The name without its suffixes, the format, and the program that decompresses it."""
    name, last = os.path.splitext(os.path.basename(path))
    name, kind = os.path.splitext(name) if last in _PROGRAMS else (name, last)
    if kind not in (".parquet", ".jsonl", ".txt") or (kind == ".parquet" and last != kind):
        raise _Wrong("%s: only .txt, .jsonl (both also .gz or .zst) and .parquet files can be tokenized" % path)
    return name, kind, _PROGRAMS.get(last)


def _sources(words: Sequence[str]) -> Dict[str, str]:
    found: Dict[str, str] = {}  # by the names of their outputs
    for word in words:
        files = [word] if os.path.isfile(word) else glob.glob(os.path.join(word, "*") if os.path.isdir(word) else word)
        if not files:
            raise _Wrong("%s: there is no such file, or no file in this folder" % word)
        for path in sorted(files):
            if found.setdefault(_stem(path)[0], path) != path:
                raise _Wrong("%s and %s would become the same .bin: write them into two folders" % (found[_stem(path)[0]], path))
    return found


def _parquet(path: str, column: str) -> Iterator[Tuple[Any, float]]:
    import pyarrow.parquet
    with pyarrow.parquet.ParquetFile(path) as file:
        if column not in file.schema_arrow.names:
            raise _Wrong("%s: there is no column %s; there are %s" % (path, column, ", ".join(file.schema_arrow.names)))
        size = os.path.getsize(path) / max(1, file.metadata.num_rows)
        for batch in file.iter_batches(batch_size=1024, columns=[column]):
            yield from ((value, size) for value in batch.column(0).to_pylist())


def _lines(path: str, column: str, kind: str, program: Optional[str]) -> Iterator[Tuple[Any, float]]:
    command = subprocess.Popen([program or "cat", *["-dc"] * bool(program), path], stdout=subprocess.PIPE)
    for number, line in enumerate(command.stdout, 1):  # type: ignore[arg-type]
        try:
            text = line.decode().rstrip("\r\n")
            yield (json.loads(text)[column] if text.strip() else "") if kind == ".jsonl" else text, 0 if program else len(line)
        except (ValueError, KeyError, TypeError) as e:
            raise _Wrong("%s: line %d: %s" % (path, number, e if isinstance(e, ValueError) else
                                              "it has no text under %r; --column names another key" % column)) from None
    if command.wait() != 0:
        raise _Wrong("%s: %s could not read it" % (path, program or "cat"))


def _batches(path: str, column: str) -> Iterator[Tuple[List[str], int, float]]:
    """Texts of a million characters, the number of empty ones among them, and their part of the file's bytes."""
    texts, chars, empty, nbytes, kind, program = [], 0, 0, 0.0, *_stem(path)[1:]
    for text, size in _parquet(path, column) if kind == ".parquet" else _lines(path, column, kind, program):
        if not isinstance(text, (str, type(None))):
            raise _Wrong("%s: %s is of type %s, not text" % (path, column, type(text).__name__))
        texts += [text] if text else []
        chars, empty, nbytes = chars + len(text or ""), empty + (not text), nbytes + size
        if chars >= 1 << 20 or len(texts) + empty >= 1 << 14:
            yield texts, empty, nbytes
            texts, chars, empty, nbytes = [], 0, 0, 0.0
    yield texts, empty, nbytes


def _load(path: str) -> Any:
    import tokenizers
    try:
        tokenizer = tokenizers.Tokenizer.from_file(path)
    except Exception as e:  # the package raises no other
        raise _Wrong("--tokenizer %s: it must be a tokenizer.json of the package tokenizers: %s" % (path, e)) from None
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _start(tokenizer: str, counts: Any, threads: int) -> None:
    if ctypes.CDLL(None).prctl(1, signal.SIGKILL) or os.getppid() != multiprocessing.parent_process().pid:  # type: ignore
        os._exit(1)  # PR_SET_PDEATHSIG: no process outlives the command, however that ends
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.update(RAYON_NUM_THREADS=str(threads), TOKENIZERS_PARALLELISM="true")
    _worker.update(tokenizer=_load(tokenizer), counts=counts)


def _tokenize(path: str, out: str, column: str, kind: str, before: List[int], after: List[int]) -> int:
    """Tokenizes one file. Returns the number of empty texts. Only complete files get their names, the .idx last."""
    lengths, empty, counts, size = array("i"), 0, _worker["counts"], array(kind).itemsize
    encode = getattr(_worker["tokenizer"], "encode_batch_fast", _worker["tokenizer"].encode_batch)
    with open(out + ".bin.part", "wb") as tokens, open(out + ".idx.part", "wb") as index:
        for texts, none, nbytes in _batches(path, column):
            coded = [before + text.ids + after for text in encode(texts, add_special_tokens=False)]
            lengths.extend(len(ids) for ids in coded if ids)
            array(kind, itertools.chain.from_iterable(coded)).tofile(tokens)
            empty += none + sum(not ids for ids in coded)
            with counts.get_lock():
                counts[0], counts[1] = counts[0] + int(nbytes), counts[1] + sum(map(len, coded))
        index.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8 if kind == "H" else 4, len(lengths), len(lengths) + 1))
        lengths.tofile(index)
        array("q", [at * size for at in itertools.accumulate(lengths, initial=0)][:-1]).tofile(index)
        array("q", range(len(lengths) + 1)).tofile(index)
        for file in (tokens, index):
            file.flush()
            os.fsync(file.fileno())
    if os.path.exists(out + ".idx"):
        os.unlink(out + ".idx")  # a new .bin must never be beside an old .idx
    os.replace(out + ".bin.part", out + ".bin")
    os.replace(out + ".idx.part", out + ".idx")
    return empty


def _prepare(o: argparse.Namespace) -> Tuple[str, List[int], List[int]]:
    """Takes the folder, and checks that it was begun with the same options. Returns the type, and the tokens around texts."""
    vocabulary = _load(o.tokenizer).get_vocab(True)
    with open(o.tokenizer, "rb") as f:
        options = {"tokenizer": hashlib.sha256(f.read()).hexdigest(), "bos": o.bos, "eos": o.eos, "column": o.column}
    for word in {o.bos, o.eos} - {None, *vocabulary}:
        raise _Wrong("--bos, --eos: the tokenizer has no token %s" % word)
    os.makedirs(o.out, exist_ok=True)
    note = _worker["note"] = open(os.path.join(o.out, "tokenize.json"), "a+")  # locked until the command ends
    try:
        fcntl.flock(note, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise _Wrong("%s: another tokenize writes into this folder" % o.out) from None
    note.seek(0)
    had = json.loads(note.read() or json.dumps(options))
    for name in (name for name, value in options.items() if value != had.get(name)):
        raise _Wrong("%s: its files were made with another --%s; write into another folder" % (o.out, name))
    if not note.tell():
        print(json.dumps(options), file=note, flush=True)
    before, after = ([vocabulary[word]] if word is not None else [] for word in (o.bos, o.eos))
    return "H" if max(vocabulary.values()) < 1 << 16 else "i", before, after


def _run(o: argparse.Namespace) -> None:
    outs = {path: os.path.join(o.out, name) for name, path in _sources(o.words).items()}
    kind, before, after = _prepare(o)
    left = sorted((path for path, out in outs.items() if not os.path.exists(out + ".idx") or os.path.getmtime(out + ".idx")
                   < os.path.getmtime(path)), key=os.path.getsize, reverse=True)
    total, cpus, spawn = sum(map(os.path.getsize, left)) or 1, len(os.sched_getaffinity(0)), multiprocessing.get_context("spawn")
    n, counts, empty = min(int(o.processes or cpus), len(left)) or 1, spawn.Array("q", 2), 0
    pool = ProcessPoolExecutor(n, spawn, _start, (o.tokenizer, counts, max(1, cpus // n)))
    waiting = {pool.submit(_tokenize, path, outs[path], o.column, kind, before, after) for path in left}
    try:
        while waiting:
            done, waiting = wait(waiting, 0.5, FIRST_COMPLETED)
            empty += sum(future.result() for future in done)
            if sys.stderr.isatty():
                print("\rtokenize: [%-30s] %d files left, %d M tokens " % ("#" * int(30 * min(1, counts[0] / total)), len(waiting),
                      counts[1] // 10**6), end="\n" * (not waiting), file=sys.stderr, flush=True)
    finally:
        pool.shutdown(cancel_futures=True)
    sums = {"files": len(outs), "skipped": len(outs) - len(left), "empty": empty,
            "tokens": sum(os.path.getsize(out + ".bin") for out in outs.values()) // array(kind).itemsize}
    print(json.dumps(sums) if o.json else "%(tokens)d tokens in %(files)d files, of which %(skipped)d were complete before; "
          "%(empty)d empty texts are left out" % sums)


def main(arguments: Optional[Sequence[str]] = None) -> int:
    parser = argparse.ArgumentParser(prog="penstock-loader tokenize", allow_abbrev=False)
    for flag in ("tokenizer", "bos", "eos", "column", "processes"):
        parser.add_argument("--" + flag)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("words", nargs="+")
    parser.add_argument("out")
    try:
        _run(parser.parse_args(arguments))
        return 0
    except ImportError as e:
        said = "it needs the package {0}, which {1} does not have: {1} -m pip install {0}, or name another Python by " \
               "PENSTOCK_PYTHON".format(e.name or e, sys.executable)
    except BrokenProcessPool:
        said = "a process was killed, perhaps for lack of memory: run the command again, with fewer --processes"
    except (_Wrong, OSError, ValueError) as e:
        said = str(e)
    except KeyboardInterrupt:
        os._exit(130)  # the processes of the pool end, too
    print("penstock-loader tokenize: " + said, file=sys.stderr)
    return 1
