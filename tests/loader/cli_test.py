#!/usr/bin/python3
"""The command line of penstock-loader: what scripts rely on, and bad input."""
import contextlib
import glob
import json
import os
import re
import signal
import subprocess

import tap


def shards(n=3, per=10):
    for s in range(n):
        files = []
        for i in range(per):
            photo = tap.read(tap.PHOTOS[(s * per + i) % len(tap.PHOTOS)])
            files += [("s%d/%d.jpg" % (s, i), photo), ("s%d/%d.cls" % (s, i), b"%d" % (i % 3))]
        tap.make_tar("t-%d.tar" % s, files)
    return "t-{0..%d}.tar" % (n - 1)


def bench(*args, **kwargs):
    small = [] if "--field" in args else ["--image", "32"]
    r = tap.run("bench", "--json", *small, *args, **kwargs)
    assert r.returncode == 0, r.stderr
    tap.equal(r.stderr, b"", "without a terminal no progress is printed")
    return json.loads(r.stdout)


@tap.test
def bench_takes_options_of_images():
    options = {"crop": "random_crop", "padding": 4, "padding_mode": 2, "jitter": 1, "brightness": 0.4, "jitter_order": 1,
               "erase": 0.5, "blur": 1, "noise": 1, "noise_sigma_max": 9, "groups": "one:0.5=blur,noise"}
    args = [a for k, v in options.items()
            for a in (["--crop", v] if k == "crop" else ["--image-option", "%s=%s" % (k, v)])]
    tap.equal(bench("--batch", "8", "--epochs", "1", *args, shards())["skipped"], 0)


@tap.test
def bench_json_has_the_promised_names():
    result = bench("--batch", "8", "--epochs", "2", "--threads", "2", shards())
    names = {
        "samples": int, "batches": int, "seconds": float, "samples_per_second": float, "samples_per_cpu_second": float,
        "first_batch_seconds": float, "bytes_read": int, "skipped": int,
        "blank_batches": int, "shards_lost": int, "peak_rss_bytes": int, "stages": list,
        "bottleneck": str, "advice": str,
    }
    for part in [result, *result["epochs"]]:
        for name, kind in names.items():
            assert isinstance(part[name], kind), (name, part[name])
        for stage in part["stages"]:
            tap.equal(sorted(stage), ["busy", "name", "threads", "waiting_input", "waiting_output"])
            total = stage["busy"] + stage["waiting_input"] + stage["waiting_output"]
            assert abs(total - 1) < 0.01 or total == 0, stage
    tap.equal((result["samples"], result["batches"], result["skipped"]), (60, 8, 0))
    assert result["jpeg_decoder"] == "penstock" or result["jpeg_decoder"].startswith("libjpeg: "), result
    tap.equal([(e["epoch"], e["samples"]) for e in result["epochs"]], [(0, 30), (1, 30)])
    size = sum(os.path.getsize("t-%d.tar" % i) for i in range(3))
    assert size * 1.8 < result["bytes_read"] <= size * 2, (size, result["bytes_read"])
    for e in result["epochs"]:  # bytes that are read ahead count for their own epoch
        assert size * 0.9 < e["bytes_read"] <= size, (size, e["bytes_read"])
    plain = tap.run("bench", "--image", "32", "t-0.tar").stdout.decode()
    assert re.search(r"^next\(\) took p50 [0-9.]+ ms, p99 [0-9.]+ ms$", plain, re.M), plain


