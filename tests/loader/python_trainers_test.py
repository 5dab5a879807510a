#!/usr/bin/python3
"""Resuming in the middle of an epoch with Hugging Face's Trainer, torchdata's StatefulDataLoader, Lightning and
Accelerate, in the latest versions of the package index. Each block of docs/python/trainers.md and
docs/guides/ddp-and-resume.md also runs in two processes, which count the samples."""
import io
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time

import tap

tap.python_environment("trainers", ["torch", "torchdata", "transformers", "accelerate", "lightning"],
                       ["torch", "numpy", "pillow", "torchdata", "transformers", "accelerate", "lightning"],
                       dependencies=True)
tap.python_package()

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", WANDB_DISABLED="true", TOKENIZERS_PARALLELISM="false",
                  CUDA_VISIBLE_DEVICES="")

import torch
from torch.utils.data import DataLoader

import penstock
import penstock.torch

SAMPLES, BATCH, STEPS = 30, 4, 8
FIELDS = {"pixel_values": penstock.Image("jpg", size=8), "labels": penstock.Int("cls")}


def loader(**options):
    if not os.path.exists("t-0.tar"):
        for s in range(3):
            files = []
            for i in range(10):
                files += [("s%d/%02d.jpg" % (s, i), tap.read(tap.PHOTOS[(s * 10 + i) % len(tap.PHOTOS)])),
                          ("s%d/%02d.cls" % (s, i), b"%d" % (10 * s + i))]
            tap.make_tar("t-%d.tar" % s, files)
        assert tap.run("index", "t-0.tar", "t-1.tar", "t-2.tar").returncode == 0
    return penstock.Loader("t-{0..2}.tar", BATCH, FIELDS, format="torch", **options)


def straight(epochs):
    """The labels of each step of a run without interruption."""
    load = loader()
    steps = [batch["labels"].tolist() for _ in range(epochs) for batch in load]
    tap.equal(len(steps), epochs * STEPS)
    assert steps[:STEPS] != steps[STEPS : 2 * STEPS]
    return steps


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3 * 8 * 8, SAMPLES)
        self.seen = []

    def forward(self, pixel_values, labels):
        if self.training:
            self.seen.append(labels.tolist())
        logits = self.linear(pixel_values.flatten(1))
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}


@tap.test
def torchdata_continues_after_any_step():
    from torchdata.stateful_dataloader import StatefulDataLoader

    want = straight(3)

    def make():
        return StatefulDataLoader(penstock.torch.Dataset(loader()), batch_size=None)

    for done in (0, 1, 3, STEPS - 1, STEPS, STEPS + 5, 2 * STEPS):
        load, seen = make(), []
        while len(seen) < done:
            for batch in load:
                seen.append(batch["labels"].tolist())
                if len(seen) == done:
                    break
        torch.save(load.state_dict(), "state.pt")
        load = make()
        load.load_state_dict(torch.load("state.pt"))
        while len(seen) < len(want):
            for batch in load:
                seen.append(batch["labels"].tolist())
        tap.equal(seen, want, "after %d steps" % done)


@tap.test
def torchdata_does_not_read_earlier_batches_again():
    from torchdata.stateful_dataloader import StatefulDataLoader

    load = StatefulDataLoader(penstock.torch.Dataset(loader()), batch_size=None)
    steps = iter(load)
    for _ in range(6):
        next(steps)
    state = load.state_dict()
    load = StatefulDataLoader(penstock.torch.Dataset(loader()), batch_size=None)
    load.load_state_dict(state)
    next(iter(load))
    tap.equal(load.dataset.loader.stats()["batches"], 1)


@tap.test
def set_epoch_to_the_epoch_of_the_state_keeps_the_state():
    want = straight(3)
    first = penstock.torch.Dataset(loader())
    first.set_epoch(1)
    steps = iter(DataLoader(first, batch_size=None))
    had = [next(steps)["labels"].tolist() for _ in range(3)]
    state = first.state_dict()
    again = penstock.torch.Dataset(loader())
    again.load_state_dict(state)
    for epoch in (1, 2):
        again.set_epoch(epoch)
        had += [batch["labels"].tolist() for batch in DataLoader(again, batch_size=None)]
    tap.equal(had, want[STEPS:])
    again.set_epoch(2)
    tap.equal([batch["labels"].tolist() for batch in again], want[2 * STEPS :],
              "without a loaded state the epoch begins at its first batch")


def trainer(model, **arguments):
    from transformers import Trainer, TrainingArguments

    class Fed(Trainer):
        def get_train_dataloader(self):
            return penstock.torch.DataLoader(loader())

    arguments.update(num_train_epochs=3, use_cpu=True, report_to=[], disable_tqdm=True, logging_strategy="no")
    return Fed(model, TrainingArguments("out", **arguments))


