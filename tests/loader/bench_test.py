#!/usr/bin/python3
"""penstock-loader bench: fields, sweeps, profiles, memory."""
import io
import json
import os
import re
import shutil
import struct
import tarfile
import xml.etree.ElementTree
import zlib

import tap

# A sanitizer keeps freed memory: memory is not measured with one.
with open(tap.LOADER, "rb") as program:
    TEXT = program.read()
PLAIN = b"__asan_init" not in TEXT and b"__tsan_init" not in TEXT


def memory_test(function):
    return tap.test(function) if PLAIN else function


def photo(i):
    with open(tap.PHOTOS[i % len(tap.PHOTOS)], "rb") as f:
        return f.read()


def shard(path, samples):
    """samples: for each sample a dict of suffix to bytes."""
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for i, sample in enumerate(samples):
            for suffix, data in sample.items():
                info = tarfile.TarInfo("%05d.%s" % (i, suffix))
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))


def bench(*args, env=None):
    r = tap.run("bench", "--json", *args, env=env)
    assert r.returncode == 0, r.stderr
    return json.loads(r.stdout), r.stderr.decode()


@tap.test
def bench_reads_fields_of_any_kind():
    shard("a.tar", [{"n": b"%d" % i, "json": b'{"a": [%d]}' % i, "txt": b"x" * i} for i in range(20)])
    result, _ = bench("--epochs", "1", "--field", "n=int64:u8", "--field", "json:a.0=float", "--field", "txt=text", "a.tar")
    tap.equal((result["samples"], result["skipped"]), (20, 0))
    result, _ = bench("--epochs", "1", "--field", "n=int", "a.tar")
    tap.equal((result["samples"], result["skipped"]), (20, 0))
    for field, says in (("n", "SUFFIX=KIND"), ("n=nothing", "SUFFIX=KIND"), ("n=int64:u9", "no such dtype"), ("=int64", "SUFFIX=KIND")):
        r = tap.run("bench", "--field", field, "a.tar")
        tap.equal(r.returncode, 2)
        assert says in r.stderr.decode(), r.stderr


@tap.test
def bench_without_fields_reads_what_pack_took():
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    png = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 40, 30, 8, 0, 0, 0, 0))
    png += chunk(b"IDAT", zlib.compress(bytes(41 * 30))) + chunk(b"IEND", b"")
    shard("a.tar", [{"jpg": photo(0), "cls": b"1"}, {"png": png, "cls": b"2"}])
    tap.equal(bench("--epochs", "1", "--image", "32", "a.tar")[0]["samples"], 2)


@tap.test
def shares_of_what_the_consumer_waits_for_add_up_to_1():
    shard("a.tar", [{"jpg": photo(i)} for i in range(20)])
    waits = bench("--epochs", "1", "--image", "32", "a.tar")[0]["consumer_waits_for"]
    tap.equal(sorted(waits), ["decode", "read", "storage"])
    assert abs(sum(waits.values()) - 1) < 1e-6, waits


def step_of(result):
    """Asserts what must hold for any step, however slow the machine is; returns the step."""
    step = result["step"]
    assert 0 <= step["idle"] <= 1 and step["seconds"] > 0, step
    assert abs(step["idle"] - step["idle_for_batches"] - step["idle_for_copies"]) < 1e-6, step
    assert abs(step["beside_ms"] / step["alone_ms"] - 1 - step["slowdown"]) < 1e-6, step
    assert 0 <= step["copies_hidden"] <= 1, step
    assert result["bottleneck"] in ("storage", "read", "decode", "copy", "consumer"), result["bottleneck"]
    assert 0 < result["next_us"]["p50"] <= result["next_us"]["p99"], result["next_us"]
    return step


@tap.test
def step_ms_reports_what_the_consumer_loses():
    shard("a.tar", [{"cls": b"%d" % i} for i in range(60)])
    args = ["--field", "cls=int64", "--batch", "2", "--epochs", "1", "a.tar"]
    step = step_of(bench("--step-ms", "3", *args)[0])
    tap.equal(step["steps"], 20, "the first ten of 30 are not counted")
    assert step["beside_ms"] >= 3 and step["idle_for_copies"] == 0 and step["copies_hidden"] == 1, step
    tap.equal(step_of(bench("--step-ms", "1", "--batch", "10", *args[:2], *args[4:])[0])["steps"], 3, "3 of 6 are left")
    assert "step" not in bench(*args)[0]
    r = tap.run("bench", "--step-ms", "3", *args)
    assert b"20 steps of" in r.stdout and b"next() took" in r.stdout, r.stdout
    for wrong in ("0", "x", "1e9", "nan", ""):
        tap.equal(tap.run("bench", "--step-ms", wrong, *args).returncode, 2)


