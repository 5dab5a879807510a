"""Times torchvision's ImageFolder over a folder: listing it, and an epoch. Prints one line of JSON.

The transform is that of PyTorch's examples; with --bytes files are read and not decoded."""
import argparse
import json
import os
import sys
import time


def read_only(path):
    with open(path, "rb") as f:
        return len(f.read())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--bytes", action="store_true")
    args = parser.parse_args()
    try:
        import torch
        from torchvision import datasets, transforms
    except ImportError as e:
        sys.exit(f"imagefolder: {e}")
    torch.set_num_threads(1)
    transform = None if args.bytes else transforms.Compose(
        [transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip(), transforms.ToTensor()])
    options = {"loader": read_only} if args.bytes else {}
    began = time.monotonic()
    dataset = datasets.ImageFolder(args.folder, transform, **options)
    listed = time.monotonic()
    loader = torch.utils.data.DataLoader(dataset, batch_size=64, shuffle=True, num_workers=args.workers)
    images = sum(len(labels) for _, labels in loader)
    ended = time.monotonic()
    used = os.times()
    print(json.dumps({"images": images, "list_seconds": listed - began, "seconds": ended - listed,
                      "cpu_seconds": used.user + used.system + used.children_user + used.children_system}))


main()
