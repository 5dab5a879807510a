#!/usr/bin/env python3
"""One node's reads for tests/bench/nodes: node_reader.py MOUNT NODE DEAL CRCS DIR

Announces all epochs of NODE in DEAL (lines of NODE EPOCH SHARD), then reads each epoch's shards in that order, once
DIR/go-EPOCH is there, and makes DIR/done-EPOCH-NODE. CRCS has a line for each shard: CRC and name.
Prints what differs.
"""
import json
import os
import subprocess
import sys
import time
import zlib

mount, node, deal, crcs, folder = sys.argv[1:]
with open(crcs, encoding="ascii") as f:
    right = {name: int(crc) for crc, name in map(str.split, f)}
epochs = {}
with open(deal, encoding="ascii") as f:
    for line in f:
        who, epoch, shard = line.split()
        if who == node:
            epochs.setdefault(int(epoch), []).append(f"shard-{int(shard):04}.tar")

with subprocess.Popen(
    [sys.executable, os.path.join(os.path.dirname(__file__), "../fs/prefetch/tell_plan.py"), f"{mount}/.penstock/plan"],
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    text=True,
) as teller:

    def tell(**fields):
        teller.stdin.write(json.dumps({"job": "deal", "rank": 0, **fields}) + "\n")
        teller.stdin.flush()
        answer = teller.stdout.readline().strip()
        if answer != "ok":
            print(f"node {node}: the plan was refused: {answer}", flush=True)

    for epoch, names in epochs.items():
        tell(penstock_plan=1, world=1, epoch=epoch, files=names)
    for epoch, names in epochs.items():
        while not os.path.exists(f"{folder}/go-{epoch}"):
            time.sleep(0.02)
        for done, name in enumerate(names):
            tell(penstock_position=1, epoch=epoch, files_done=done)
            crc = 0
            with open(f"{mount}/{name}", "rb", buffering=0) as shard:
                while part := shard.read(1 << 20):
                    crc = zlib.crc32(part, crc)
            if crc != right[name]:
                print(f"wrong bytes: {name}", flush=True)
        with open(f"{folder}/done-{epoch}-{node}", "w", encoding="ascii"):
            pass
