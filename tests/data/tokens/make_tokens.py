#!/usr/bin/env python3
"""Writes the token files of this folder with Megatron's and datatrove's own writers.

    python3 -m venv v && v/bin/pip install numpy torch megatron-core==0.16.1 datatrove==0.10.1 humanize
    v/bin/python make_tokens.py

  megatron_u16        .bin and .idx, each document one sequence
  megatron_i32        .bin and .idx, documents of one to four sequences, large tokens
  datatrove_u16       .ds, .ds.index, and .ds.loss with a byte for each token
  datatrove_u32       .ds and .ds.index

documents() says what is in them; tests compare with it what they read."""
import os
import sys

TOKENS = 2016  # of each file: whole rows of 63 and of 32 tokens
HERE = os.path.dirname(os.path.abspath(__file__))
FILES = {"megatron_u16.bin": 65535, "megatron_i32.bin": 2_000_000_000, "datatrove_u16.ds": 65535,
         "datatrove_u32.ds": 4_000_000_000}


def documents(file):
    """The documents of a file, each a list of tokens of its own."""
    vocab, all_documents, left = FILES[file], [], TOKENS
    while left:
        number = len(all_documents)
        length = min(number * 37 % 61 + 1, left)
        left -= length
        all_documents.append([(number * 7919 + place * 104_729 + 17) * 2_654_435_761 % vocab for place in range(length)])
    return all_documents


def sequences(number, document):
    """The sequences of a document of megatron_i32."""
    n = min(number % 4 + 1, len(document))
    return [document[len(document) * i // n:len(document) * (i + 1) // n] for i in range(n)]


def losses(number, document):
    """datatrove_u16: whether the loss of each token counts."""
    return [(number + place) % 5 != 0 for place in range(len(document))]


def megatron(file, dtype, split):
    import torch
    from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder

    path = os.path.join(HERE, file)
    builder = IndexedDatasetBuilder(path, dtype=dtype)
    for number, document in enumerate(documents(file)):
        parts = split(number, document)
        builder.add_document(torch.tensor(document, dtype=torch.int64), [len(part) for part in parts])
    builder.finalize(path[:-len(".bin")] + ".idx")


def datatrove(file, size, loss):
    import numpy as np
    from datatrove.io import get_datafolder
    from datatrove.pipeline.tokens.tokenizer import TokenizedFile

    out = TokenizedFile(get_datafolder(HERE), file, save_loss_metadata=bool(loss), save_final_metadata=False,
                        token_size=size)
    for number, document in enumerate(documents(file)):
        out.write(document, np.array(loss(number, document)) if loss else None)
    out.close()


def main():
    import numpy as np

    megatron("megatron_u16.bin", np.uint16, lambda number, document: [document])
    megatron("megatron_i32.bin", np.int32, sequences)
    datatrove("datatrove_u16.ds", 2, losses)
    datatrove("datatrove_u32.ds", 4, None)


if __name__ == "__main__":
    sys.exit(main())
