"""Rows as text, as Markdown and as JSON."""

import json
import os
import platform
import statistics
import sys


def number(value):
    return f"{value:.0f}" if value >= 1000 else f"{value:.3g}"


def target(check):
    if check["at_least"] is not None and check["at_most"] is not None:
        return f"{check['at_least']} to {check['at_most']}"
    if check["at_least"] is not None:
        return f"at least {check['at_least']}"
    return f"at most {check['at_most']}" if check["at_most"] is not None else ""


def verdict(check):
    return {True: "yes", False: "**no**", None: ""}[check["reached"]]


def speeds(row):
    for name, samples in row.samples.items():
        if samples and "gb_per_s" in samples[0]:
            rates = [sample["gb_per_s"] for sample in samples]
            cpus = [sample["cpu_s_per_gb"] for sample in samples]
            peak = max(sample.get("peak_rss_bytes", 0) for sample in samples)
            yield name, rates, cpus, peak


def print_row(row):
    print(f"\n{row.title}")
    for name, rates, cpus, peak in speeds(row):
        memory = f", peak RSS {peak / 2**20:.0f} MiB" if peak else ""
        print(f"  {name:10} {statistics.median(rates):7.3f} GB/s ({min(rates):.2f} to {max(rates):.2f}, "
              f"{len(rates)} runs), {statistics.median(cpus):.3f} CPU s/GB{memory}")
    for check in row.checks:
        goal = target(check)
        spread = f" ({number(min(check['all']))} to {number(max(check['all']))})" if "all" in check else ""
        print(f"  {check['what']}: {number(check['value'])}{' ' * bool(check['unit'])}{check['unit']}{spread}"
              + (f"; to reach: {goal}: {'yes' if check['reached'] else 'NO'}" if goal else ""))
    sys.stdout.flush()


def markdown(rows):
    yield "| | GB/s | CPU s/GB | peak RSS |"
    yield "|---|---|---|---|"
    for row in rows:
        for name, rates, cpus, peak in speeds(row):
            memory = f"{peak / 2**20:.0f} MiB" if peak else ""
            yield f"| {row.title}: {name} | {statistics.median(rates):.2f} | {statistics.median(cpus):.2f} | {memory} |"
    yield ""
    yield "| | measured | to reach | reached |"
    yield "|---|---|---|---|"
    for row in rows:
        for check in row.checks:
            value = f"{number(check['value'])} {check['unit']}".strip()
            yield f"| {row.title}: {check['what']} | {value} | {target(check)} | {verdict(check)} |"


def write_json(path, rows, args):
    report = {"bench": "read-path", "kernel": platform.release(), "cpus": os.cpu_count(), "size": args.size,
              "shards": args.shards, "turns": args.turns, "rows": [row.as_json() for row in rows]}
    with open(path, "w") as f:
        json.dump(report, f, indent=1)
        f.write("\n")


def read_json(paths):
    """Rows of several runs as one table; a later run replaces the rows of an earlier one."""
    from .row import Row

    rows = {}
    for path in paths:
        with open(path) as f:
            for item in json.load(f)["rows"]:
                row = rows[item["row"]] = Row(item["row"], item["title"])
                row.samples, row.checks = item["samples"], item["checks"]
    return list(rows.values())
