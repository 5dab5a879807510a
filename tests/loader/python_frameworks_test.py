#!/usr/bin/python3
"""The Python package with other packages: training loops of Accelerate, Hugging Face's Trainer and Lightning; pip. The
continuous integration runs it, beside python_trainers_test, which has the latest versions."""
import os
import shutil
import subprocess
import sys
import types

import tap

if os.environ.get("PENSTOCK_TEST_LONG") != "1":
    tap.skip_all("its packages take long to install and import: scripts/check --all runs it")
tap.python_environment("frameworks", ["accelerate", "pytorch_lightning", "transformers"], [
    # The last versions that work with Debian 12's torch 1.13 on its Python 3.11. Without dependencies: pip would fetch
    # gigabytes of another torch.
    "accelerate==0.20.3", "pytorch-lightning==1.8.6", "lightning-utilities==0.9.0", "torchmetrics==0.11.4",
    "tensorboardX==2.6", "protobuf==3.20.3", "transformers==4.30.2", "huggingface_hub==0.16.4", "tokenizers==0.13.3",
    "safetensors==0.3.3", "regex", "filelock", "fsspec", "tqdm", "psutil", "pyyaml", "packaging", "requests",
    "certifi", "idna", "urllib3", "charset_normalizer"])
tap.python_package()

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", WANDB_DISABLED="true", CUDA_VISIBLE_DEVICES="")

import torch

import penstock

SAMPLES, BATCH = 30, 4


def shards():
    for s in range(3):
        files = []
        for i in range(10):
            files += [("s%d/%02d.jpg" % (s, i), tap.read(tap.PHOTOS[(s * 10 + i) % len(tap.PHOTOS)])),
                      ("s%d/%02d.cls" % (s, i), b"%d" % (10 * s + i))]
        tap.make_tar("t-%d.tar" % s, files)
    assert tap.run("index", "t-0.tar", "t-1.tar", "t-2.tar").returncode == 0
    return "t-{0..2}.tar"


def loader(**options):
    fields = {"pixel_values": penstock.Image("jpg", size=8), "labels": penstock.Int("cls")}
    return penstock.Loader(shards(), BATCH, fields, format="torch", **options)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3 * 8 * 8, SAMPLES)
        self.seen = []

    def forward(self, pixel_values, labels):
        self.seen += labels.tolist()
        logits = self.linear(pixel_values.flatten(1))
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}


def check_two_epochs(seen):
    tap.equal(sorted(seen[:SAMPLES]), list(range(SAMPLES)), "first epoch")
    tap.equal(sorted(seen[SAMPLES:]), list(range(SAMPLES)), "second epoch")
    assert seen[:SAMPLES] != seen[SAMPLES:]


@tap.test
def accelerate_prepares_and_iterates_a_loader():
    from accelerate import Accelerator

    model = Model()
    accelerator = Accelerator(cpu=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    model, optimizer, load = accelerator.prepare(model, optimizer, loader())
    tap.equal(len(load), 8)
    for _ in range(2):
        for batch in load:
            loss = model(**batch)["loss"]
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
    check_two_epochs(model.seen)


@tap.test
def hugging_face_trainer_trains_on_a_loader():
    from transformers import Trainer, TrainingArguments

    class Fed(Trainer):
        def get_train_dataloader(self):
            return loader()

    model = Model()
    arguments = TrainingArguments("out", num_train_epochs=2, no_cuda=True, report_to=[], save_strategy="no",
                                  disable_tqdm=True, logging_strategy="no")
    result = Fed(model, arguments).train()
    tap.equal(result.global_step, 16)
    check_two_epochs(model.seen)


@tap.test
def lightning_trains_on_a_loader():
    # Debian's torch 1.13 cannot import these parts of itself on Python 3.11; Lightning imports them, but does not
    # use them.
    unused = types.ModuleType("unused")
    unused.__getattr__ = lambda name: type(name, (), {"__init__": lambda self, *a, **k: None})
    unused.__path__ = []
    for name in ("_shard", "_shard.sharded_tensor", "fsdp", "fsdp.fully_sharded_data_parallel",
                 "fsdp.sharded_grad_scaler", "fsdp.wrap"):
        sys.modules.setdefault("torch.distributed." + name, unused)
    import pytorch_lightning as lightning

    class Fed(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = Model()

        def training_step(self, batch, _):
            return self.model(**batch)["loss"]

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.01)

    module, load = Fed(), loader()
    lightning.Trainer(max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False,
                      enable_progress_bar=False, enable_model_summary=False).fit(module, load)
    check_two_epochs(module.model.seen)


@tap.test
def the_text_tokens_example_makes_tokens_of_texts():
    import tokenizers

    texts = ["a penstock feeds a turbine", "a loader feeds a model", "water"] * 10
    tap.make_tar("t.tar", [("%02d.txt" % i, text.encode()) for i, text in enumerate(texts)])
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(unk_token="?"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.train_from_iterator(texts, tokenizers.trainers.WordLevelTrainer(special_tokens=["?"]))
    tokenizer.save("tokenizer.json")
    r = subprocess.run([sys.executable, os.path.join(tap.SRC, "loader/examples/text_tokens.py"), "tokenizer.json", "8",
                        "t.tar"], capture_output=True, text=True, timeout=60)
    tap.equal((r.stdout, r.returncode), ("%d tokens\n" % sum(len(t.split()) for t in texts), 0), r.stderr)


@tap.test
def pip_builds_and_installs_the_package():
    """Builds from unpacked sources, against a build tree."""
    for folder in ("base", "loader/batch", "loader/include", "loader/option", "loader/python"):
        shutil.copytree(os.path.join(tap.SRC, folder), folder)
    clean = {**tap.clean_environment(), "PENSTOCK_BUILD": tap.BUILD}
    run = dict(capture_output=True, text=True, timeout=200, env=clean)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", "venv"], check=True, **run)  # pip in it takes seconds
    pip = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check"]
    r = subprocess.run([*pip, "download", "--no-deps", "setuptools"], **run)
    if r.returncode != 0:
        raise tap.Skip("pip has no index to get setuptools from: " + r.stderr[-200:].replace("\n", " "))
    pip += ["--python", "venv/bin/python", "install", "./loader/python"]
    r = subprocess.run(pip, **run)
    tap.equal(r.returncode, 0, r.stdout + r.stderr)
    runtime = tap.sanitizer_runtime(os.path.join(tap.BUILD, "loader/.libs/libpenstock.so"))
    if runtime:
        clean.update(LD_PRELOAD=runtime, ASAN_OPTIONS="detect_leaks=0")
    tap.make_tar("t.tar", [("%d.cls" % i, b"%d" % i) for i in range(4)])
    code = "import penstock; print(sum(b.rows for b in penstock.Loader('t.tar', 3, penstock.Int('cls'))))"
    r = subprocess.run(["venv/bin/python", "-c", code], **run)
    tap.equal((r.stdout, r.returncode), ("4\n", 0), r.stderr)
    r = subprocess.run(pip, **{**run, "env": {**clean, "PENSTOCK_BUILD": "/"}})
    assert r.returncode != 0 and "run make there" in r.stdout + r.stderr, r.stdout + r.stderr


if __name__ == "__main__":
    tap.main()
