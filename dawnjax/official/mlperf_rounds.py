"""What the rounds of MLPerf Training ask of each benchmark: quality, number of trials, drops.

v0.5 writes its targets into the logs; later rounds have them in their rules alone.

Source: mlcommons/logging 4.1.68, `compliance_checker/training_*/closed_*.yaml` (targets),
`benchmark_meta.py` (number of result files), `result_summarizer.py` (trials dropped);
mlcommons/training_results_v0.5 for v0.5.
"""

import re

from dawnjax.analysis.entries import Target

FIRST, LAST = (0, 5), (99, 0)

Round = tuple[int, int]

# Benchmark: rounds from, to (both included), target, direction.
_TARGETS: dict[str, tuple[tuple[Round, Round, float, str], ...]] = {
    "resnet": (((0, 6), (4, 0), 0.759, "at_least"),),
    "ssd": (((0, 6), (1, 1), 0.230, "at_least"), ((2, 0), LAST, 0.340, "at_least")),
    "retinanet": (((5, 0), LAST, 0.340, "at_least"),),
    "gnmt": (((0, 6), (0, 7), 0.240, "at_least"),),
    "transformer": (((0, 6), (0, 7), 0.250, "at_least"),),
    "minigo": (((0, 6), (2, 1), 0.5, "at_least"),),
    "bert": (((0, 7), (0, 7), 0.712, "at_least"), ((1, 0), LAST, 0.720, "at_least")),
    "dlrm": (((0, 7), (2, 1), 0.8025, "at_least"),),
    "dlrm_dcnv2": (((3, 0), LAST, 0.80275, "at_least"),),
    "rnnt": (((1, 0), (3, 1), 0.058, "at_most"),),
    "unet3d": (((1, 0), (4, 0), 0.908, "at_least"),),
    "gpt3": (((3, 0), (4, 1), 2.69, "at_most"),),
    "gnn": (((4, 0), (4, 1), 0.72, "at_least"),),
    "rgat": (((5, 0), LAST, 0.72, "at_least"),),
    "llama2_70b_lora": (((4, 0), LAST, 0.925, "at_most"),),
    "llama31_405b": (((5, 0), LAST, 5.6, "at_most"),),
    "llama31_8b": (((5, 1), LAST, 3.3, "at_most"),),
    "flux1": (((5, 1), LAST, 0.586, "at_most"),),
    "gpt_oss_20b": (((6, 0), LAST, 3.34, "at_most"),),
    "deepseekv3_671b": (((6, 0), LAST, 3.6, "at_most"),),
}

# Two numbers must hold at once, or the target is no number of the log: known, but no one target.
_WITHOUT_ONE_TARGET = ("maskrcnn", "stable_diffusion", "ncf", "dlrmv4", "qwen35_397b_grpo")

# Result files of an entry.
_TRIALS = {
    "resnet": 5,
    "ssd": 5,
    "maskrcnn": 5,
    "retinanet": 5,
    "dlrm": 5,
    "gpt3": 3,
    "llama31_405b": 3,
    "deepseekv3_671b": 3,
    "qwen35_397b_grpo": 3,
    "unet3d": 40,
}

TRANSLATION = ("gnmt", "transformer")
"""Benchmarks whose quality is BLEU."""

_UNITS = {
    "resnet": "fraction",
    "ssd": "fraction",
    "ncf": "fraction",
    "maskrcnn": "fraction",
    "retinanet": "fraction",
    "unet3d": "fraction",
    "bert": "fraction",
    "dlrm": "fraction",
    "dlrm_dcnv2": "fraction",
    "rnnt": "fraction",
    "minigo": "fraction",
    "gnn": "fraction",
    "rgat": "fraction",
}


def is_known(benchmark: str) -> bool:
    """Tells whether a round has such a benchmark."""
    return benchmark in _TARGETS or benchmark in _WITHOUT_ONE_TARGET


def round_in(path: str) -> str:
    """Gives the round that a path names, such as `v0.5` or `v4.1`; empty if none."""
    found = re.findall(r"(?:^|[/_.-])v(\d{1,2}\.\d)(?:\.\d+)?(?=$|[/_.-])", path)
    return f"v{found[0]}" if found else ""


def target(benchmark: str, round_name: str, largest: float | None) -> Target:
    """Gives the target of a benchmark in a round from v0.6 on; its value is None if not known.

    Args:
      benchmark: Its name in the logs.
      round_name: Such as `v1.0`; empty if not known, which a target that never changed needs not.
      largest: The largest evaluation of the logs, which tells BLEU from its hundredth.
    """
    unit = _UNITS.get(benchmark, "")
    rows = _TARGETS.get(benchmark, ())
    if round_name:
        number = _number(round_name)
        rows = tuple(row for row in rows if row[0] <= number <= row[1])
    if len(rows) != 1:
        return Target(metric="eval_accuracy", value=None, unit=unit)
    _, _, value, direction = rows[0]
    if benchmark in TRANSLATION:
        in_points = largest is not None and largest > 1
        value, unit = (100 * value, "bleu") if in_points else (value, "fraction")
    return Target(metric="eval_accuracy", value=value, direction=direction, unit=unit)


def unit_in_v05(benchmark: str) -> str:
    """Gives the unit of a benchmark's quality in the logs of v0.5."""
    return "bleu" if benchmark in TRANSLATION else _UNITS.get(benchmark, "")


def num_trials(benchmark: str, round_name: str) -> int | None:
    """Gives the trials that an entry must have; None if not known."""
    if not is_known(benchmark):
        return None
    if benchmark == "ncf" and round_name == "v0.5":
        return 100
    return _TRIALS.get(benchmark, 10)


def drops(benchmark: str) -> int:
    """Gives the trials that the score leaves out at each end."""
    return 4 if benchmark == "unet3d" else 1


def _number(round_name: str) -> Round:
    major, minor = round_name.removeprefix("v").split(".")
    return int(major), int(minor)
