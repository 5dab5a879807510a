"""Builds penstock._penstock against libpenstock: the installed one, by pkg-config, or that of a build tree, with
PENSTOCK_BUILD=DIR pip install ./loader/python (the library is then found there at run time, too). Uses the stable ABI
of Python 3.11 and later; free-threaded Pythons have no stable ABI, so their builds are for one version."""
import os
import shlex
import subprocess
import sys
import sysconfig

from setuptools import Extension, setup

HERE = os.path.dirname(os.path.abspath(__file__))


def flags():
    build = os.environ.get("PENSTOCK_BUILD")
    if build:
        libs = os.path.join(os.path.abspath(build), "loader", ".libs")
        if not os.path.exists(os.path.join(libs, "libpenstock.so")):
            sys.exit("penstock: PENSTOCK_BUILD=%s holds no loader/.libs/libpenstock.so: run make there" % build)
        return {"include_dirs": [], "library_dirs": [libs], "runtime_library_dirs": [libs]}
    try:
        words = subprocess.run(["pkg-config", "--cflags", "--libs", "libpenstock"], check=True, capture_output=True,
                               text=True).stdout
    except (OSError, subprocess.CalledProcessError) as e:
        sys.exit("penstock: libpenstock is not installed where pkg-config finds it (%s). Install it (./configure && "
                 "make install), set PKG_CONFIG_PATH=PREFIX/lib/pkgconfig if that was with --prefix=PREFIX, or name a build "
                 "tree by PENSTOCK_BUILD=DIR."
                 % (getattr(e, "stderr", None) or e))
    found = {"include_dirs": [], "library_dirs": [], "runtime_library_dirs": []}
    for word in shlex.split(words):
        if word.startswith("-I"):
            found["include_dirs"].append(word[2:])
        elif word.startswith("-L"):
            found["library_dirs"].append(word[2:])
            found["runtime_library_dirs"].append(word[2:])
    return found


STABLE_ABI = not sysconfig.get_config_var("Py_GIL_DISABLED")
FLAGS = flags()
# For the table of options, and the header of .npy files.
FLAGS["include_dirs"] += [os.path.join(HERE, path) for path in ("..", "../include", "../..")]

setup(ext_modules=[Extension(
    "penstock._penstock",
    sources=[name + ".c" for name in ("batch", "error", "export", "held", "loader", "map", "module", "options", "source", "tensor",
                                    "writer", "../option/option", "../../base/npy", "../../base/error")],
    depends=["module.h", "dlpack.h", "../option/option.h", "../../base/npy.h"],
    define_macros=[("_GNU_SOURCE", None)] + [("Py_LIMITED_API", "0x030B0000")] * STABLE_ABI,
    py_limited_api=STABLE_ABI,
    libraries=["penstock"],
    **FLAGS)],
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if STABLE_ABI else {},
    # The program is in a wheel that scripts/wheel made, and not in what pip makes beside an installed libpenstock.
    entry_points={"console_scripts": ["penstock-loader = penstock.__main__:program"] * os.path.exists(
        os.path.join(HERE, "penstock/bin/penstock-loader"))})