@tap.test
def hugging_face_trainer_resumes_in_any_epoch():
    want = straight(3)
    model = Model()
    trainer(model, save_strategy="steps", save_steps=3).train()
    tap.equal(model.seen, want)
    for step in (3, 12, 21):
        model = Model()
        result = trainer(model, save_strategy="no").train(resume_from_checkpoint="out/checkpoint-%d" % step)
        tap.equal(result.global_step, 3 * STEPS)
        tap.equal(model.seen, want[step:], "from step %d" % step)


@tap.test
def the_error_for_a_bare_loader_names_what_resuming_needs():
    from accelerate import skip_first_batches

    assert not hasattr(loader(), "dataset")
    try:
        skip_first_batches(loader(), 2)
    except AttributeError as e:
        assert "penstock.torch.DataLoader(loader)" in str(e) and "samples()" in str(e), e
    else:
        raise AssertionError("it skips")


@tap.test
def accelerate_skips_the_batches_of_the_first_run():
    from accelerate import Accelerator, skip_first_batches

    want = straight(3)
    for make in (lambda: DataLoader(penstock.torch.Dataset(loader()), batch_size=None),
                 lambda: penstock.torch.DataLoader(loader())):
        load = Accelerator(cpu=True).prepare(make())
        rest = skip_first_batches(load, 5)
        rest.set_epoch(1)
        seen = [batch["labels"].tolist() for batch in rest]
        load.set_epoch(2)
        seen += [batch["labels"].tolist() for batch in load]
        tap.equal(seen, want[STEPS + 5 :])


@tap.test
def accelerate_saves_the_position_of_a_prepared_loader():
    from accelerate import Accelerator

    want = straight(2)
    loader()
    for make in (loader, lambda: penstock.Loader("n-{0..2}.tar", BATCH, FIELDS, format="torch")):
        for s in range(3):  # the same without indexes: the length is not known, so one batch more is taken
            shutil.copy("t-%d.tar" % s, "n-%d.tar" % s)
        accelerator = Accelerator(cpu=True)
        load, seen = accelerator.prepare(penstock.torch.DataLoader(make())), []
        for batch in load:
            seen.append(batch["labels"].tolist())
            assert not accelerator.gradient_state.end_of_dataloader
            if len(seen) == 3:
                accelerator.save_state("saved")
                break
        accelerator.free_memory()
        load = accelerator.prepare(penstock.torch.DataLoader(make()))
        accelerator.load_state("saved")
        ends = []
        for _ in range(2):
            for batch in load:
                seen.append(batch["labels"].tolist())
                ends.append(accelerator.gradient_state.end_of_dataloader)
        tap.equal(seen, want)
        tap.equal(ends, [False] * 4 + [True] + [False] * 7 + [True])


@tap.test
def accelerate_checkpoints_a_loader():
    from accelerate import Accelerator

    want = straight(2)
    accelerator, load = Accelerator(cpu=True), loader()
    accelerator.register_for_checkpointing(load)
    seen = []
    for batch in load:
        seen.append(batch["labels"].tolist())
        if len(seen) == 3:
            accelerator.save_state("saved")
            break
    accelerator, load = Accelerator(cpu=True), loader()
    accelerator.register_for_checkpointing(load)
    accelerator.load_state("saved")
    for _ in range(2):
        seen += [batch["labels"].tolist() for batch in load]
    tap.equal(seen, want)


def check_lightning(make):
    import lightning
    from lightning.pytorch.callbacks import ModelCheckpoint

    class Fed(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = Model()

        def training_step(self, batch, _):
            return self.model(**batch)["loss"]

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.01)

    def fit(checkpoint, **options):
        module = Fed()
        lightning.Trainer(max_epochs=3, accelerator="cpu", logger=False, enable_progress_bar=False,
                          enable_model_summary=False, **options).fit(module, make(), ckpt_path=checkpoint)
        return module.model.seen

    want = straight(3)
    saved = ModelCheckpoint("saved", "{step}", save_top_k=-1, every_n_train_steps=3)
    tap.equal(fit(None, callbacks=[saved]), want)
    for step in (3, 12, 21):
        seen = fit("saved/step=%d.ckpt" % step, enable_checkpointing=False)
        tap.equal(seen, want[step:], "from step %d" % step)


@tap.test
def lightning_resumes_a_loader_in_any_epoch():
    check_lightning(loader)


