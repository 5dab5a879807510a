"""The keywords of Loader() and of fields as shown to help(), editors and type checkers; errors that answer keywords of
other loaders."""

from python_fixture import loader, shards, tap  # or SKIP

import contextlib
import inspect
import io
import os
import pydoc
import re

import penstock
import penstock.keywords


def defaults(function):
    return {
        p.name: p.default for p in inspect.signature(function).parameters.values() if p.default is not p.empty
    }


@tap.test
def the_signature_has_every_option_of_the_table_and_its_default():
    names = set(inspect.signature(penstock.Loader).parameters)
    hidden = {"numbers", "batch_ends", "sample_weights", "rename"}  # order=, weights=, the names of fields
    hidden |= {"mix_stages", "mix_names", "state_flags"}  # mix=, a dict of shards, load_state_dict()
    tap.equal(sorted(set(penstock.keywords.OF_LOADER) - names - hidden), [])
    found = defaults(penstock.Loader)
    tap.equal(
        [found[k] for k in ("order", "end", "max_bad", "cutmix_share", "threads")],
        ["window", "split", 100, 0.5, None],
    )
    for name in found:
        assert name in penstock.Loader.__doc__ + penstock.Loader.__init__.__doc__, name


@tap.test
def help_of_the_loader_shows_each_option_once():
    text = pydoc.render_doc(penstock.Loader, renderer=pydoc.plaintext)
    tap.equal(re.findall(r".*permute_remote: .*", text)[1:], [" |      permute_remote: " + penstock.keywords.OF_LOADER["permute_remote"][-1]])
    tap.equal(len(re.findall("permute_remote: '", text)), 1)  # in the signature
    tap.equal(len(re.findall(r"on_error: (?!')", text)), 1)

    class Own(penstock.Loader):
        def __init__(self, folder):
            super().__init__(folder + "/*.tar")

    tap.equal(list(inspect.signature(Own).parameters), ["folder"])


@tap.test
def every_default_of_the_signature_is_the_real_default():
    pattern = shards(2)
    with loader(pattern) as plain, penstock.Loader(
        pattern,
        **{
            **defaults(penstock.Loader),
            "batch": 4,
            "fields": {
                "image": penstock.Image("jpg", size=32),
                "label": penstock.Int("cls"),
                "text": penstock.Bytes("txt"),
            },
        }
    ) as explicit:
        tap.equal(explicit.fingerprint(), plain.fingerprint())


@tap.test
def fields_with_defaults_given_equal_those_without():
    more = {
        "Tokens": {"name": "bin", "length": 8},
        "Float": {"name": "txt"},
        "Bytes": {"name": "txt"},
        "Boxes": {"name": "npy"},
        "Array": {"shape": (0,)},
    }
    pattern = shards(1)
    for kind, function in penstock.fields.KINDS.items():
        if kind == "output":
            continue  # outputs need a map
        given = more.get(function.__name__, {})
        beside = [] if kind in ("image", "tokens") else [penstock.Image("jpg")]
        with loader(pattern, fields=[*beside, function(**given)]) as plain:
            with loader(pattern, fields=[*beside, function(**{**defaults(function), **given})]) as explicit:
                tap.equal(explicit.fingerprint(), plain.fingerprint(), kind)


@tap.test
def keywords_of_the_signature_are_accepted():
    pattern = shards(1)
    for field in (
        penstock.Image(
            blur=1,
            blur_sigma=(0.5, 2),
            blur_size=3,
            affine=1,
            zoom=1.5,
            erase=1,
            erase_scale=0.1,
            erase_fill=7,
        ),
        penstock.Int(missing_value=3, optional=True),
        penstock.Bytes("txt", pad_to=100, overflow="truncate"),
    ):
        loader(pattern, fields=[field]).close()


@tap.test
def the_type_stub_is_made_from_the_table():
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        penstock.keywords.print_stub()
    with open(os.path.join(tap.SRC, "loader/python/penstock/_keywords.pyi")) as file:
        tap.equal(file.read(), text.getvalue(), "penstock/keywords.py describes how to make the stub")


@tap.test
def keywords_of_other_loaders_are_answered_with_ours():
    pattern = shards(1)
    answers = {
        "batch_size": 'did you mean "batch"?',
        "num_workers": 'did you mean "threads"?',
        "workers": "threads",
        "num_threads": "threads",
        "prefetch_factor": "depth",
        "prefetch_queue_depth": "depth",
        "world_size": "world",
        "num_shards": "world",
        "shard_id": "rank",
        "shuffle": 'order="none" ends that',
        "shardshuffle": "order",
        "shuffle_buffer": "shuffle_window",
        "initial_fill": "shuffle_window",
        "drop_last": 'end="drop_last"',
        "sampler": "It takes a sampler",
        "batch_sampler": "It takes a batch sampler",
        "resampled": "replacement",
        "generator": "seed",
        "collate_fn": "transform",
        "handler": 'on_error="skip"',
        "empty_check": "is an error",
        "nodesplitter": "rank= and world=",
        "workersplitter": "no worker processes",
        "worker_init_fn": "no worker processes",
        "persistent_workers": "no worker processes",
        "multiprocessing_context": "no worker processes",
        "timeout": "--timeout",
        "pin_memory": "by themselves",
        "pin_memory_device": "device",
        "cache_dir": "--cache-dir",
    }
    for word, answer in answers.items():
        try:
            loader(pattern, **{word: 1})
        except TypeError as e:
            assert answer in str(e) and '"%s"' % word in str(e), e
        else:
            assert False, word


tap.main()