@tap.test
def bench_takes_all_its_options():
    result = bench(
        "--batch", "4", "--epochs", "1", "--threads", "auto", "--readers", "2", "--depth", "3", "--memory-budget", "256M",
        "--device", "cpu", "--dtype", "u8", "--layout", "nhwc", "--crop", "center", "--order", "shards",
        "--shuffle-window", "16", "--lanes", "2", "--seed", "5", "--rank", "1", "--world", "2", "--end", "uneven",
        "--on-error", "skip", "--max-bad", "3", shards())
    tap.equal(result["samples"], 10)
    for n in range(1, 5):
        tap.make_tar("of-%d.tar" % n, [("%d.cls" % i, b"1") for i in range(n)])
    dealt = ["--epochs", "1", "--order", "none", "--end", "uneven", "--world", "4", "--rank", "1", "--field", "cls=int64", "of-{1..4}.tar"]
    tap.equal(bench(*dealt)["samples"], 2)
    tap.equal(bench("--ranks-per-node", "2", *dealt)["samples"], 3)  # the second node's first rank comes before rank 1
    assert bench("--homes", "2", "--epochs", "1", "--field", "cls=int64", "of-{1..4}.tar")["samples"] == 10
    r = tap.run("bench", "--epochs", "1", "--image", "32", "t-0.tar")
    assert r.returncode == 0 and b"bottleneck: " in r.stdout, r
    assert b"\nJPEG entropy decoder: %s\n" % result["jpeg_decoder"].encode() in r.stdout, r


@tap.test
def bench_names_lost_shards():
    shards()
    os.symlink("/proc/self/mem", "broken.tar")  # a file that can be opened but not read: EIO
    args = ["bench", "--image", "32", "--epochs", "2", "--on-error", "skip", "--batch", "4",
            "t-{0..2}.tar", "broken.tar", "gone.tar"]
    r = tap.run(*args, "--json")
    result = json.loads(r.stdout)
    tap.equal((r.returncode, result["shards_lost"], [e["shards_lost"] for e in result["epochs"]]), (0, 2, [2, 0]))
    tap.equal(result["samples"] - result["skipped"], 60)
    told = sorted(r.stderr.decode().splitlines())
    tap.equal([line.split(": ")[1] for line in told], ["lost shard broken.tar", "lost shard gone.tar"], r.stderr)
    assert "Input/output error" in told[0] and "No such file" in told[1], told
    assert result["first_lost"] in [line.split("lost shard ")[1] for line in told], (result["first_lost"], told)
    assert b"\nshards lost: 2 (first: " in tap.run(*args).stdout
    assert b"shards lost" not in tap.run("bench", "--image", "32", "t-0.tar").stdout


@tap.test
def bench_names_a_bounded_number_of_lost_shards():
    shards()
    r = tap.run("bench", "--json", "--image", "32", "--epochs", "1", "--on-error", "skip", "--lanes", "4", "t-{0..2}.tar",
                "gone-{00..79}.tar")
    tap.equal((r.returncode, json.loads(r.stdout)["shards_lost"], len(r.stderr.splitlines())), (0, 80, 17), r.stderr)


@tap.test
def indexes_may_be_in_another_folder():
    shards()
    os.mkdir("indexes")
    tap.equal(tap.run("index", "--dir", "indexes", "t-{0..2}.tar").returncode, 0)
    args = ["bench", "--json", "--image", "32", "--epochs", "1", "--order", "permutation"]
    r = tap.run(*args, "t-{0..2}.tar")
    assert r.returncode != 0 and b"no such index" in r.stderr and b"--index-dir here" in r.stderr, r
    r = tap.run(*args, "--index-dir", "indexes", "t-{0..2}.tar")
    tap.equal((r.returncode, json.loads(r.stdout)["samples"]), (0, 30), r.stderr)


@tap.test
def the_advice_on_a_lost_shard_is_not_to_skip_samples():
    os.symlink("/proc/self/mem", "broken.tar")
    for shard, advice in ("broken.tar", b"check the path, and its disk"), ("gone.tar", b"check the path"):
        r = tap.run("bench", shard)
        tap.equal(r.returncode, 1)
        assert advice in r.stderr and b"skip" not in r.stderr, r.stderr


@tap.test
def bench_counts_skipped_samples():
    tap.make_tar("bad.tar", [("a.jpg", b"no"), ("b.jpg", tap.read(tap.PHOTOS[0]))])
    tap.equal(bench("--epochs", "1", "--on-error", "skip", "bad.tar")["skipped"], 1)
    result = bench("--epochs", "2", "--batch", "1", "--on-error", "skip", "bad.tar")
    tap.equal((result["samples"], result["skipped"], result["blank_batches"]), (4, 2, 2))
    tap.equal([e["blank_batches"] for e in result["epochs"]], [1, 1])
    r = tap.run("bench", "--batch", "1", "--on-error", "skip", "bad.tar")
    assert b"\nbatches without a good sample: 2 (" in r.stdout, r.stdout
    r = tap.run("bench", "--epochs", "1", "bad.tar")
    tap.equal(r.returncode, 1)
    assert re.fullmatch(rb'penstock-loader bench: bad.tar: sample "a" at offset 0: .*; repair the shard .*\n', r.stderr), r.stderr


