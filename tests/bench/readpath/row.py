"""A row of the table: contestants take turns, ratios are taken within a turn, and their median counts."""

import statistics


class Row:
    def __init__(self, name, title):
        self.name, self.title = name, title
        self.samples = {}  # contestant -> [sample]
        self.checks = []

    def take_turns(self, contestants, turns, fewer=None):
        """contestants: {name: function that returns a sample}. Every other turn goes backwards, so that no
        contestant always runs after the same one. fewer: {name: number of turns} for slow ones."""
        for turn in range(turns):
            order = list(contestants.items())
            for name, function in order if turn % 2 == 0 else order[::-1]:
                if turn < (fewer or {}).get(name, turns):
                    self.samples.setdefault(name, []).append(function())

    def median(self, contestant, metric="gb_per_s"):
        values = [sample[metric] for sample in self.samples.get(contestant, []) if metric in sample]
        return statistics.median(values) if values else None

    def ratios(self, one, other, metric="gb_per_s"):
        pairs = zip(self.samples.get(one, []), self.samples.get(other, []))
        return [a[metric] / b[metric] for a, b in pairs if b[metric]]

    def check(self, what, value, at_least=None, at_most=None, unit=""):
        """Records a figure and its target (neither at_least nor at_most: for information)."""
        if value is None:
            return
        reached = (at_least is None or value >= at_least) and (at_most is None or value <= at_most)
        self.checks.append({"what": what, "value": value, "at_least": at_least, "at_most": at_most, "unit": unit,
                            "reached": reached if (at_least, at_most) != (None, None) else None})

    def check_ratio(self, one, other, metric="gb_per_s", at_least=None, at_most=None):
        ratios = self.ratios(one, other, metric)
        if not ratios:
            return
        what = {"gb_per_s": "speed", "cpu_s_per_gb": "CPU per GB"}.get(metric, metric)
        self.check(f"{what}, {one} / {other}", statistics.median(ratios), at_least, at_most)
        self.checks[-1]["all"] = ratios

    def as_json(self):
        return {"row": self.name, "title": self.title, "samples": self.samples, "checks": self.checks}
