"""Reads files of metrics as one scrape, as strictly as Prometheus and promtool do, and prints their series.

Each file on its own: HELP, then TYPE, then the series of a name, together and once; counters end in _total, others do
not; buckets rise to +Inf, which is the count. All files together: no series twice, no name with two texts."""
import re
import sys

LINE = re.compile(r'([a-zA-Z_:][a-zA-Z0-9_:]*)\{((?:[a-zA-Z_]\w*="(?:[^"\\\n]|\\[\\"n])*",?)+)\} ([0-9.+-]+(?:e[+-]?[0-9]+)?)')
LABEL = re.compile(r'([a-zA-Z_]\w*)="((?:[^"\\\n]|\\[\\"n])*)"')
families, series = {}, {}


def read(path):
    seen, name = set(), None
    text = open(path, encoding="utf-8").read()
    assert text.endswith("\n"), f"{path}: no end of line at the end"
    lines = text.split("\n")[:-1]
    i = 0
    while i < len(lines):
        head = re.fullmatch(r"# HELP (penstock_[a-z0-9_]+) (\S.*)", lines[i])
        assert head, f"{path}: HELP of a new name expected: {lines[i]!r}"
        name = head[1]
        assert name not in seen, f"{path}: {name} is in two places"
        seen.add(name)
        kind = re.fullmatch(rf"# TYPE {name} (counter|gauge|histogram)", lines[i + 1])
        assert kind, f"{path}: TYPE of {name} expected: {lines[i + 1]!r}"
        assert families.setdefault(name, (head[2], kind[1])) == (head[2], kind[1]), f"{name}: two texts"
        assert (kind[1] == "counter") == name.endswith("_total"), f"{name}: a {kind[1]} of that name"
        i += 2
        first = i
        while i < len(lines) and not lines[i].startswith("#"):
            one = LINE.fullmatch(lines[i])
            assert one, f"{path}: not a line of a series: {lines[i]!r}"
            labels = LABEL.findall(one[2])
            assert len(dict(labels)) == len(labels), f"{path}: a label twice: {lines[i]!r}"
            suffix = one[1][len(name):]
            assert one[1].startswith(name) and suffix in (
                ("_bucket", "_sum", "_count") if kind[1] == "histogram" else ("",)), f"{path}: {lines[i]!r} below {name}"
            key = (one[1], frozenset(labels))
            assert key not in series, f"{path}: twice: {lines[i]!r}"
            series[key] = float(one[3])
            i += 1
        assert i > first, f"{path}: {name} has no series"


for path in sys.argv[1:]:
    read(path)
for (name, labels), count in series.items():
    if not name.endswith("_count") or families.get(name[:-6], ("", ""))[1] != "histogram":
        continue
    buckets = sorted((float(le), series[key]) for key in series if key[0] == name[:-6] + "_bucket"
                     for label, le in key[1] if label == "le" and key[1] - {(label, le)} == labels)
    values = [value for _, value in buckets]
    assert buckets[-1] == (float("inf"), count) and values == sorted(values), f"{name}: {buckets}"
    assert buckets[0][0] == 0.0001 and buckets[-2][0] == 100, f"{name}: {buckets}"
for name, labels in sorted((name, sorted(labels)) for name, labels in series):
    print(name, *(f'{key}="{value}"' for key, value in labels), int(series[name, frozenset(labels)]))
