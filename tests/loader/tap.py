"""Shared by the loader's Python tests: TAP, running penstock-loader, a private folder, making tars."""
import atexit
import contextlib
import fcntl
import glob
import importlib.util
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile

sys.dont_write_bytecode = True
SRC = os.environ.get("top_srcdir", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
BUILD = os.environ.get("top_builddir", os.getcwd())
LOADER = os.path.join(BUILD, "penstock-loader")
PHOTOS = sorted(glob.glob(os.path.join(SRC, "tests/data/photos/*.jpg")))

_tests = []


class Skip(Exception):
    """Raised by a test that cannot run here, with the reason."""


def test(function):
    """Registers a test. It passes unless it raises, and runs in a new folder unless it has the attribute `in_place`."""
    _tests.append(function)
    return function


def main():
    print("1..%d" % len(_tests))
    failed = 0
    for i, function in enumerate(_tests, 1):
        name = function.__name__.replace("_", "-")
        if not name.startswith("loader-"):
            name = "loader-%s-%s" % (os.path.basename(sys.argv[0]).split("_")[0], name)
        try:
            with contextlib.ExitStack() as stack:
                if not getattr(function, "in_place", False):
                    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-test-"))
                    stack.callback(os.chdir, os.getcwd())
                    os.chdir(folder)
                function()
            print("ok %d - %s" % (i, name))
        except Skip as e:
            print("ok %d - %s # SKIP %s" % (i, name, e))
        except Exception as e:  # any exception is a failure of this test
            failed += 1
            print("not ok %d - %s" % (i, name))
            for line in ("%s: %s" % (type(e).__name__, e)).splitlines():
                print("# " + line)
        sys.stdout.flush()
    sys.exit(1 if failed else 0)


def skip_all(why, exit_code=0):
    print("1..0 # SKIP " + why)
    sys.exit(exit_code)


def python_package(exit_code=0, needed=("numpy", "torch")):
    """Makes `import penstock` find the package of this build; SKIP if it was not built, or something is missing."""
    module = os.path.join(BUILD, "loader/python/.libs/_penstock.so")
    if not os.path.exists(module):
        skip_all("the Python module was not built", exit_code)
    for package in needed:
        if importlib.util.find_spec(package) is None:
            skip_all("%s has no %s" % (sys.executable, package), exit_code)
    runtime = sanitizer_runtime(module)
    if runtime and runtime not in os.environ.get("LD_PRELOAD", ""):
        # A sanitizer must be loaded before the interpreter. Leaks of the interpreter are not ours.
        options = os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"
        os.execve(sys.executable, [sys.executable, *sys.argv],
                  {**os.environ, "LD_PRELOAD": runtime, "ASAN_OPTIONS": options})
    folder = tempfile.mkdtemp(prefix="penstock-python-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.mkdir(os.path.join(folder, "penstock"))
    for source in [module, *glob.glob(os.path.join(SRC, "loader/python/penstock/*.py"))]:
        os.symlink(os.path.abspath(source), os.path.join(folder, "penstock", os.path.basename(source)))
    sys.path.insert(0, folder)
    os.environ["PYTHONPATH"] = folder + os.pathsep + os.environ.get("PYTHONPATH", "")  # for children


# Packages that several tests need; some packages are large.
DOCS = ("docs", ["jax==0.4.38", "jaxlib==0.4.38", "ml_dtypes==0.5.1", "opt_einsum==3.4.0", "scipy==1.15.3", "webdataset",
                 "braceexpand", "pyyaml", "pyarrow==18.1.0"])


def make_environment(name, packages, dependencies, over):
    venv = os.path.join(BUILD, "tests-cache", name)
    os.makedirs(os.path.dirname(venv), exist_ok=True)
    ready = os.path.join(venv, "ready")
    with open(venv + ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if os.path.exists(ready):
            return
        shutil.rmtree(venv, ignore_errors=True)
        python = venv + "/bin/python"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip",
                        *([] if dependencies else ["--system-site-packages"]), venv],
                       check=True, capture_output=True, timeout=60, env=clean_environment())
        pip = [sys.executable, "-m", "pip", "--python", python]
        subprocess.run([*pip, "install", "-q", "--no-compile", "--disable-pip-version-check",
                        *([] if dependencies else ["--no-deps"]), *packages], check=True,
                       capture_output=True, timeout=900 if dependencies else 200, env=clean_environment())
        if over:
            make_environment(*over, False, None)
            [site] = glob.glob(venv + "/lib/python*/site-packages")
            with open(site + "/over.pth", "w") as f:
                print(site.replace(venv, os.path.join(BUILD, "tests-cache", over[0])), file=f)
        open(ready, "w").close()


def python_environment(name, modules, packages, required=True, dependencies=False, over=None):
    """Restarts the test in a Python environment, kept between runs, that has `packages` by pip besides Debian's and
    those of the environment `over`. If they cannot be installed: SKIP or, unless `required`, run without them. With
    `dependencies`, pip also installs what the packages depend on, which may be gigabytes: Debian's packages
    are left out, and the test runs only with `scripts/check --all`."""
    venv = os.path.join(BUILD, "tests-cache", name)
    if os.environ.get("PENSTOCK_TEST_VENV") != name:
        if os.environ.get("PENSTOCK_TEST_QUICK") == "1":
            if not required:
                return
            skip_all("slow, left out by --quick")
        if dependencies and os.environ.get("PENSTOCK_TEST_LONG") != "1":
            skip_all("its packages take long to install: scripts/check --all runs it")
        try:
            make_environment(name, packages, dependencies, over)
        except (subprocess.SubprocessError, OSError) as e:
            if not required:
                return
            skip_all("%s cannot be installed: %s" % (", ".join(modules), str(e)[-200:].replace("\n", " ")))
        os.execve(venv + "/bin/python", [venv + "/bin/python", *sys.argv],
                  {**os.environ, "PENSTOCK_TEST_VENV": name})


def clean_environment():
    return {k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD", "PYTHONPATH")}


def sanitizer_runtime(library):
    """What to preload for the library: libasan or libtsan, if it was built with it, and libstdc++, so that the sanitizer
    finds the functions that throw the exceptions of C++ packages; else None."""
    # Without preloaded libraries: under libtsan ldd prints nothing.
    needed = subprocess.run(["ldd", library], capture_output=True, text=True, env=clean_environment()).stdout
    for line in needed.splitlines():
        if "libasan" in line or "libtsan" in line:
            return next(word for word in line.split() if word.startswith("/")) + ":libstdc++.so.6"
    return None


def forked_may_start_threads():
    """Whether a forked child of a process with threads may start threads: ThreadSanitizer ends such a child."""
    return "libtsan" not in os.environ.get("LD_PRELOAD", "")


def rss_bytes():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def run(*args, timeout=60, env=None, **kwargs):
    return subprocess.run([LOADER, *args], capture_output=True, timeout=timeout, env=env, **kwargs)


def ls(*shards):
    """The samples that `ls --json` lists, the exit code, stderr."""
    r = run("ls", "--json", *shards)
    assert r.returncode in (0, 1), (r.returncode, r.stderr)
    return [json.loads(line) for line in r.stdout.splitlines()], r.returncode, r.stderr.decode(errors="replace")


def field_bytes(sample):
    """The bytes at the listed offsets, of the listed sizes."""
    out = {}
    with open(sample["shard"], "rb") as f:
        for name, place in sample["fields"].items():
            f.seek(place["offset"])
            out[name] = f.read(place["size"])
            assert len(out[name]) == place["size"], "a field reaches beyond the end of the shard"
    return out


def make_tar(path, files, format=tarfile.GNU_FORMAT):
    with tarfile.open(path, "w", format=format) as tar:
        for name, data in files:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def read(path):
    with open(path, "rb") as f:
        return f.read()


def write(path, data):
    with open(path, "wb") as f:
        f.write(data)
    return path


def equal(have, want, what=""):
    if have != want:
        raise AssertionError("%s\nhave %.300r\nwant %.300r" % (what, have, want))
