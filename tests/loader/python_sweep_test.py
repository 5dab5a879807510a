#!/usr/bin/python3
"""penstock.sweep() measures each setting of a loader, map included, and names the best one."""
import os
import time
import xml.dom.minidom

import tap

tap.python_package(needed=("numpy",))  # or SKIP

import penstock

SLOW = 0.004  # seconds a sample


def make(threads=1, batch=4, depth=4):
    if not os.path.exists("w.tar"):
        tap.make_tar("w.tar", [("%03d.cls" % i, b"%d" % i) for i in range(64)])

    def slow(sample):
        time.sleep(SLOW)  # without the GIL, as NumPy works
        return sample

    return penstock.Loader("w.tar", batch, {"y": penstock.Int("cls")}, format="numpy", threads=threads, depth=depth, map=slow, rank=0, world=1)


@tap.test
def rates_include_the_map_and_the_best_is_the_fastest():
    found = penstock.sweep(make, threads=[1, 4], batch=[4, 8], seconds=0.5)
    tap.equal([(row["threads"], row["batch"]) for row in found.rows], [(1, 4), (1, 8), (4, 4), (4, 8)])
    one, four = found.rows[0]["samples_per_second"], found.rows[2]["samples_per_second"]
    assert one < 1.3 / SLOW, one  # a loader without the map would be far beyond
    assert four > 1.5 * one, (one, four)
    tap.equal(found.best["threads"], 4)
    text = str(found)
    assert "samples/s" in text and "best: threads=4" in text and len(text.splitlines()) == 6, text
    found.plot("s.svg")
    svg = xml.dom.minidom.parse("s.svg")
    tap.equal(len(svg.getElementsByTagName("polyline")), 2)  # one for each batch
    tap.equal(len(svg.getElementsByTagName("circle")), 4 + 1)
    assert "<svg" in found._repr_html_()


@tap.test
def of_settings_that_are_as_good_the_cheapest_is_best():
    rows = [{"threads": t, "depth": d, "samples_per_second": rate, "cpus": 1.0, "bottleneck": "decode"}
            for t, d, rate in ((1, 4, 500), (2, 8, 980), (2, 4, 975), (4, 4, 1000), (8, 4, 960))]
    tap.equal(penstock.Sweep(["threads", "depth"], rows).best, rows[2])
    rows[3]["samples_per_second"] = 1100
    tap.equal(penstock.Sweep(["threads", "depth"], rows).best, rows[3])


@tap.test
def a_setting_that_fails_has_its_error_and_if_all_fail_it_is_raised():
    found = penstock.sweep(make, depth=[1, 4], seconds=0.1)  # depth is at least 2
    assert "depth" in found.rows[0]["error"] and "error" not in found.rows[1], found.rows
    tap.equal(found.best["depth"], 4)
    assert "ConfigError" in str(found), found
    for call in (lambda: penstock.sweep(make, depth=[1], seconds=0.1), lambda: penstock.sweep(make), lambda: penstock.sweep(make, threads=[])):
        try:
            call()
        except penstock.ConfigError:
            pass
        else:
            raise AssertionError("no error")


if __name__ == "__main__":
    tap.main()
