#!/usr/bin/python3
"""tests/bench/shuffle_quality: how it measures an order, and how the loader's order measures."""
import json
import os
import re
import subprocess

import tap


def run(*args):
    return subprocess.run([os.path.join(tap.BUILD, "tests/bench/shuffle_quality"), *args], capture_output=True)


@tap.test
def quality_distinguishes_a_shuffled_order_from_the_list():
    for s in range(8):
        tap.make_tar("quality-%d.tar" % s, [("%d-%03d.cls" % (s, i), b"1") for i in range(50)])

    def quality(*args):
        r = run("--json", *args, "quality-{0..7}.tar")
        tap.equal((r.returncode, r.stderr), (0, b""))
        return json.loads(r.stdout)["order"]

    plain, mixed = quality("--order", "none"), quality()
    tap.equal((plain["neighbours_kept"], plain["distance"], plain["rank_correlation"]), (1.0, 0.0, 1.0))
    assert mixed["neighbours_kept"] < 0.1 and 0.7 < mixed["distance"] < 1.3, mixed
    assert abs(mixed["rank_correlation"]) < 0.3, mixed


@tap.test
def quality_deals_an_epoch_to_many_ranks():
    """The figures of the table in tests/bench/RESULTS.md; tests/bench/shuffle-peers measures WebDataset's."""
    def dealt(*args):
        r = run("--json", "--world", *args)
        tap.equal((r.returncode, r.stderr), (0, b""), args)
        return json.loads(r.stdout)

    r = dealt("64", "--batch", "32", "--simulate", "512x200")
    assert r["shards_in_batch"] > 7.7 and r["shards_in_batch_least"] == 8 and r["samples_held"] == 512, r
    tap.equal((r["lanes"], r["shuffle_window"], r["ranks_per_shard"]), (512, 32768, 1.0))
    r = dealt("8", "--batch", "32", "--simulate", "512x200", "--spread", "10")
    assert r["shards_in_batch"] > 30 and r["ranks_per_shard"] < 2 and r["lanes"] == 256, r
    assert abs(r["epoch_correlation"]) < 0.35 and 0.6 < r["distance"] < 1.3 and 0 <= r["batch_overlap"] <= 1, r
    r = dealt("64", "--batch", "32", "--simulate", "512x200", "--spread", "10", "--ranks-per-node", "8", "--homes", "8")
    assert r["ranks_per_shard"] < 2, r
    for s in range(8):
        tap.make_tar("quality-%d.tar" % s, [("%d-%03d.cls" % (s, i), b"1") for i in range(50)])
    r = dealt("4", "--batch", "8", "quality-{0..7}.tar")
    tap.equal((r["world"], r["lanes"], r["shards_in_batch"], r["ranks_per_shard"]), (4, 8, 2.0, 1.0))
    plain = run("--world", "4", "quality-{0..7}.tar").stdout.decode()
    assert plain.startswith("world 4: 8 lanes, a window of "), plain
    assert "8 shards are fewer than 32 for each rank: " in plain and "into 128 shards" in plain, plain
    tap.equal((r["shards"], r["shards_advised"]), (8, 128))
    enough = run("--world", "4", "--simulate", "128x20").stdout.decode()
    assert "fewer" not in enough and "less than" not in enough, enough
    r = dealt("4", "--batch", "200", "quality-{0..7}.tar")  # 400 samples: half of a global batch
    tap.equal((r["shards_in_batch_least"], r["batch_overlap"], r["samples_held"]), (None, None, 100))
    plain = run("--world", "4", "--batch", "200", "quality-{0..7}.tar").stdout.decode()
    assert "400 samples are less than a global batch of 800: no batch is full; take a smaller --batch" in plain, plain
    assert re.search("at least, while no lane has ended +-\n", plain) and re.search("batch before, too +-\n", plain), plain
    for args, says in ((["--simulate", "512"], b"SHARDSxSAMPLES"), (["--order", "none", "quality-0.tar"], b"window and shards"),
                       (["--simulate", "5x5", "quality-0.tar"], b"reads no shards")):
        r = run("--world", "4", *args)
        assert r.returncode == 2 and says in r.stderr, r
    r = run("--simulate", "5x5")
    assert r.returncode == 2 and b"need --world" in r.stderr, r


tap.main()