@tap.test
def step_ms_on_a_gpu_waits_for_the_batch():
    shard("a.tar", [{"cls": b"%d" % i} for i in range(60)])
    args = ["--device", "cuda", "--step-ms", "2", "--field", "cls=int64", "--batch", "2", "--epochs", "1", "a.tar"]
    os.mkdir("mock")
    shutil.copy(os.path.join(tap.BUILD, "tests/loader/.libs/libmockcuda.so"), "mock/libcuda.so.1")
    env = {**os.environ, "LD_LIBRARY_PATH": "mock"}
    with open(os.path.join(tap.BUILD, "config.h")) as f:
        if "define HAVE_CUDA_KERNELS 1" not in f.read():  # built without nvcc: the mock accepts any bytes as kernels
            with open("kernels", "w") as kernels:
                kernels.write("kernels")
            env["PENSTOCK_CUDA_KERNELS"] = "kernels"
    result, _ = bench(*args, env=env)
    step = step_of(result)
    tap.equal(step["steps"], 20)
    assert result["copied_bytes"] >= 30 * 16 and result["copy_bytes_per_second"] > 0, result
    r = tap.run("bench", *args, env={**env, "PENSTOCK_CUDA_KERNELS": "nosuch"})
    assert r.returncode == 1 and b"--step-ms: " in r.stderr and b"nosuch" in r.stderr, r


@tap.test
def a_sweep_runs_all_points_and_names_the_best():
    shard("a.tar", [{"jpg": photo(i)} for i in range(24)])
    args = ["--sweep", "--sweep-threads", "1,2", "--sweep-batch", "4,8", "--image", "16", "--epochs", "1", "--lanes", "1"]
    result, _ = bench(*args, "--plot", "s.svg", "a.tar")
    tap.equal([(p["threads"], p["batch"]) for p in result["sweep"]], [(1, 4), (2, 4), (1, 8), (2, 8)])
    assert all(p["samples"] == 24 and p["samples_per_second"] > 0 for p in result["sweep"])
    assert result["best"]["samples_per_second"] >= 0.97 * max(p["samples_per_second"] for p in result["sweep"])
    svg = xml.etree.ElementTree.parse("s.svg").getroot()
    points_of_the_plot_are_labelled(svg, result)
    r = tap.run("bench", *args, "a.tar")
    assert r.returncode == 0 and b"best: --threads" in r.stdout, r


def points_of_the_plot_are_labelled(svg, result):
    """Each line ends at its label, the best point has a ring, and a tick is above the highest rate."""
    svg = [(e.tag.split("}")[1], e.attrib, e.text) for e in svg]
    circles = [(float(a["cx"]), float(a["cy"]), a["r"]) for tag, a, _ in svg if tag == "circle"]
    points = {(p["threads"], p["batch"]): c for p, c in zip(result["sweep"], circles)}
    best = result["best"]
    tap.equal(circles[-1], points[best["threads"], best["batch"]][:2] + ("8",))
    tap.equal(len(circles), len(points) + 1)
    texts = [(text, float(a["x"]), float(a["y"])) for tag, a, text in svg if tag == "text"]
    assert [t for t, *_ in texts if t.startswith("best (circled): %d thread" % best["threads"]) and t.endswith("batch %d" % best["batch"])], texts
    ticks = [(float(t), y - 4) for t, x, y in texts if x < 80 and t.replace(".", "").isdigit()]
    rates = [p["samples_per_second"] for p in result["sweep"]]
    assert ticks[-1][0] > max(rates) >= ticks[-2][0], (ticks, rates)
    assert ticks[-1][1] < min(y for _, y, _ in circles), "the highest tick is above all points"
    leaders = [re.fullmatch(r"M([0-9.]+) ([0-9.]+)L([0-9.]+) ([0-9.]+)", a["d"]) for tag, a, _ in svg if tag == "path"]
    leaders = [tuple(float(v) for v in m.groups()) for m in leaders if m and m[3] == "614"]
    labels = [(t, x, y - 4) for t, x, y in texts if t.startswith("batch ")]
    last = max(p["threads"] for p in result["sweep"])
    batches = sorted({p["batch"] for p in result["sweep"]})
    for batch in batches:
        [place] = [(x, y) for t, x, y in labels if t == "batch %d, cpu" % batch]
        [leader] = [m for m in leaders if m[3] == place[1]]
        tap.equal(leader[:2], points[last, batch][:2], "the line of batch %d" % batch)
    # Labels are in the order in which the lines end, and do not cover each other.
    ends = sorted(batches, key=lambda batch: points[last, batch][1])
    tap.equal([int(t.split()[1].rstrip(",")) for t, *_ in sorted(labels, key=lambda label: label[2])], ends)
    heights = sorted(y for _, _, y in labels)
    assert all(b - a >= 15.9 for a, b in zip(heights, heights[1:])), heights


