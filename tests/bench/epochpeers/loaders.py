"""The loaders of epoch-peers. As a program, runs two epochs of one loader and prints a line of JSON for
each."""
import argparse
import json
import os
import resource
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
SIZE = 224
NOT_HERE = 77


class NotHere(Exception):
    """Something that a contestant needs is not installed."""


def penstock(args):
    sys.path.insert(0, os.path.join(HERE, "../../loader"))
    import tap

    tap.python_package(exit_code=NOT_HERE)
    import penstock as package
    import torch  # noqa: F401  a training process has imported torch before

    loader = package.Loader(args.shards, args.batch, format="torch", seed=1, threads=args.workers,
                            fields={"image": package.Image("jpg", size=SIZE), "label": package.Int("cls")})
    return lambda: (len(batch["label"]) for batch in loader)


def torch_transform():
    from torchvision import transforms as T

    return T.Compose([T.RandomResizedCrop(SIZE), T.RandomHorizontalFlip(), T.ToTensor(), T.Normalize(MEAN, STD)])


def webdataset(args):
    import torch
    import webdataset as wds

    torch.set_num_threads(1)
    options = {"cache_dir": args.cache} if args.cache else {}
    if args.cache:
        os.makedirs(args.cache, exist_ok=True)
    dataset = wds.WebDataset(args.shards, shardshuffle=100, **options).shuffle(1000)
    dataset = dataset.decode("pil").to_tuple("jpg", "cls").map_tuple(torch_transform())

    def epoch():
        for batch in torch.utils.data.DataLoader(dataset, batch_size=args.batch, num_workers=args.workers):
            yield len(batch[1])
    return epoch


def dali(args):
    from nvidia.dali import fn, pipeline_def, types

    @pipeline_def(batch_size=args.batch, num_threads=args.workers, device_id=None)
    def pipeline():
        data, label = fn.readers.webdataset(paths=args.shards, ext=["jpg", "cls"], missing_component_behavior="error",
                                            random_shuffle=True, initial_fill=1000, name="reader")
        image = fn.decoders.image_random_crop(data, device="cpu", output_type=types.RGB, random_area=[0.08, 1.0],
                                              random_aspect_ratio=[3 / 4, 4 / 3])
        image = fn.resize(image, resize_x=SIZE, resize_y=SIZE, interp_type=types.INTERP_LINEAR, antialias=True)
        image = fn.crop_mirror_normalize(image, dtype=types.FLOAT, output_layout="CHW", mirror=fn.random.coin_flip(),
                                         mean=[255 * m for m in MEAN], std=[255 * s for s in STD])
        return image, label

    pipes = []

    def epoch():
        if not pipes:  # building the pipeline reads the shards: part of the first epoch
            pipes.append(pipeline())
            pipes[0].build()
        left = args.samples
        while left > 0:
            pipes[0].run()
            yield min(left, args.batch)
            left -= args.batch
    return epoch


def cpu_seconds(daemon):
    own = sum(usage.ru_utime + usage.ru_stime
              for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)))
    return own + (time.clock_gettime((~daemon << 3) | 2) if daemon else 0)


def run(epoch, args):
    began, cpu, first, count = time.monotonic(), cpu_seconds(args.daemon), None, 0
    for nsamples in epoch():
        first = first or time.monotonic() - began
        count += nsamples
    if count != args.samples:
        sys.exit(f"{count} of {args.samples} samples came")
    seconds = time.monotonic() - began
    return {"seconds": seconds, "first_batch_seconds": first, "cpu_seconds": cpu_seconds(args.daemon) - cpu}


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("loader", choices=("penstock", "webdataset", "dali"))
    p.add_argument("shards", nargs="+")
    p.add_argument("--samples", type=int)
    p.add_argument("--batch", type=int)
    p.add_argument("--workers", type=int)
    p.add_argument("--daemon", type=int, help="pid whose CPU counts, too")
    p.add_argument("--cache", help="folder for a loader that keeps shards itself")
    args = p.parse_args()
    try:
        epoch = {"penstock": penstock, "webdataset": webdataset, "dali": dali}[args.loader](args)
    except ImportError as e:
        print(e, file=sys.stderr)
        sys.exit(NOT_HERE)
    for _ in range(2):
        print(json.dumps(run(epoch, args)), flush=True)


if __name__ == "__main__":
    main()