@tap.test
def bench_of_shards_without_samples_fails():
    tap.make_tar("none.tar", [("nodots", b"x")])
    for args in [], ["--sweep", "--sweep-threads", "1", "--sweep-batch", "4"]:
        r = tap.run("bench", *args, "none.tar")
        tap.equal(r.returncode, 1, r.stderr)
        assert b"the shards hold no samples" in r.stderr, r.stderr


@tap.test
def ls_prints_one_line_per_sample():
    shards(1, 3)
    samples, rc, err = tap.ls("t-0.tar")
    tap.equal((rc, err, len(samples)), (0, "", 3))
    tap.equal(sorted(samples[0]), ["fields", "key", "shard"])
    tap.equal(tap.field_bytes(samples[1]), {"jpg": tap.read(tap.PHOTOS[1]), "cls": b"1"})
    plain = tap.run("ls", "t-0.tar").stdout.decode().splitlines()
    assert re.fullmatch(r"s0/0\tjpg:\d+B cls:1B", plain[0]), plain[0]


@tap.test
def ls_ends_without_a_message_if_its_reader_does():
    tap.make_tar("many.tar", [("%05d.x" % i, b"1") for i in range(20000)])
    for json in [], ["--json"]:
        process = subprocess.Popen([tap.LOADER, "ls", *json, "many.tar"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert process.stdout.readline()
        process.stdout.close()
        tap.equal((process.stderr.read(), process.wait()), (b"", -signal.SIGPIPE))
        process.stderr.close()


@tap.test
def ls_escapes_names():
    name = 'q"\\\n\x01\u00e9\udcff'
    tap.make_tar("a.tar", [(name + ".x", b"1")])
    samples, rc, err = tap.ls("a.tar")
    tap.equal((rc, err, [s["key"] for s in samples]), (0, "", [name]))
    tap.equal(len(tap.run("ls", "a.tar").stdout.splitlines()), 1)


@tap.test
def ls_keeps_control_characters_off_the_terminal():
    tap.make_tar("esc.tar", [("a\x1b[31m.x", b"1"), ("a\x1b[31m.x", b"1")])
    r = tap.run("ls", "esc.tar")
    tap.equal(r.returncode, 1)
    assert b"\x1b" not in r.stderr and r.stderr.count(b"\n") == 1, r.stderr


@tap.test
def ls_continues_after_a_damaged_shard():
    shards(2, 2)
    tap.write("cut.tar", tap.read("t-0.tar")[:3000])
    samples, rc, err = tap.ls("cut.tar", "no-such.tar", "t-1.tar")
    tap.equal((rc, [s["key"] for s in samples]), (1, ["s1/0", "s1/1"]))
    tap.equal(len(err.splitlines()), 2)


def screen(*args):
    """Runs penstock-loader with a terminal as stderr; returns what it writes there."""
    try:
        master, slave = os.openpty()
    except OSError as e:
        raise tap.Skip("no pseudo-terminal can be had: %s" % e)
    r = subprocess.Popen([tap.LOADER, *args], stdout=subprocess.DEVNULL, stderr=slave)
    os.close(slave)
    out = b""
    with contextlib.suppress(OSError):  # EIO: the other end is closed
        while part := os.read(master, 4096):
            out += part
    os.close(master)
    tap.equal(r.wait(), 0, out)
    return out.decode()


@tap.test
def bench_progress_shows_the_time_that_is_left():
    names = shards(2, 20)
    tap.run("index", names)
    out = screen("bench", "--image", "32", "--batch", "1", "--step-ms", "30", "--epochs", "1", names)
    assert re.search(r"epoch 0: \d+ of 40 samples, \d+/s, \d+ s left", out), out
    os.remove("t-0.tar.psx")
    out = screen("bench", "--image", "32", "--batch", "1", "--step-ms", "30", "--epochs", "2", names)
    assert re.search(r"epoch 0: \d+ samples, \d+/s\x1b", out), out
    assert re.search(r"epoch 1: \d+ of 40 samples", out), out


@tap.test
def an_error_about_a_url_gives_its_advice_once():
    for on_error in ("fail", "skip"):
        r = tap.run("bench", "--on-error", on_error, "--batch", "1", "https://127.0.0.1/x.tar")
        for line in r.stderr.decode().splitlines():
            tap.equal(line.count("it is a URL"), 1, line)


@tap.test
def help_and_version_are_printed():
    for args in (["--help"], ["-h"], ["bench", "--help"], ["bench", "-h"], ["ls", "--help"], ["ls", "-h"], ["index", "-h"], ["help"], ["help", "pack"]):
        r = tap.run(*args)
        tap.equal((r.returncode, r.stderr), (0, b""))
        assert b"Usage: penstock-loader" in r.stdout and b"Examples:" in r.stdout
    assert re.fullmatch(rb"penstock-loader \d+\.\d+\.\d+\n", tap.run("--version").stdout)


@tap.test
def options_in_help_are_in_the_man_page():
    page = tap.read(os.path.join(tap.SRC, "man/penstock-loader.1")).decode().replace("\\-", "-")
    for command in ("bench", "doctor", "index", "ls", "make-dataset", "pack", "show", "tokenize"):
        for option in re.findall(r"^  (--?[a-z-]+)", tap.run(command, "--help").stdout.decode(), re.M):
            assert option in page, "%s %s is not in penstock-loader(1)" % (command, option)


FOREIGN = {
    "a.h5": b"\x89HDF\r\n\x1a\n",
    "a.npy": b"\x93NUMPY\1\0",
    "a.npz": b"PK\3\4",
    "a.parquet": b"PAR1",
    "a.tar.xz": b"\xfd7zXZ\0",
    "lmdb/data.mdb": bytes(10) + b"\x08\0\0\0\0\0" + b"\xde\xc0\xef\xbe",
}

BAD = [  # arguments, exit code, a part of the line on stderr
    ([], 2, "no command"),
    (["frobnicate"], 2, "unknown command 'frobnicate' (penstock-loader --help lists them)"),
    (["bench"], 2, "no shards"),
    (["ls"], 2, "no shards"),
    (["index"], 2, "no shards"),
    (["index", "--frob", "t-0.tar"], 2, "unknown option '--frob'"),
    (["index", "t-0.tar", "--dir"], 2, "needs a value"),
    (["index", "--dir", "no/such", "t-0.tar"], 1, "no/such: cannot make this directory"),
    (["index", "--column", "=cls", "t-0.tar"], 2, "must be NAME=SUFFIX"),
    (["index", "--column", "h=json:", "t-0.tar"], 2, "must be NAME=SUFFIX"),
    (["index", "nosuch.tar"], 1, "nosuch.tar: "),
    (["index", "folder.tar"], 1, "only ordinary files"),
    (["index", "folder"], 1, "folder: no shards in this folder"),
    (["index", "above"], 1, "above: no shards in this folder itself; give a folder in it, such as 'above/val'"),
    (["index", "classes"], 1, "classes: a folder of class folders ('cat' is one), not of shards; make shards of it once: "
     "penstock-loader pack --classes 'classes' 'NAME-%06d.tar'"),
    (["index", "photos"], 1, "photos: no shards in this folder; it has a picture, not a tar: `penstock-loader pack`"),
    (["index", "lmdb"], 1, "lmdb: no shards in this folder; it has an LMDB database, not a tar: lmdb.open("),
    (["bench", "a.h5"], 1, "an HDF5 file, not a tar: h5py reads it"),
    (["ls", "a.h5"], 1, "an HDF5 file, not a tar: h5py reads it"),
    (["bench", "lmdb/data.mdb"], 1, "an LMDB database, not a tar: lmdb.open(FOLDER, readonly=True, lock=False)"),
    (["bench", "a.parquet"], 1, "a Parquet file, not a tar: pyarrow reads it"),
    (["bench", "a.npy"], 1, "a NumPy array (.npy), not a tar: numpy.load(FILE, mmap_mode"),
    (["bench", "a.npz"], 1, "a ZIP or .npz file, not a tar"),
    (["bench", "a.tar.xz"], 1, "xz data, not a tar: shards are compressed by zstd, gzip or lz4"),
    (["index", "--dir", "text", "t-0.tar"], 1, "--dir text: is not a directory"),
    (["index", "@nolist"], 1, "nolist"),
    (["bench", "--frob", "t-0.tar"], 2, "unknown option '--frob'"),
    (["bench", "-xyz", "t-0.tar"], 2, "unknown option '-x'"),
    (["ls", "-xyz", "t-0.tar"], 2, "unknown option '-x'"),
    (["bench", "--json=x", "t-0.tar"], 2, "option --json takes no value"),
    (["bnech", "t-0.tar"], 2, "penstock-loader: unknown command 'bnech'; did you mean 'bench'?"),
    (["list", "t-0.tar"], 2, "unknown command 'list'"),
    (["bench", "--bacth=64", "t-0.tar"], 2, "penstock-loader bench: unknown option '--bacth'; did you mean '--batch'?"),
    (["bench", "--batch-size=64", "t-0.tar"], 2, "unknown option '--batch-size'; did you mean '--batch'?"),
    (["bench", "-batch", "64", "t-0.tar"], 2, "unknown option '-b'; did you mean '--batch'?"),
    (["bench", "--sw=2", "t-0.tar"], 2, "option '--sw' is ambiguous; it could be --sweep, --sweep-threads, --sweep-batch, --sweep-device"),
    (["bench", "--profile=p", "-x", "t-0.tar"], 2, "unknown option '-x' (see penstock-loader bench --help)"),
    (["shuffle-quality", "t-0.tar"], 2, "the command 'shuffle-quality' no longer exists: "),
    (["split", "t-0.tar", "a-%d.tar"], 2, "the command 'split' no longer exists: write pack --repack SHARDS... OUT"),
    (["cat", "t-0.tar"], 2, "the command 'cat' no longer exists: write pack --repack SHARDS... -"),
    (["pack", "--parts", "2", "folder", "a-%d.tar"], 2, "need --repack"),
    (["pack", "--repack", "t-0.tar"], 2, "needs shards and a name for the new ones"),
    (["pack", "--repack", "--index", "t-0.tar", "a-%d.tar"], 2, "--repack goes with --max-size"),
    (["pack", "--repack", "--max-count", "2", "t-0.tar", "-"], 2, "only --key, --field and --lines can be used"),
    (["pack", "--repack", "--field", "jpg", "t-0.tar", "a-%d.tar"], 2, "--field writes to standard output: use -"),
    (["pack", "--repack", "--lines", "t-0.tar", "-"], 2, "--lines needs --field"),
    (["bench", "t-0.tar", "--order"], 2, "option --order needs a value"),
    (["ls", "--frob", "t-0.tar"], 2, "unknown option"),
    (["bench", "t-0.tar", "--batch"], 2, "needs a value"),
    (["bench", "--batch", "0", "t-0.tar"], 2, "penstock-loader bench: --batch 0: must be"),
    (["bench", "--batch", "-1", "t-0.tar"], 2, "--batch -1"),
    (["bench", "--batch", "1x", "t-0.tar"], 2, "--batch 1x"),
    (["bench", "--batch", "99999999999999999999", "t-0.tar"], 2, "--batch"),
    (["bench", "--image", "0", "t-0.tar"], 2, "--image"),
    (["bench", "--threads", "many", "t-0.tar"], 2, "--threads"),
    (["bench", "--dtype", "f64", "t-0.tar"], 2, "u8|f32|f16|bf16"),
    (["bench", "--layout", "chw", "t-0.tar"], 2, "nchw|nhwc"),
    (["bench", "--crop", "left", "t-0.tar"], 2, "random|center|none|random_crop|letterbox"),
    (["bench", "--image-option", "jitter", "t-0.tar"], 2, "must be NAME=VALUE"),
    (["bench", "--image-option", "jitter=x", "t-0.tar"], 2, "must be a number"),
    (["bench", "--image-option", "channels=cmyk", "t-0.tar"], 2, "channels=cmyk: must be rgb | rgba | gray"),
    (["bench", "--image-option", "jiter=1", "t-0.tar"], 2, "no such option of images"),
    (["bench", "--image-option", "noise_sigma=25", "t-0.tar"], 2, "noise_sigma has no effect: add noise, its probability"),
    (["bench", "--image-option", "resize=256", "t-0.tar"], 2, "resize_shorter has no effect: take crop center or"),
    (["bench", "--image", "64", "--field", "cls=int64", "t-0.tar"], 2, "have no effect: no --field is an image"),
    (["bench", "--image-option", "brightness=1", "--field", "jpg=image", "t-0.tar"], 2, "brightness has no effect: add jitter"),
    (["bench", "--image-option", "groups=one:1=blur", "t-0.tar"], 2, "blur is in a group, but its own probability is 0"),
    (["bench", "--on-error", "ignore", "t-0.tar"], 2, "fail|skip"),
    (["bench", "--memory-budget", "2X", "t-0.tar"], 2, "512M"),
    (["bench", "--memory-budget", "1M", "t-0.tar"], 1, "--memory-budget of 1 MiB"),
    (["bench", "--rank", "1", "t-0.tar"], 2, "rank 1 of world 1"),
    (["bench", "--world", "3", "--ranks-per-node", "2", "t-0.tar"], 2, "--ranks-per-node 2: must divide world 3"),
    (["bench", "--homes", "0", "t-0.tar"], 2, "--homes 0: must be"),
    (["bench", "--world", "2", "t-0.tar"], 2, "penstock-loader index"),
    (["bench", "--world", "2", "t-0.tar"], 2, "--index-dir here); or give the number of batches of an epoch "
     "(--steps without repeat); or use --end uneven, which"),
    (["bench", "--world", "2", "--end", "uneven", "t-0.tar"], 2, "each rank needs a shard"),
    (["bench", "--lanes", "1", "--world", "2", "--end", "uneven", "t-0.tar", "t-1.tar"], 2, "fewer than world 2"),
    (["bench", "--device", "cuda:999", "t-0.tar"], 1, "device cuda"),
    (["bench", "--device", "abacus", "t-0.tar"], 2, "no such device"),
    (["bench", "--device", "fake", "t-0.tar"], 2, "no such device"),  # a device of the tests alone
    (["bench", "--sweep", "--sweep-device", "cpu,gpu", "t-0.tar"], 2, "--sweep-device gpu: no such device"),
    (["bench", "--field", "nosuch=bytes", "t-0.tar"], 1, "no sample of this batch has it: check the field's name"),
    (["bench", "t-{0.tar"], 2, "without its"),
    (["ls", "t-{0.tar"], 2, "without its"),
    (["bench", "@nolist"], 1, "nolist"),
    (["ls", "@nolist"], 1, "nolist"),
    (["bench", "nosuch.tar"], 1, "nosuch.tar: "),
    (["bench", "https://127.0.0.1/t-{0..3}.tar"], 1, "it is a URL: mount it"),
    (["ls", "pipe:cat t-0.tar"], 1, "; pipe: is not read; mount the source (penstock mount), or give files"),
    (["bench", "pipe:cat t-0.tar"], 1, "pipe: is not read"),
    (["ls", "nosuch.tar"], 1, "nosuch.tar: "),
    (["ls", "folder.tar"], 1, "is a folder"),
    (["bench", "no*.tar"], 1, "no*.tar: no file matches this pattern"),
    (["bench", "text"], 1, "no tar header"),
    (["ls", "empty"], 1, "an empty file"),
]


@tap.test
def bad_input_gives_one_line_and_an_exit_code():
    shards(2, 2)
    tap.write("text", b"hello " * 1000)
    tap.write("empty", b"")
    os.mkdir("folder")
    os.makedirs("above/val")
    os.mkdir("folder.tar")
    for folder in ("classes/cat", "photos", "lmdb"):
        os.makedirs(folder)
    for path in ("classes/cat/1.jpg", "photos/1.jpg", "lmdb/lock.mdb"):
        tap.write(path, b"x")
    for path, head in FOREIGN.items():  # padded to 4 KiB; the .npy is as short as such files can be
        tap.write(path, head + bytes(4096 if path != "a.npy" else 80))
    for args, code, says in BAD:
        r = tap.run(*args)
        err = r.stderr.decode()
        tap.equal(r.returncode, code, "%r: %s" % (args, err))
        tap.equal(r.stdout, b"", repr(args))
        assert err.startswith(("penstock-loader: ", "penstock-loader %s: " % args[:1][0] if args else "")) and err.count("\n") == 1 and says in err, (args, err)


@tap.test
def ls_takes_folders_and_wildcards():
    shards(2, 2)
    tap.write("more.txt", b"no shard")
    every = tap.run("ls", "t-{0..1}.tar").stdout.replace(b"t-", b"./t-")
    assert every.count(b"\n") > 2
    for names in (".",), ("./t-*.tar",), ("./t-?.t[ab]r",):
        tap.equal(tap.run("ls", *names).stdout.replace(b"\nt-", b"\n./t-"), every, names)


@tap.test
def a_full_disk_is_an_error_of_pack_and_ls():
    shards(1, 2)
    with open("/dev/full", "w") as full:
        r = subprocess.run([tap.LOADER, "pack", "--repack", "t-0.tar", "-"], stdout=full, stderr=subprocess.PIPE)
        assert b"standard output: cannot write: No space left on device" in r.stderr, r.stderr
        r = subprocess.run([tap.LOADER, "ls", "t-0.tar"], stdout=full, stderr=subprocess.PIPE)
    tap.equal((r.returncode, r.stderr), (1, b"penstock-loader ls: cannot write to stdout\n"))


@tap.test
def the_labels_example_runs():
    pattern = shards(2, 9)
    r = subprocess.run([os.path.join(tap.BUILD, "loader/examples/labels"), pattern], capture_output=True)
    tap.equal((r.returncode, r.stdout, r.stderr), (0, b"0 6\n1 6\n2 6\n", b""))


@tap.test
def many_ranks_need_neither_lanes_nor_indexes():
    for s in range(260):
        tap.make_tar("many-%03d.tar" % s, [("%d-%d.cls" % (s, i), b"1") for i in range(3)])
    samples = 0
    for rank in range(0, 256, 15):
        result = bench("--world", "256", "--rank", str(rank), "--end", "uneven", "--epochs", "1", "--batch", "2",
                       "--field", "cls=int64", "many-{000..259}.tar")
        samples += result["samples"]
        tap.equal(result["samples"], 3 * len(range(rank, 260, 256)))
    result = bench("--world", "256", "--rank", "255", "--steps", "2", "--epochs", "1", "--batch", "2", "--field", "cls=int64",
                   "many-{000..259}.tar")
    tap.equal((result["samples"], result["batches"]), (4, 2))


@tap.test
def the_library_exports_its_public_names_only():
    lib = os.path.join(tap.BUILD, "loader/.libs/libpenstock.so")
    out = subprocess.run(["nm", "-D", "--defined-only", lib], capture_output=True, check=True).stdout.decode()
    names = {line.split()[-1] for line in out.splitlines() if " A " not in line}
    header = tap.read(os.path.join(tap.SRC, "loader/include/penstock.h")).decode()
    public = set(re.findall(r"^[a-z][^;{]*?\*?(penstock_\w+)\(", header, re.M))
    tap.equal({name.split("@@")[0] for name in names}, public)
    tap.equal({name.split("@@")[1] for name in names} - {"PENSTOCK_0.1", "PENSTOCK_0.2", "PENSTOCK_0.3", "PENSTOCK_0.4"}, set())


if __name__ == "__main__":
    tap.main()
