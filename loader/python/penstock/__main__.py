"""python -m penstock: versions, and the parts of this machine that a loader or a mount would use. Also for bug reports."""
from __future__ import annotations

import ctypes
import json
import os
import platform
import shutil
import subprocess
import sys
from importlib import metadata
from typing import Any, Dict, Optional, Sequence

_PACKAGES = ("numpy", "torch", "torchvision", "jax", "cupy", "tensorflow", "lightning", "transformers", "torchdata", "webdataset",
             "pyarrow", "pillow", "opencv-python")


_OWN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "penstock-loader")  # in a wheel


def _version(package: str) -> Optional[str]:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _program(name: str) -> str:
    path = shutil.which(name) or (_OWN if name == "penstock-loader" and os.path.exists(_OWN) else None)
    if path is None:
        return "not found in PATH"
    try:
        said = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=10).stdout.split("\n")[0]
    except (OSError, subprocess.SubprocessError) as e:
        said = str(e)
    return "%s (%s)" % (path, said)


def _fuse() -> str:
    try:
        os.close(os.open("/dev/fuse", os.O_RDWR))
    except OSError as e:
        return "%s (mounts need it; for a container: --device /dev/fuse --cap-add SYS_ADMIN)" % e.strerror
    return "there"


def _cuda() -> str:
    """The driver's version; CUDA is not initialised."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "no driver (libcuda.so.1 is not found)"
    version = ctypes.c_int()
    if driver.cuDriverGetVersion(ctypes.byref(version)) != 0:
        return "a driver of unknown version"
    return "driver for CUDA %d.%d" % (version.value // 1000, version.value % 1000 // 10)


def _memory() -> str:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return "%.1f GiB" % (total / 2**30)


def found() -> Dict[str, Any]:
    """The whole report, as one dict."""
    said: Dict[str, Any] = {"python": "%s, %s" % (platform.python_version(), sys.executable)}
    try:
        import penstock

        said = {"penstock": "%s, %s" % (penstock.__version__, os.path.dirname(penstock.__file__)),
                "libraries": penstock._penstock.libraries(), **said}
    except ImportError as e:
        said = {"penstock": "cannot be imported: %s" % e, **said}
    said["system"] = "%s, %s" % (platform.platform(), " ".join(platform.libc_ver()))
    said["processors"] = "%d of %d" % (len(os.sched_getaffinity(0)), os.cpu_count() or 0)
    said["memory"] = _memory()
    said["penstock (program)"] = _program("penstock")
    said["penstock-loader"] = _program("penstock-loader")
    said["/dev/fuse"] = _fuse()
    said["fusermount3"] = shutil.which("fusermount3") or "not found in PATH (users other than root need it; package fuse3)"
    said["CUDA"] = _cuda()
    for package in _PACKAGES:
        said[package] = _version(package) or "not installed"
    return said


def main(arguments: Sequence[str]) -> int:
    if list(arguments) not in ([], ["--json"]):
        print("Usage: python -m penstock [--json]\n\nPrints versions, and the programs, devices and packages that "
              "were found.",
              file=sys.stdout if list(arguments) == ["--help"] else sys.stderr)
        return 0 if list(arguments) == ["--help"] else 2
    said = found()
    if arguments:
        print(json.dumps(said, indent=1))
    else:
        for name, value in said.items():
            print("%-20s %s" % (name, value))
    return 0 if not said["penstock"].startswith("cannot") else 1


def program() -> None:
    """Runs the penstock-loader of a wheel."""
    os.execv(_OWN, [_OWN, *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
