#!/usr/bin/python3
"""The examples of loader/examples, run as by a user."""
import io
import os
import subprocess
import tarfile

import tap


def shard(path, samples):
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for i, sample in enumerate(samples):
            for suffix, data in sample.items():
                info = tarfile.TarInfo("%05d.%s" % (i, suffix))
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))


def run(example, *args):
    r = subprocess.run([os.path.join(tap.BUILD, "loader/examples", example), *args], capture_output=True)
    return r.returncode, r.stdout.decode(), r.stderr.decode()


@tap.test
def the_labels_example_counts_labels():
    photo = open(tap.PHOTOS[0], "rb").read()
    shard("a.tar", [{"jpg": photo, "cls": b"%d" % (i % 3)} for i in range(10)])
    tap.equal(run("labels", "a.tar"), (0, "0 4\n1 3\n2 3\n", ""))
    code, _, err = run("labels", "nosuch.tar")
    tap.equal(code, 1)
    assert "nosuch.tar" in err, err


@tap.test
def the_bytes_example_makes_tokens_of_texts():
    shard("a.tar", [{"txt": b"x" * n} for n in (1, 5, 20, 0, 600)])
    # The empty text is bad: its row repeats the row of the long text. All rows are as wide as that one.
    lengths = [3, 7, 22, 512, 512]
    tap.equal(run("bytes", "a.tar"), (0, "5 x 512: %d tokens\n" % sum(lengths), ""))


if __name__ == "__main__":
    tap.main()
