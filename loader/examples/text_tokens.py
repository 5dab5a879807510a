#!/usr/bin/env python3
"""Texts of shards as batches of token numbers, by a tokenizer of the `tokenizers` package:

    text_tokens.py TOKENIZER.json LENGTH SHARDS...
"""
import sys

import penstock
import tokenizers
import torch


def main(tokenizer_file, length, *shards):
    tokenizer = tokenizers.Tokenizer.from_file(tokenizer_file)
    tokenizer.enable_truncation(max_length=int(length))
    tokenizer.enable_padding(length=int(length))

    def encode(batch):  # called on the consumer's thread; the tokenizer releases the GIL and uses threads of its own
        encoded = tokenizer.encode_batch(batch["text"].tolist())
        return {
            "input_ids": torch.tensor([e.ids for e in encoded]),
            "attention_mask": torch.tensor([e.attention_mask for e in encoded]),
        }

    loader = penstock.Loader(shards, batch=16, fields={"text": penstock.Text("txt")}, format="torch", transform=encode)
    tokens = 0
    for batch in loader:
        tokens += int(batch["attention_mask"].sum())
    print("%d tokens" % tokens)


if __name__ == "__main__":
    main(*sys.argv[1:])