@tap.test
def a_sweep_continues_after_a_point_that_fails():
    shard("a.tar", [{"jpg": photo(i)} for i in range(8)])
    args = ["--sweep", "--sweep-threads", "1", "--epochs", "1", "--image", "64", "--lanes", "1", "--memory-budget", "2M"]
    result, _ = bench(*args, "--sweep-batch", "4,4096", "a.tar")
    tap.equal(result["best"]["batch"], 4)
    assert "memory_budget" in result["sweep"][1]["error"]
    r = tap.run("bench", *args, "--sweep-batch", "4096", "a.tar")
    tap.equal(r.returncode, 1)
    assert "no run of the sweep worked" in r.stderr.decode(), r.stderr
    tap.equal(tap.run("bench", "--plot", "x.svg", "a.tar").returncode, 2)
    r = tap.run("bench", "--sweep", "--sweep-device", ",".join(["cpu"] * 17), "a.tar")
    assert r.returncode == 2 and b"--sweep-device: more than 16 values" in r.stderr, r


@tap.test
def profile_against_reports_drift():
    shard("a.tar", [{"cls": b"%d" % (i % 4), "txt": b"x" * (i % 9)} for i in range(200)])
    shard("b.tar", [{"cls": b"%d" % (7 if i < 60 else i % 4), "txt": b"x" * (9 + i % 9)} for i in range(200)])
    args = ["--epochs", "1", "--field", "cls=int64", "--field", "txt=bytes", "--lanes", "1"]
    bench(*args, "--profile", "p.json", "a.tar")
    profile = json.load(open("p.json"))
    tap.equal(profile["fields"]["cls"]["labels"], {"0": 50, "1": 50, "2": 50, "3": 50})
    tap.equal(bench(*args, "--profile-against", "p.json", "a.tar")[1], "")
    r = tap.run("bench", "--json", *args, "--profile-against", "p.json", "b.tar")
    warned = r.stderr.decode()
    tap.equal(r.returncode, 3, "drift has an exit status of its own")
    tap.equal(json.loads(r.stdout)["samples"], 200)
    for says in ("label 7 is new", "field cls: 30 % of the samples", "field txt: mean of items is 1", ):
        assert says in warned, warned
    r = tap.run("bench", *args, "--profile-against", "nosuch.json", "a.tar")
    tap.equal((r.returncode, r.stderr.count(b"\n")), (1, 1))
    tap.write("no.json", b"[1]")
    r = tap.run("bench", *args, "--profile-against", "no.json", "a.tar")
    tap.equal(r.returncode, 1)
    assert b"no.json: not a profile; make one with penstock-loader bench --profile" in r.stderr, r.stderr


@memory_test
def memory_is_at_most_the_budget_plus_64_MiB():
    """400 samples of 1 MiB, a shuffle window of all of them, and a budget of 48 MiB."""
    blob = os.urandom(1 << 20)
    for s in range(4):
        shard("big-%d.tar" % s, [{"bin": blob, "cls": b"1"} for _ in range(100)])
    result, _ = bench("--epochs", "1", "--memory-budget", "48M", "--batch", "4", "--lanes", "4", "--field", "cls=int64",
                      "--field", "bin=bytes", *["big-%d.tar" % s for s in range(4)])
    tap.equal(result["samples"], 400)
    assert result["peak_rss_bytes"] <= (48 + 64) << 20, result["peak_rss_bytes"]


@memory_test
def memory_with_images_is_at_most_the_budget_plus_64_MiB():
    shard("a.tar", [{"jpg": photo(i)} for i in range(300)])
    result, _ = bench("--epochs", "2", "--memory-budget", "40M", "--batch", "16", "--threads", "4", "--lanes", "2", "a.tar")
    tap.equal(result["samples"], 600)
    assert result["peak_rss_bytes"] <= (40 + 64) << 20, result["peak_rss_bytes"]


@memory_test
def memory_with_progressive_images_is_at_most_the_budget_plus_64_MiB():
    """An image has 18 MB of coefficients: without waits eight threads would need 144 MB."""
    from PIL import Image  # scripts/setup-debian installs it for the tests

    out = io.BytesIO()
    Image.open(tap.PHOTOS[0]).convert("RGB").resize((3000, 2000)).save(out, "JPEG", progressive=True, quality=60)
    shard("a.tar", [{"jpg": out.getvalue()} for _ in range(40)])
    result, _ = bench("--epochs", "1", "--memory-budget", "32M", "--batch", "8", "--threads", "8", "--lanes", "1", "a.tar")
    tap.equal(result["samples"], 40)
    assert result["peak_rss_bytes"] <= (32 + 64) << 20, result["peak_rss_bytes"]


if __name__ == "__main__":
    tap.main()
