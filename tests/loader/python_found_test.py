#!/usr/bin/python3
"""python -m penstock prints versions, and the programs and devices that it finds."""
import json
import os
import subprocess
import sys

import tap

tap.python_package()

import torch

import penstock


def run(*args, path=None):
    return subprocess.run([sys.executable, "-m", "penstock", *args], capture_output=True, text=True, timeout=60,
                          env={**os.environ, "PATH": path or os.environ["PATH"]})


def program(folder, name, does):
    os.makedirs(folder, exist_ok=True)
    tap.write(os.path.join(folder, name), b"#!/bin/sh\n" + does)
    os.chmod(os.path.join(folder, name), 0o755)


@tap.test
def python_m_penstock_prints_versions_and_programs():
    os.mkdir("bin")
    program("bin", "penstock", b"echo penstock 7.8.9")
    program("bin", "penstock-loader", b"echo one; echo two")
    r = run("--json", path=os.path.abspath("bin"))
    tap.equal(r.returncode, 0, r.stderr)
    said = json.loads(r.stdout)
    tap.equal(said["penstock"].split(",")[0], penstock.version())
    assert said["libraries"].startswith("libjpeg"), said
    tap.equal(said["penstock (program)"], os.path.abspath("bin/penstock") + " (penstock 7.8.9)")
    tap.equal(said["penstock-loader"], os.path.abspath("bin/penstock-loader") + " (one)")
    assert said["fusermount3"].startswith("not found in PATH"), said
    tap.equal(said["torch"].split("+")[0], torch.__version__.split("+")[0])
    tap.equal(said["python"], "%d.%d.%d, %s" % (*sys.version_info[:3], sys.executable))
    assert said["/dev/fuse"] == "there" or "mounts need it" in said["/dev/fuse"], said
    assert "driver" in said["CUDA"], said
    os.mkdir("none")
    text = run(path=os.path.abspath("none")).stdout
    tap.equal([line[:20].strip() for line in text.splitlines()], list(said))
    assert "penstock (program)   not found in PATH\n" in text, text


@tap.test
def python_m_penstock_prints_why_the_import_fails():
    os.makedirs("p/penstock")
    for name in ("__init__.py", "__main__.py"):
        os.symlink(os.path.join(os.path.dirname(penstock.__file__), name), "p/penstock/" + name)
    # The package cannot be imported: its __main__ still runs as a file.
    r = subprocess.run([sys.executable, "-c", "import runpy, sys; sys.modules['penstock'] = None; sys.argv = ['x']; "
                        "runpy.run_path(%r, run_name='__main__')" % "p/penstock/__main__.py"], capture_output=True, text=True)
    tap.equal(r.returncode, 1, r.stderr)
    assert r.stdout.startswith("penstock             cannot be imported: "), r.stdout


@tap.test
def python_m_penstock_prints_its_usage():
    tap.equal((run("--help").returncode, run("--help").stdout.split(" [")[0]), (0, "Usage: python -m penstock"))
    r = run("nosuch")
    tap.equal((r.returncode, r.stdout, r.stderr.split(" [")[0]), (2, "", "Usage: python -m penstock"))


if __name__ == "__main__":
    tap.main()
