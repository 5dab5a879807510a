#!/usr/bin/python3
"""Resuming in the middle of an epoch with Hugging Face's Trainer, torchdata's StatefulDataLoader, Lightning and
Accelerate, in the latest versions of the package index."""
import os
import subprocess
import sys

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
            # As Trainer does with its own DataLoader: only a prepared one gets set_epoch().
            return self.accelerator.prepare(DataLoader(penstock.torch.Dataset(loader()), batch_size=None))

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
        assert "DataLoader(penstock.torch.Dataset(loader), batch_size=None)" in str(e), e
    else:
        raise AssertionError("it skips")


@tap.test
def accelerate_skips_the_batches_of_the_first_run():
    from accelerate import Accelerator, skip_first_batches

    want = straight(3)
    load = Accelerator(cpu=True).prepare(DataLoader(penstock.torch.Dataset(loader()), batch_size=None))
    rest = skip_first_batches(load, 5)
    rest.set_epoch(1)
    seen = [batch["labels"].tolist() for batch in rest]
    load.set_epoch(2)
    seen += [batch["labels"].tolist() for batch in load]
    tap.equal(seen, want[STEPS + 5 :])


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


@tap.test
def the_blocks_of_trainers_md_run():
    runner = os.path.join(os.path.abspath(os.path.dirname(tap.__file__)), "python_docs_test.py")
    r = subprocess.run([sys.executable, runner, "trainers.md"], capture_output=True, text=True, timeout=300,
                       env={**os.environ, "PENSTOCK_TEST_VENV": "docs"})
    tap.equal((r.returncode, "SKIP" in r.stdout), (0, False), r.stdout + r.stderr[-2000:])


if __name__ == "__main__":
    tap.main()
