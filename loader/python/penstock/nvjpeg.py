"""Loads nvJPEG from Python packages: libpenstock uses a library that the process has loaded."""
import ctypes
import glob
import os
import sys

_loaded: "list[ctypes.CDLL]" = []  # keeps libraries loaded
_VERSIONS = ("13", "12", "11")
_PLACES = ("nvidia/*/lib/libnvjpeg.so.", "torchvision.libs/libnvjpeg*.so.")


def _is_loaded(version: str) -> bool:
    try:
        ctypes.CDLL("libnvjpeg.so." + version, mode=os.RTLD_NOW | os.RTLD_NOLOAD)
    except OSError:
        return False
    return True


def _first(version: str) -> "ctypes.CDLL | None":
    for folder in sys.path:
        for place in _PLACES:
            for path in glob.glob(os.path.join(glob.escape(folder or "."), place + version)):
                try:
                    return ctypes.CDLL(path)
                except OSError:  # built for another machine; a later one may fit
                    continue
    return None


def load() -> None:
    """Loads the first libnvjpeg of each version on sys.path, once, from the packages nvidia-nvjpeg,
    nvidia-nvjpeg-cu12 and torchvision. libpenstock tries them until one starts with this driver. Does nothing if the
    process has loaded one already (torch's)."""
    if _loaded or os.environ.get("PENSTOCK_NVJPEG") or any(map(_is_loaded, _VERSIONS)):
        return
    for version in _VERSIONS:
        library = _first(version)
        if library:
            _loaded.append(library)