@tap.test
def lightning_resumes_a_stateful_dataloader_in_any_epoch():
    from torchdata.stateful_dataloader import StatefulDataLoader

    check_lightning(lambda: StatefulDataLoader(penstock.torch.Dataset(loader()), batch_size=None))


# -- Two processes ---------------------------------------------------------------------------------------

ALL = 37  # samples in train/: global batches of 8 leave 5, and those of 12 leave 1

# What each process runs first. The image of sample i is grey of level 6 i, so that a model can tell what it was given.
PRELUDE = """
import json, os
import torch
import penstock

delivered, trained, evaluated = [], [], []  # samples: of each loader, a list for each epoch; of each step of a model

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # by which images are normalised
SCALE, OFFSET = sum(1 / s for s in STD) / 3, sum(m / s for m, s in zip(MEAN, STD)) / 3

def tensor_of(value):
    return value if isinstance(value, torch.Tensor) else torch.from_dlpack(value)

def samples_of(images):
    return [round((float(image.mean()) + OFFSET) / SCALE * 255 / 6) for image in tensor_of(images)]

hand_out, linear = penstock.Loader._hand_out, torch.nn.Linear.forward

def hand_out_and_count(self, raw):
    batch = hand_out(self, raw)
    if not hasattr(self, "_seen"):
        self._seen = {}
        delivered.append(self._seen)
    rows = samples_of(batch["image"])
    self._seen.setdefault(str(raw.epoch), []).extend(i for i, valid in zip(rows, tensor_of(batch["__valid__"])) if valid)
    return batch

def forward_and_count(self, x):
    (trained if self.training else evaluated).append(samples_of(x))
    return linear(self, x)

penstock.Loader._hand_out, torch.nn.Linear.forward = hand_out_and_count, forward_and_count
found = {}

def note(block, **more):
    found[block] = {"delivered": list(delivered), "trained": list(trained), "evaluated": list(evaluated), **more}
    del delivered[:], trained[:], evaluated[:]
"""

WRITE = """
with open("found-%d.json" % int(os.environ.get("RANK", os.environ.get("LOCAL_RANK", 0))), "w") as file:
    json.dump(found, file)
"""


def train_make():
    from PIL import Image

    os.makedirs("train")
    n = 0
    for s, size in enumerate((10, 9, 9, 9)):
        files = []
        for _ in range(size):
            data = io.BytesIO()
            Image.new("RGB", (16, 16), (6 * n,) * 3).save(data, "jpeg", quality=100)
            files += [("%06d.jpg" % n, data.getvalue()), ("%06d.cls" % n, b"%d" % (n % 3))]
            n += 1
        tap.make_tar("train/shard-%06d.tar" % s, files)
    assert n == ALL and tap.run("index", *["train/shard-%06d.tar" % s for s in range(4)]).returncode == 0


def blocks_of(page):
    """The Python blocks of a page, with the headings above them."""
    text = tap.read(os.path.join(tap.SRC, "docs", page)).decode()
    found = re.findall(r"^#+ ([^\n]*)\n|^```python\n(.*?)^```$", text, re.M | re.S)
    blocks, heading = [], ""
    for title, code in found:
        heading = title or heading
        if code:
            blocks.append((heading, code))
    return blocks


