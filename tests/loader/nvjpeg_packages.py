#!/usr/bin/env python3
"""NVIDIA's own nvJPEG for CUDA 12 and 13, from Python packages. It has the functions that the loader calls, with the
loader's declarations. Without a GPU, the loader reports that nvJPEG does not start. The test needs no GPU."""
import ctypes
import glob
import os
import re
import shutil
import subprocess
import sysconfig

import tap

tap.python_environment("nvjpeg", ["nvidia-nvjpeg"], ["nvidia-nvjpeg", "nvidia-nvjpeg-cu12"])

DEVICE = os.path.join(tap.SRC, "loader/device")
LIBRARIES = glob.glob(os.path.join(sysconfig.get_paths()["purelib"], "nvidia/*/lib/libnvjpeg.so.*"))
MOCK = os.path.join(tap.BUILD, "tests/loader/.libs/libmockcuda.so")


def text(name):
    with open(os.path.join(DEVICE, name)) as f:
        return f.read()


@tap.test
def nvjpeg_is_installed_for_cuda_12_and_13():
    tap.equal(sorted(path[-2:] for path in LIBRARIES), ["12", "13"])
    for path in LIBRARIES:
        assert '"%s"' % os.path.basename(path) in text("nvjpeg_library.c"), path + " is not looked for"


@tap.test
def nvjpeg_has_the_functions_that_the_loader_calls():
    functions = re.findall(r"X\(\w+,\s*(nvjpeg\w+)", text("nvjpeg_library.h"))
    assert len(functions) >= 30, functions
    for path in LIBRARIES:
        library = ctypes.CDLL(path)
        missing = [name for name in functions if not hasattr(library, name)]
        tap.equal(missing, [], path)


@tap.test
def nvjpeg_has_the_declarations_of_the_loader():
    cc = shutil.which("cc")
    cuda = next((d for d in (os.path.join(os.environ.get("CUDA_HOME", "/usr/local/cuda"), "include"), "/usr/include")
                 if os.path.exists(os.path.join(d, "cuda_runtime_api.h"))), None)
    if not cc or not cuda:
        raise tap.Skip("no C compiler, or no cuda_runtime_api.h for nvjpeg.h to include")
    for path in LIBRARIES:
        include = os.path.join(os.path.dirname(path), "../include")
        r = subprocess.run([cc, "-fsyntax-only", "-I", tap.BUILD, "-I", tap.SRC, "-I", os.path.join(tap.SRC, "loader"), "-I", os.path.join(tap.SRC, "loader/include"), "-I", include, "-I", cuda,
                            os.path.join(tap.SRC, "tests/loader/nvjpeg_abi.c")], capture_output=True, text=True)
        tap.equal((r.returncode, r.stderr), (0, ""), path)


@tap.test
def nvjpeg_without_a_gpu_is_reported_not_to_start():
    if tap.sanitizer_runtime(MOCK):
        raise tap.Skip("a sanitizer's runtime is not in the program that loads the mock driver")
    os.mkdir("driver")
    shutil.copy(os.path.realpath(MOCK), "driver/libcuda.so.1")  # the mock runs kernels, but nvJPEG cannot use it
    tap.write("kernels", b"kernels")
    tap.make_tar("p.tar", [("%d.jpg" % i, tap.read(photo)) for i, photo in enumerate(tap.PHOTOS[:4])])
    for path in LIBRARIES:
        env = {**os.environ, "LD_LIBRARY_PATH": os.path.abspath("driver"), "PENSTOCK_NVJPEG": path}
        if b"define HAVE_CUDA_KERNELS 1" not in tap.read(os.path.join(tap.BUILD, "config.h")):
            env["PENSTOCK_CUDA_KERNELS"] = os.path.abspath("kernels")
        for share, code in ("1", 1), ("auto", 0):
            r = tap.run("bench", "--device", "cuda", "--batch", "4", "--image", "32", "--epochs", "1", "--lanes", "1",
                        "--gpu-decode", share, "--field", "jpg=image", "p.tar", env=env, timeout=300)
            said = (r.stdout + r.stderr).decode()
            tap.equal(r.returncode, code, said)
            assert re.search(r"libnvjpeg.so.1[23]: it does not start on this GPU and driver: [a-z ]+ \(status \d+\)",
                             said), said


tap.main()
