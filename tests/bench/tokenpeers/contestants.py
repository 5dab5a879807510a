"""The contestants of tokens-peers. As a program, reads token rows with one of them and prints a line of JSON: the tokens
of the batches after the first one, and the CPU seconds of all threads of the process.

    contestants.py NAME FOLDER LENGTH BATCH TOKENS

FOLDER has web.bin and web.idx: u16 tokens in Megatron's format, each document ended by a 0."""
import json
import os
import shutil
import struct
import sys
import tempfile
import time
import warnings

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
NOT_HERE = 77
VOCAB = 50_000
PARTS = ("positions", "segments", "mask", "cu", "document")


def read_lens(prefix):
    with open(prefix + ".idx", "rb") as f:
        head = f.read(34)
        n = struct.unpack("<Q", head[18:26])[0]
        return np.frombuffer(f.read(4 * n), "<i4").astype(np.int64)


def penstock(folder, length, batch, **options):
    sys.path.insert(0, os.path.join(HERE, "../../loader"))
    import tap

    tap.python_package(exit_code=NOT_HERE, needed=("numpy",))
    import penstock as package

    field = package.Tokens(length=length, dtype="i32", **options)
    loader = package.Loader(os.path.join(folder, "web.bin"), batch, {"x": field}, threads=1, format="numpy", seed=1)
    return ((b["x"].size, b) for b in loader)


def packed(folder, length, batch):
    return penstock(folder, length, batch, pack="fit", parts=PARTS, vocab=VOCAB)


def windows(folder, length, batch):
    return penstock(folder, length, batch)


def litdata(folder, length, batch):
    import litdata as ld
    import torch
    from litdata.streaming import Cache
    from litdata.streaming.item_loader import TokensLoader

    torch.set_num_threads(1)
    out = os.path.join(folder, "litdata")
    if not os.path.exists(out + "/index.json"):
        shutil.rmtree(out, ignore_errors=True)
        os.makedirs(out)
        tokens = np.memmap(os.path.join(folder, "web.bin"), np.uint16, "r")
        ends = np.cumsum(read_lens(os.path.join(folder, "web")))
        cache = Cache(out, chunk_bytes="32MB", item_loader=TokensLoader(block_size=length))
        for i, (a, z) in enumerate(zip(np.concatenate([[0], ends]), ends)):
            cache._add_item(i, torch.from_numpy(np.asarray(tokens[a:z], np.uint16)))
        cache.done()
        cache.merge()
    dataset = ld.StreamingDataset(out, item_loader=TokensLoader(block_size=length), shuffle=True, drop_last=True)
    return ((x.numel(), x) for x in ld.StreamingDataLoader(dataset, batch_size=batch, num_workers=0))


def megatron(folder, length, batch):
    os.environ["CUDA_HOME"] = "/nonexistent"
    import tempfile

    import torch
    from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig
    from megatron.core.datasets.indexed_dataset import IndexedDataset
    from megatron.core.datasets.utils import Split

    torch.set_num_threads(1)

    class Tokenizer:
        vocab_size, eod, pad, bos, unique_identifiers = VOCAB, 0, 0, 1, {"t": 1}

    prefix = os.path.join(folder, "web")
    config = GPTDatasetConfig(
        random_seed=1, sequence_length=length, blend=None, split="100,0,0", tokenizer=Tokenizer(),
        path_to_cache=tempfile.mkdtemp(dir=folder), reset_position_ids=True, reset_attention_mask=False,
        eod_mask_loss=True, create_attention_mask=False)
    indexed = IndexedDataset(prefix, multimodal=False, mmap=True)
    dataset = GPTDataset(indexed, prefix, np.arange(len(indexed), dtype=np.int32), None, Split.train, config)
    return ((b["tokens"].numel(), b) for b in torch.utils.data.DataLoader(dataset, batch_size=batch, num_workers=0))


def grain(folder, length, batch):
    import grain.python as package

    tokens = np.memmap(os.path.join(folder, "web.bin"), np.uint16, "r")
    ends = np.cumsum(read_lens(os.path.join(folder, "web")))

    class Documents:
        def __len__(self):
            return len(ends)

        def __getitem__(self, i):
            return {"x": np.asarray(tokens[ends[i - 1] if i else 0:ends[i]], np.int32)}

    data = package.MapDataset.source(Documents()).shuffle(1).to_iter_dataset(package.ReadOptions(num_threads=0))
    data = data.filter(lambda sample: len(sample["x"]) <= length)
    data = package.experimental.FirstFitPackIterDataset(data, length_struct={"x": length}, num_packing_bins=8, seed=1,
                                                        shuffle_bins=True).batch(batch, drop_remainder=True)
    return ((b["x"].size, b) for b in data)


CONTESTANTS = {"packed": packed, "windows": windows, "litdata": litdata, "megatron": megatron, "grain": grain}


def main():
    name, folder = sys.argv[1:3]
    length, batch, limit = map(int, sys.argv[3:6])
    warnings.simplefilter("ignore")
    try:
        batches = iter(CONTESTANTS[name](folder, length, batch))
        next(batches)
    except ImportError as e:
        print(e, file=sys.stderr)
        sys.exit(NOT_HERE)
    tokens, cpu = 0, time.process_time()
    for n, _ in batches:
        tokens += n
        if tokens >= limit:
            break
    print(json.dumps({"tokens": tokens, "cpu_seconds": time.process_time() - cpu}))
    sys.stdout.flush()
    os._exit(0)  # what a contestant does at its end is not measured


if __name__ == "__main__":
    main()