def processes(n, code, launcher=True):
    """What n processes found: a dict of blocks for each. Without `launcher` the first one starts the others."""
    with open("run.py", "w") as file:
        file.write(PRELUDE + code + WRITE)
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}
    each = [{"RANK": str(i), "LOCAL_RANK": str(i), "WORLD_SIZE": str(n), "LOCAL_WORLD_SIZE": str(n),
             "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)} for i in range(n)] if launcher else [{}]
    running = []
    for i, more in enumerate(each):
        with open("said-%d" % i, "w") as said:
            running.append(subprocess.Popen([sys.executable, "run.py"], stdout=said, stderr=subprocess.STDOUT,
                                            env={**environ, **more}))
    until = time.monotonic() + 400
    try:  # a process whose peer has failed waits for it
        while any(p.poll() is None for p in running) and not any(p.returncode for p in running):
            assert time.monotonic() < until, "the processes hang"
            time.sleep(0.1)
    finally:
        for p in running:
            p.kill()
    assert all(p.wait() == 0 for p in running), [tap.read("said-%d" % i)[-3000:] for i in range(len(running))]
    return [json.loads(tap.read("found-%d.json" % i)) for i in range(n)]


def together(ranks, block, loader, epoch=0):
    """The samples that all ranks had from their loader of this number, which are distinct."""
    samples = [i for rank in ranks for i in rank[block]["delivered"][loader].get(str(epoch), [])]
    tap.equal(len(samples), len(set(samples)), "%s: doubled: %s" % (block, sorted(samples)))
    return set(samples)


def check_epoch(steps, repeats, what):
    """Steps of all ranks, side by side: they have every sample, and as many rows more as `repeats`."""
    rows = [i for rank in steps for step in rank for i in step]
    tap.equal((len(set(rows)), len(rows)), (ALL, ALL + repeats), what)


# How each block is found to be right: code that runs after it in each process, and the heading above it. The steps of 8
# rows leave 5: 3 steps have 24 samples, the rest of the epoch has 13.
AFTER = {
    "Trainers and resuming mid-epoch": "note('own')",
    "Batches": "note('batches')",
    "torchdata": "note('torchdata')",
    "Lightning": None,  # in a run of its own: Lightning starts the processes
    "Accelerate": "note('accelerate', gathered=sum(len(batch) for batch in batches))",
    "Hugging Face's Trainer": "note('trainer', count=metrics['eval_count'])",
}


@tap.test
def the_blocks_of_trainers_md_lose_no_sample_with_two_processes():
    train_make()
    blocks = blocks_of("python/trainers.md")
    tap.equal([heading for heading, _ in blocks], list(AFTER), "each block of the page is in AFTER")
    ranks = processes(2, "\n".join(code + AFTER[heading] + "\n" for heading, code in blocks if AFTER[heading]))
    whole = set(range(ALL))
    for block in ("own", "torchdata"):
        first, rest = together(ranks, block, 0), together(ranks, block, 1)
        tap.equal((len(first), len(rest), first | rest, together(ranks, block, 2)), (24, 13, whole, whole), block)
    tap.equal(len(together(ranks, "batches", 0)), 8)
    first, rest = together(ranks, "accelerate", 0), together(ranks, "accelerate", 1)
    tap.equal((len(first), len(rest), first | rest), (24, 13, whole))
    tap.equal([rank["accelerate"]["gathered"] for rank in ranks], [13, 13])
    tap.equal([rank["trainer"]["count"] for rank in ranks], [ALL, ALL])
    steps = [rank["trainer"]["trained"] for rank in ranks]
    tap.equal([len(rank) for rank in steps], [5 + 2 + 5] * 2)
    check_epoch([rank[:5] for rank in steps], 3, "the first run")
    check_epoch([rank[:3] + rank[5:7] for rank in steps], 3, "until the checkpoint, and after the resume")
    check_epoch([rank[7:] for rank in steps], 3, "the second epoch")
    assert steps[0][7:] != steps[0][:5], "the second epoch has another order"
    evaluated = [rank["trainer"]["evaluated"] for rank in ranks]
    check_epoch([rank[:5] for rank in evaluated], 3, "evaluation")


@tap.test
def lightning_block_of_trainers_md_loses_no_sample_with_two_processes():
    train_make()
    blocks = dict(blocks_of("python/trainers.md"))
    make = blocks["Trainers and resuming mid-epoch"].partition("loader = make()")[0]
    assert 'accelerator="cpu"' in blocks["Lightning"]
    block = blocks["Lightning"].replace('accelerator="cpu"', 'accelerator="cpu", devices=2, strategy="ddp"')
    ranks = processes(2, make + block + """
note("resumed")
class Data(lightning.LightningDataModule):
    def train_dataloader(self):
        return make()
lightning.Trainer(max_epochs=2, reload_dataloaders_every_n_epochs=1, enable_checkpointing=False, **quiet).fit(Model(), datamodule=Data())
note("reloaded")
""", launcher=False)
    steps = [rank["resumed"]["trained"] for rank in ranks]
    tap.equal([len(rank) for rank in steps], [5 + 2 + 5] * 2)
    check_epoch([rank[:5] for rank in steps], 0, "the first run")
    check_epoch([rank[:3] + rank[5:7] for rank in steps], 0, "until the checkpoint, and after the resume")
    check_epoch([rank[7:] for rank in steps], 0, "the second epoch")
    steps = [rank["reloaded"]["trained"] for rank in ranks]
    check_epoch([rank[:5] for rank in steps], 0, "the first epoch")
    check_epoch([rank[5:] for rank in steps], 0, "the second epoch")
    assert steps[0][5:] != steps[0][:5], "a loader that is made again in each epoch has another order"


@tap.test
def the_blocks_of_ddp_and_resume_md_lose_no_sample_with_two_processes():
    train_make()
    blocks = blocks_of("guides/ddp-and-resume.md")
    tap.equal([heading for heading, _ in blocks], ["The same number of batches on every rank", "Resuming", "Resuming"])
    ranks = processes(2, "".join(code + "note('%s')\n" % what for what, (_, code) in
                                 zip(("ranks", "resuming", "another batch"), blocks)))
    whole = set(range(ALL))
    for rank in ranks:  # each process has the loaders of both ranks
        tap.equal(together([rank], "ranks", 0) | together([rank], "ranks", 1), whole)
        tap.equal(sum(len(rank["ranks"]["delivered"][i]["0"]) for i in range(2)), ALL)
        tap.equal(len(together([rank], "resuming", 0)), 4)
        for what, which in ("resuming", 1), ("another batch", 0):
            tap.equal(len(together([rank], what, which)), ALL - 8, what)


EVALUATE = """
import penstock.torch
from accelerate import Accelerator
from transformers import Trainer, TrainingArguments

def make(**options):
    return penstock.torch.DataLoader(penstock.Loader(
        "train", batch=4, fields={"image": penstock.Image("jpg", size=16), "label": penstock.Int("cls")}, format="torch", **options))

class Fed(Trainer):
    def get_train_dataloader(self):
        return make()

    def get_eval_dataloader(self, eval_dataset=None):
        return make(order="none")

class Classifier(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.linear = torch.nn.Linear(3 * 16 * 16, 3)

    def forward(self, image, label):
        logits = self.linear(image.flatten(1))
        return {"loss": torch.nn.functional.cross_entropy(logits, label), "logits": logits}

def count(predictions):
    return {"labels": predictions.label_ids.tolist(), "guesses": predictions.predictions.argmax(1).tolist()}

arguments = TrainingArguments(
    "out", use_cpu=True, report_to=[], disable_tqdm=True, logging_strategy="no", save_strategy="no", label_names=["label"],
    per_device_train_batch_size=4, per_device_eval_batch_size=4, num_train_epochs=2, gradient_accumulation_steps=2)
trainer = Fed(Classifier(), arguments, compute_metrics=count)
metrics = trainer.evaluate()
note("evaluate", metrics={name: metrics["eval_" + name] for name in ("labels", "guesses", "loss")})
result = trainer.train()
note("train", steps=result.global_step)

accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
model = Classifier()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
model, optimizer, loader = accelerator.prepare(model, optimizer, make())
updates = []
for epoch in range(2):
    for batch in loader:
        with accelerator.accumulate(model):
            accelerator.backward(model(batch["image"], batch["label"])["loss"])
            optimizer.step()
            optimizer.zero_grad()
            updates.append(accelerator.sync_gradients)
note("accumulate", updates=updates)
refused = ""
try:
    next(iter(accelerator.prepare(torch.utils.data.DataLoader(penstock.torch.Dataset(make().loader), batch_size=None))))
except RuntimeError as e:
    refused = str(e)
note("dataset", refused=refused)
"""


@tap.test
def evaluation_and_accumulation_do_not_depend_on_the_number_of_processes():
    train_make()
    whole = None
    for n in (1, 2, 3):
        ranks = processes(n, EVALUATE)
        steps, repeats = -(-ALL // (4 * n)), 0 if n == 1 else -ALL % (4 * n)
        for rank in ranks:
            metrics = rank["evaluate"]["metrics"]
            whole = whole or metrics
            tap.equal({**metrics, "loss": round(metrics["loss"], 4)}, {**whole, "loss": round(whole["loss"], 4)},
                      "%d processes" % n)
            tap.equal(len(metrics["labels"]), ALL)
            tap.equal(rank["train"]["steps"], 2 * -(-steps // 2))
            updates = [i % 2 == 1 or i == steps - 1 for i in range(steps)]
            tap.equal(rank["accumulate"]["updates"], 2 * updates, "%d processes" % n)
            assert n == 1 or "penstock.torch.DataLoader(loader)" in rank["dataset"]["refused"], rank["dataset"]
        for block in ("train", "accumulate"):
            trained = [rank[block]["trained"] for rank in ranks]
            check_epoch([rank[:steps] for rank in trained], repeats, "%s, %d processes" % (block, n))
            check_epoch([rank[steps:] for rank in trained], repeats, "%s, %d processes, epoch 1" % (block, n))


@tap.test
def the_blocks_of_trainers_md_run():
    runner = os.path.join(os.path.abspath(os.path.dirname(tap.__file__)), "python_docs_test.py")
    r = subprocess.run([sys.executable, runner, "trainers.md"], capture_output=True, text=True, timeout=300,
                       env={**os.environ, "PENSTOCK_TEST_VENV": "docs"})
    tap.equal((r.returncode, "SKIP" in r.stdout), (0, False), r.stdout + r.stderr[-2000:])


if __name__ == "__main__":
    tap.main()
