#!/usr/bin/python3
"""penstock-loader tokenize writes text as .bin and .idx: the same bytes for any number of processes and after kill -9."""
import glob
import gzip
import json
import os
import random
import struct
import subprocess
import sys
import time
from array import array

import tap

tap.python_environment("tokenize", ["tokenizers", "pyarrow"], ["tokenizers==0.21.4", "pyarrow==18.1.0"], required=False)
tap.python_package(needed=())
os.environ["PENSTOCK_PYTHON"] = sys.executable

try:
    import pyarrow
    import pyarrow.parquet
    import tokenizers
except ImportError:
    tokenizers = None

WORDS = "the of and to in is it that for was on are as with they be at one have this from".split()


def texts(seed, n):
    r = random.Random(seed)
    return [" ".join(r.choices(WORDS, k=r.randrange(1, 80))) for _ in range(n)]


def tokenizer(path="tokenizer.json", more=0):
    """A tokenizer of the words, with truncation and padding that must not apply. Returns it without them."""
    if tokenizers is None:
        raise tap.Skip("needs tokenizers and pyarrow")
    names = ["[UNK]", "<s>", "</s>", *WORDS, *("word%d" % i for i in range(more))]
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({w: i for i, w in enumerate(names)}, unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.enable_truncation(5)
    made.enable_padding(length=5)
    made.save(path)
    made.no_truncation()
    made.no_padding()
    return made


def tokenize(*args, rc=0, env=None):
    r = tap.run("tokenize", *args, env={**os.environ, **(env or {})})
    tap.equal(r.returncode, rc, r.stderr)
    return (r.stdout if rc == 0 else r.stderr).decode()


def read_back(path):
    """The documents of a .bin, and its code, by an own reader of Megatron's format."""
    index, tokens = tap.read(path + ".idx"), tap.read(path + ".bin")
    magic, version, code, n, d = struct.unpack("<9sQBQQ", index[:34])
    tap.equal((magic, version, d), (b"MMIDIDX\0\0", 1, n + 1))
    lengths, pointers, documents = array("i"), array("q"), array("q")
    lengths.frombytes(index[34:34 + 4 * n])
    pointers.frombytes(index[34 + 4 * n:34 + 12 * n])
    documents.frombytes(index[34 + 12 * n:])
    tap.equal(list(documents), list(range(n + 1)))
    ids = array({8: "H", 4: "i"}[code])
    ids.frombytes(tokens)
    tap.equal(sum(lengths), len(ids))
    tap.equal(list(pointers), [sum(lengths[:i]) * ids.itemsize for i in range(n)])
    return [ids[p // ids.itemsize:p // ids.itemsize + n].tolist() for p, n in zip(pointers, lengths)], code


def outputs(folder):
    return {name: tap.read(os.path.join(folder, name)) for name in os.listdir(folder)}


@tap.test
def lines_jsonl_and_parquet_become_tokens():
    words, want = tokenizer(), {}
    os.mkdir("in")
    for number, name in enumerate(("a.txt", "b.jsonl", "c.jsonl.gz", "d.jsonl.zst", "e.parquet")):
        docs = texts(number, 200)
        want[name[0]] = [[1, *words.encode(text).ids, 2] for text in docs]
        docs[7:7] = [""]  # left out
        lines = "".join((json.dumps({"n": 1, "text": text}) if name[0] != "a" else text) + "\n" for text in docs).encode()
        lines += b" \t\r\n" * ("jsonl" in name)  # a line of JSON that is blank is no text
        path = "in/" + name
        if name == "e.parquet":
            pyarrow.parquet.write_table(pyarrow.table({"n": range(201), "text": [*docs[:7], None, *docs[8:]]}), path, row_group_size=50)
        elif name.endswith(".zst"):
            tap.write(path, subprocess.run(["zstd", "-c"], input=lines, capture_output=True, check=True).stdout)
        else:
            tap.write(path, gzip.compress(lines) if name.endswith(".gz") else lines)
    said = json.loads(tokenize("--tokenizer", "tokenizer.json", "--bos", "<s>", "--eos", "</s>", "--json", "in", "out"))
    tap.equal(said, {"files": 5, "skipped": 0, "tokens": sum(len(doc) for docs in want.values() for doc in docs), "empty": 8})
    for name, docs in want.items():
        have, code = read_back("out/" + name)
        tap.equal((have == docs, code), (True, 8), name)
    tap.equal(sorted(os.listdir("out")), sorted([x + end for x in want for end in (".bin", ".idx")] + ["tokenize.json"]))


@tap.test
def the_type_follows_the_vocabulary():
    for more, code in ((65536 - 24, 8), (65536 - 23, 4)):
        words = tokenizer(more=more)
        tap.equal(words.get_vocab_size(), 65536 + (code == 4))
        tap.write("x.txt", b"the word%d\nof\n\n" % (more - 1))
        tap.equal(tokenize("--tokenizer", "tokenizer.json", "x.txt", "out%d" % code), "3 tokens in 1 files, of which 0 were complete "
                  "before; 1 empty texts are left out\n")
        tap.equal(read_back("out%d/x" % code), ([[3, 22 + more + 1], [4]], code))


def corpus(n=6):
    tokenizer()
    os.mkdir("in")
    for i in range(n):
        tap.write("in/%d.txt" % i, "".join(text + "\n" for text in texts(i, 2000 + 100 * i)).encode())
    return ["--tokenizer", "tokenizer.json", "--eos", "</s>", "in"]


@tap.test
def any_number_of_processes_writes_the_same_bytes():
    args = corpus()
    for n in (1, 3, 8):
        tokenize("--processes", str(n), *args, "out%d" % n)
    tap.equal(outputs("out1") == outputs("out3") == outputs("out8"), True)
    tap.equal(len(outputs("out1")), 13)


@tap.test
def after_kill_the_same_command_continues():
    args = corpus()
    tokenize(*args, "want")
    want, r = outputs("want"), random.Random(1)
    for _ in range(4):
        command = subprocess.Popen([tap.LOADER, "tokenize", "--processes", "2", *args, "out"])
        for name in glob.glob("out/*.part"):
            os.unlink(name)
        while not glob.glob("out/*.part") and command.poll() is None:
            time.sleep(0.01)
        time.sleep(r.random() * 0.2)
        command.kill()
        command.wait()
        # What has its name is complete.
        for name in glob.glob("out/*.idx"):
            tap.equal(all(tap.read(name[:-4] + end) == want[name[4:-4] + end] for end in (".bin", ".idx")), True)
    said = json.loads(tokenize("--json", *args, "out"))
    tap.equal((said["files"], said["empty"]), (6, 0))
    tap.equal({name: data for name, data in outputs("out").items() if not name.endswith(".part")} == want, True)
    assert said["files"] == 6, said


@tap.test
def a_killed_command_leaves_no_process():
    args = corpus(2)
    os.mkfifo("in/z.txt")  # never ends
    command = subprocess.Popen([tap.LOADER, "tokenize", *args, "in/z.txt", "out"])
    while not os.path.exists("out/z.bin.part"):
        time.sleep(0.05)
        assert command.poll() is None
    refused = tokenize(*args, "out", rc=1)
    assert "another tokenize writes into this folder" in refused, refused
    children = subprocess.run(["pgrep", "-P", str(command.pid)], capture_output=True, text=True).stdout.split()
    assert children
    command.kill()
    command.wait()
    for _ in range(100):
        alive = [pid for pid in children if os.path.exists("/proc/" + pid) and open("/proc/%s/stat" % pid).read().split()[2] != "Z"]
        if not alive:
            os.close(os.open("in/z.txt", os.O_WRONLY | os.O_NONBLOCK))  # ends the reader of the pipe
            return
        time.sleep(0.05)
    raise AssertionError("processes %s still run" % alive)


@tap.test
def a_newer_source_is_tokenized_again_and_other_options_are_refused():
    args = corpus(2)
    tokenize(*args, "out")
    tap.equal(json.loads(tokenize("--json", *args, "out"))["skipped"], 2)
    tap.write("in/1.txt", b"the of\n")
    os.utime("in/1.txt", (time.time() + 5,) * 2)
    tap.equal(json.loads(tokenize("--json", *args, "out"))["skipped"], 1)
    tap.equal(read_back("out/1")[0], [[3, 4, 2]])
    assert "made with another --bos" in tokenize("--bos", "<s>", *args, "out", rc=1)
    tokenizer(more=1)
    assert "made with another --tokenizer" in tokenize(*args, "out", rc=1)


@tap.test
def errors_name_the_file_and_what_to_do():
    tokenizer()
    tap.write("a.jsonl", b'{"text": "the"}\n{"content": "of"}\n')
    tap.write("b.jsonl", b'{"text": "the"}\n{')
    tap.write("c.jsonl", b'{"text": 5}\n')
    tap.write("d.txt", b"the\n\xff\n")
    tap.write("e.txt.gz", b"no gzip")
    tap.write("f.tar", b"")
    tap.write("g.json", b"{}")
    os.mkdir("more")
    tap.write("more/d.jsonl", b"")
    pyarrow.parquet.write_table(pyarrow.table({"a": [1]}), "h.parquet")
    given = ["--tokenizer", "tokenizer.json"]
    for args, words in (
            ([*given, "a.jsonl"], ["a.jsonl: line 2", "'text'", "--column"]),
            ([*given, "b.jsonl"], ["b.jsonl: line 2"]),
            ([*given, "c.jsonl"], ["c.jsonl: text is of type int"]),
            ([*given, "d.txt"], ["d.txt: line 2", "utf-8"]),
            ([*given, "e.txt.gz"], ["e.txt.gz: gzip could not read it"]),
            ([*given, "f.tar"], ["f.tar: only .txt, .jsonl"]),
            ([*given, "nosuch*.txt"], ["nosuch*.txt: there is no such file"]),
            ([*given, "d.txt", "more/d.jsonl"], ["d.txt and more/d.jsonl would become the same .bin"]),
            ([*given, "h.parquet"], ["h.parquet: there is no column text; there are a"]),
            ([*given, "--column", "a", "h.parquet"], ["h.parquet: a is of type int"]),
            ([*given, "--eos", "<end>", "d.txt"], ["no token <end>"]),
            (["--tokenizer", "g.json", "d.txt"], ["--tokenizer g.json: it must be a tokenizer.json"])):
        out = "with-%s" % args[-3] if "--column" in args else "out"
        said = tokenize(*args, out, rc=1)
        for word in words:
            assert word in said, (args, said)
        assert "e.txt.gz" in args or said.count("\n") == 1, said
        assert not glob.glob(out + "/*.idx")
    assert b"needs --tokenizer" in tap.run("tokenize", "a.jsonl", "out").stderr
    assert b"a folder for the tokens" in tap.run("tokenize", *given, "a.jsonl").stderr


@tap.test
def what_python_lacks_is_named():
    os.makedirs("hide/tokenizers")
    tap.write("hide/tokenizers/__init__.py", b"raise ModuleNotFoundError('hidden', name='tokenizers')")
    tap.write("t.json", b"{}")
    tap.write("a.txt", b"the\n")
    args = ["--tokenizer", "t.json", "a.txt", "out"]
    said = tokenize(*args, rc=1, env={"PYTHONPATH": os.path.abspath("hide") + ":" + os.environ["PYTHONPATH"]})
    assert "needs the package tokenizers, which" in said and "-m pip install tokenizers" in said, said
    assert "needs the Python package penstock, which" in tokenize(*args, rc=1, env={"PYTHONPATH": ""})
    assert "it needs Python: /nosuch/python" in tokenize(*args, rc=1, env={"PENSTOCK_PYTHON": "/nosuch/python"})
    tokenizer("t.json")
    os.makedirs("hide2/pyarrow")
    tap.write("hide2/pyarrow/__init__.py", b"raise ModuleNotFoundError('hidden', name='pyarrow')")
    tap.write("a.parquet", b"")
    said = tokenize("--tokenizer", "t.json", "a.parquet", "out", rc=1,
                    env={"PYTHONPATH": os.path.abspath("hide2") + ":" + os.environ["PYTHONPATH"]})
    assert "needs the package pyarrow, which" in said and "-m pip install pyarrow" in said, said


if __name__ == "__main__":
    tap.main()
