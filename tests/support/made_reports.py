"""A report for tests: entries made by hand, and the reader of its page."""

import dataclasses
import html.parser
from collections.abc import Sequence

from made_entries import make_entry, make_trial

from dawnjax.report import contents, inputs
from dawnjax.trials.group import Entry, Inference
from dawnjax.trials.target import Target

VOID = {"meta", "link", "br", "input", "img", "hr"}


def entry(name: str, times: Sequence[float | None], **fields) -> Entry:
    """Makes an entry with these times to accuracy, of MLPerf unless the fields say otherwise.

    A trial has four evaluations, the last at its end.
    """
    trials = []
    for number, seconds in enumerate(times):
        end, best = seconds or 900.0, 0.7 if seconds is None else 0.76
        curve = [(float(step), end * step / 4, best * step / 4) for step in range(1, 5)]
        named = f"result_{number}.txt"
        trials.append(make_trial(seconds, 4.0 + number % 2, total=end, curve=curve, name=named))
    defaults = {
        "source": f"v0.5.0/acme/{name}/resnet",
        "suite": "mlperf_training",
        "round": "v0.5",
        "benchmark": "resnet",
        "submitter": "acme",
        "system": name,
        "hardware": "V100",
        "processor_class": "GPU",
        "num_accelerators": 8,
        "num_hosts": 1,
        "framework": "MXNet",
        "framework_family": "MXNet",
        "model": "ResNet-50",
        "date": "2018-12-10",
        "global_batch_size": 256,
        "target": Target(metric="eval_accuracy", value=0.749, unit="fraction"),
    }
    return make_entry(trials, **{**defaults, **fields})


def some_entries() -> list[Entry]:
    """Makes three entries of MLPerf, of which one has failures, and six and one of DAWNBench."""
    small = entry("small", [800.0, 820.0, 810.0, 805.0, 930.0])
    large = entry("large", [100.5, 140.25, 110.0, 120.0, 115.0], num_accelerators=64, num_hosts=8)
    failed = entry("failed", [300.0, None, None, 310.0, 305.0], warnings=("2 trials failed",))
    dawn = [
        entry(
            f"dawn{number}",
            [600.0 + 100 * number],
            suite="dawnbench",
            round="",
            benchmark="CIFAR10",
            source=f"CIFAR10/train/dawn{number}",
            cost_per_hour_usd=3.0 + number if number < 4 else None,
            date=f"2018-0{number + 1}-01",
            reasons={} if number < 4 else {"cost_per_hour_usd": "costPerHour is null"},
        )
        for number in range(6)
    ]
    served = dataclasses.replace(
        dawn[0],
        source="CIFAR10/inference/served",
        kind="inference",
        trials=(),
        inference=Inference(latency_milliseconds=0.683, cost_usd=0.002, quality=0.76),
    )
    return [small, large, failed, *dawn, served]


def some_report() -> contents.Report:
    """The report of these entries."""
    return contents.make(inputs.Inputs(tuple(some_entries())))


class Page(html.parser.HTMLParser):
    """Reads a page: its tree must be balanced; what matters is collected."""

    def __init__(self, text: str):
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.rows: list[list[str]] = []
        self.feed(text)
        self.close()
        assert not self.open, f"not closed: {self.open}"

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-3:]}"
        self.open.pop()

    def handle_data(self, data):
        if "script" not in self.open and "style" not in self.open:
            self.text.append(data)
        if self.open and self.rows and ("td" in self.open or "th" in self.open):
            self.rows[-1][-1] += data
