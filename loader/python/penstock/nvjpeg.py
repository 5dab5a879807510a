"""nvJPEG of Python's packages: libpenstock takes the one that the process has loaded."""
import ctypes
import glob
import os
import sys

_loaded = []  # what was loaded stays


def load() -> None:
    """Loads libnvjpeg from the packages nvidia-nvjpeg and nvidia-nvjpeg-cu12, if one is on sys.path; once."""
    if _loaded or os.environ.get("PENSTOCK_NVJPEG"):
        return
    for version in ("13", "12", "11"):
        for folder in sys.path:
            for path in glob.glob(os.path.join(glob.escape(folder or "."), "nvidia", "*", "lib", "libnvjpeg.so." + version)):
                try:
                    _loaded.append(ctypes.CDLL(path))
                    return
                except OSError:  # made for another machine; there may be a better one
                    continue
