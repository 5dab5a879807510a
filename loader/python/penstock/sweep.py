"""The best threads, depth and batch for a loader, measured."""
from __future__ import annotations

import html
import itertools
import math
import os
import sys
import time
from typing import Any, Callable, Dict, List, Optional, Sequence

from . import errors
from .loader import Loader

# As `penstock-loader bench --sweep`: settings with this share of the best rate are as good, and the one with the fewest
# threads is chosen.
_AS_GOOD = 0.97
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 760, 420, 80, 580, 50, 360


class Sweep:
    """The results of sweep(): print it for a table. In a notebook it shows the chart.

    rows: a dict for each setting: the values that were set, samples_per_second, cpus (those that the process used), and
        bottleneck; or `error`.
    best: the row with the highest rate; of those within 3 % of it, the one with the fewest threads, then the smallest
        depth and batch.
    """

    def __init__(self, names: Sequence[str], rows: List[Dict[str, Any]]) -> None:
        self._names = list(names)
        self.rows = rows
        sound = [row for row in rows if row.get("samples_per_second")]
        top = max((row["samples_per_second"] for row in sound), default=0)
        order = [name for name in ("threads", "depth", "batch") if name in names]
        near = [row for row in sound if row["samples_per_second"] >= _AS_GOOD * top]
        self.best: Optional[Dict[str, Any]] = min(near, key=lambda row: [row[name] for name in order], default=None)

    def __str__(self) -> str:
        head = self._names + ["samples/s", "CPUs", "bottleneck"]
        lines = [head]
        for row in self.rows:
            values = [str(row[name]) for name in self._names]
            if "error" in row:
                lines.append(values + ["-", "-", row["error"].split("\n")[0]])
            else:
                lines.append(values + ["%.0f" % row["samples_per_second"], "%.1f" % row["cpus"], row["bottleneck"]])
        widths = [max(len(line[i]) for line in lines) for i in range(len(head) - 1)]
        text = "".join("  ".join(["%*s" % (w, value) for w, value in zip(widths, line)] + line[-1:]) + "\n" for line in lines)
        if self.best is None:
            return text + "no setting worked"
        return text + "best: " + ", ".join("%s=%s" % (name, self.best[name]) for name in self._names)

    def plot(self, path: "str | os.PathLike[str]") -> None:
        """Writes the chart as SVG: samples a second over the first option, a line for each setting of the others."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self._svg())

    def _repr_html_(self) -> str:
        return "<pre>%s</pre>%s" % (html.escape(str(self)), self._svg())

    def _svg(self) -> str:
        axis, others = self._names[0], self._names[1:]
        sound = [row for row in self.rows if row.get("samples_per_second")]
        most = max((row["samples_per_second"] for row in sound), default=1)
        tick = 10 ** math.floor(math.log10(most))
        tick = next(t for t in (tick / 5, tick / 2, tick, tick * 2) if most / t <= 6)
        top = (most // tick + 1) * tick
        places = sorted({row[axis] for row in self.rows})

        def x(row: Dict[str, Any]) -> float:
            return _LEFT + (_RIGHT - _LEFT) * places.index(row[axis]) / max(len(places) - 1, 1)

        def y(rate: float) -> float:
            return float(_BOTTOM - (_BOTTOM - _TOP) * rate / top)

        def text(at_x: float, at_y: float, words: Any, more: str = "") -> str:
            return '<text x="%.1f" y="%.1f" %s>%s</text>' % (at_x, at_y, more, html.escape(str(words)))

        out = ['<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="13">'
               '<rect width="100%%" height="100%%" fill="white"/>' % (_WIDTH, _HEIGHT)]
        for i in range(int(round(top / tick)) + 1):
            out.append('<path stroke="#ddd" d="M%d %.1fH%d"/>' % (_LEFT, y(i * tick), _RIGHT))
            out.append(text(_LEFT - 8, y(i * tick) + 4, "%g" % (i * tick), 'text-anchor="end"'))
        out += [text(x({axis: place}), _BOTTOM + 20, place, 'text-anchor="middle"') for place in places]
        out += [text((_LEFT + _RIGHT) / 2, _BOTTOM + 44, axis, 'text-anchor="middle"'), text(_LEFT, _TOP - 12, "samples a second")]
        lines: Dict[Any, List[Dict[str, Any]]] = {}
        for row in sound:
            lines.setdefault(tuple(row[name] for name in others), []).append(row)
        labels = sorted((y(line[-1]["samples_per_second"]), key) for key, line in lines.items())
        place = -math.inf
        for n, (at, key) in enumerate(labels):
            colour, line = _COLOURS[n % len(_COLOURS)], sorted(lines[key], key=x)
            points = " ".join("%.1f,%.1f" % (x(row), y(row["samples_per_second"])) for row in line)
            out.append('<polyline fill="none" stroke="%s" stroke-width="2" points="%s"/>' % (colour, points))
            out += ['<circle cx="%s" cy="%s" r="3" fill="%s"/>' % (*point.split(","), colour) for point in points.split()]
            place = max(at + 4, place + 16)
            out.append(text(_RIGHT + 14, place, ", ".join("%s %s" % pair for pair in zip(others, key)), 'fill="%s"' % colour))
        if self.best is not None:
            out.append('<circle cx="%.1f" cy="%.1f" r="8" fill="none" stroke="black" stroke-width="2"/>'
                       % (x(self.best), y(self.best["samples_per_second"])))
            out.append(text(_WIDTH - 20, _TOP - 12, "best (circled): " + ", ".join(
                "%s %s" % (name, self.best[name]) for name in self._names), 'text-anchor="end"'))
        return "\n".join(out + ["</svg>\n"])


def _measure(make: Callable[..., Loader], setting: Dict[str, Any], seconds: float) -> Dict[str, Any]:
    with make(**setting) as loader:
        batches = itertools.chain.from_iterable(itertools.repeat(loader))
        if next(batches, None) is None:
            raise errors.ConfigError("the loader has no batch")
        # the rate from the first batch on: before it, threads are started and files are opened
        first, begin, cpu = loader.stats()["samples"], time.monotonic(), time.process_time()
        while time.monotonic() - begin < seconds:
            next(batches)
        took = time.monotonic() - begin
        stats = loader.stats()
        return {**setting, "samples_per_second": (stats["samples"] - first) / took,
                "cpus": (time.process_time() - cpu) / took, "bottleneck": stats["bottleneck"]}


def sweep(
    make: Callable[..., Loader],
    *,
    threads: Optional[Sequence[int]] = None,
    depth: Optional[Sequence[int]] = None,
    batch: Optional[Sequence[int]] = None,
    seconds: float = 3.0,
) -> Sweep:
    """Measures a loader with each combination of these settings, for `seconds` each, and returns a Sweep.

    make: creates the loader, with map= and all else that it has, from the keywords of the settings that are given:
        penstock.sweep(lambda threads, batch: penstock.Loader("train", batch, fields, threads=threads), threads=[1, 2, 4],
        batch=[64, 256]).

    A setting whose loader fails has `error` in its row; if all fail, the first error is raised. Nothing is trained between
    the batches, so the rates are those that the loader can deliver. `penstock-loader bench --sweep` does the same
    without Python.
    """
    axes = {name: list(values) for name, values in (("threads", threads), ("batch", batch), ("depth", depth)) if values is not None}
    if not axes or not all(axes.values()):
        raise errors.ConfigError("sweep: pass at least one value in threads=, depth= or batch=")
    rows: List[Dict[str, Any]] = []
    failed: Optional[Exception] = None
    for values in itertools.product(*axes.values()):
        setting = dict(zip(axes, values))
        if sys.stderr.isatty():
            sys.stderr.write("\r%d of %d: %s \033[K" % (
                len(rows) + 1, math.prod(map(len, axes.values())), ", ".join("%s %s" % pair for pair in setting.items())))
        try:
            rows.append(_measure(make, setting, seconds))
        except Exception as error:  # noqa: B902: of the caller's own code, too
            failed = failed or error
            rows.append({**setting, "error": "%s: %s" % (type(error).__name__, error)})
    if sys.stderr.isatty():
        sys.stderr.write("\r\033[K")
    found = Sweep(list(axes), rows)
    if found.best is None and failed is not None:
        raise failed
    return found
