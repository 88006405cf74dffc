"""Public records of a training race beside their predecessors: were they told apart?

    DAWNJAX_TEST_DATA=DATA python -m benchmarks speedruns

Reads `DATA/speedruns/modded_nanogpt_evaluations.csv.xz`: the evaluations that the logs of
KellerJordan/modded-nanogpt print, track 1. A record is trained for a fixed number of steps, and its
time is that of the last evaluation; the mean of its losses there must be below 3.28. So a pair has
two questions: is B's time shorter, and is its loss no worse? `PAIRS` names the folders of records
that measured both sides on one machine; any other record stands beside the one before it, whose
logs are of another machine.
"""

import argparse
import collections
import csv
import io
import lzma
import os
import statistics
import sys
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import harness
from dawnjax import records
from dawnjax.statistics import interval
from dawnjax.statistics.contrast import contrast
from dawnjax.statistics.further import trials_needed
from dawnjax.statistics.interval import ALPHA, FEWEST_TRIALS
from dawnjax.statistics.sample import Sample

TARGET = 3.28

PAIRS = {
    "2025-12-21_SmoothedScalars": ("12-19-Baseline", "12-21-Smoothed-Scalars"),
    "2025-12-31_GatesToCompiledAdam": ("12-29-baseline", "12-31-gates-to-adam-20stps"),
    "2026-01-18_UnifiedOptimizers": ("baseline", "unified-optimizer"),
    "2026-01-24_ImprovedLMHead": ("baseline_retime", "record"),
    "2026-02-16_FlattenForward": ("baseline", "pr233"),
    "2026-02-28_TransposeCopyBackward": ("baseline", "this_pr"),
    "2026-03-22_VarlenMaxDocs": ("baseline", "combined"),
    "2026-04-04_FuseCEFwdAndBwd": ("baseline", "runs"),
    "2026-04-22_MuddFormer": ("baseline-s1480", "this_pr_v3"),
    "2026-04-29_XSAGatedLayers": ("baseline-s1440", "this_pr_v1-s1410"),
    "2026-05-07_XSAGatedLayers": ("master-s1480", "xsa-gated-s1410"),
    "2026-05-19_FP8MLPUpProj": ("baseline", "this_record"),
    "2026-05-20_BigramsSignTrick": ("baseline", "pr299"),
    "2026-05-27-MuddGatedAndDC": ("xsa-baseline-s1385", "this_pr_v3"),
    "2026-06-11_RecursiveFromBest": ("baseline_pr299", "this_pr"),
    "2026-07-13_PrefixTokenPrediction": ("baseline-1390-8x", "prefix-1375-8x"),
    "2026-07-17_FP8DownProjection": ("baseline", "this_pr"),
}
"""Folders of A and B within a record that has both; of several versions of B the last."""

NO_RECORDS = {
    *("2024-10-20_ScaleUp1B", "2024-10-29_Optimizers", "2024-11-04_50Bruns"),
    *("2024-11-06_ShortcutsTweaks", "2024-11-10_ScaleShortcuts", "2024-11-14_QuantizedFP4"),
}
"""Folders of experiments that claim no record."""

OWN_FOLDERS = {"2026-01-30_MimeticValueOutput": "runs", "2026-04-08_PairedHeadMuon": "logs"}

_SAME_MACHINE = 1.5
"""A side whose slowest run takes more times its fastest has runs of several machines."""


class End(NamedTuple):
    """Last evaluation of a run."""

    step: int
    num_steps: int
    loss: float
    seconds: float


Ends = dict[tuple[str, str], list[End]]
"""By record and folder."""


def read(path: Path) -> Ends:
    """Last evaluations of track 1."""
    last: dict[tuple[str, str], End] = {}
    text = lzma.decompress(records.read_plain(path)).decode()
    for row in csv.DictReader(io.StringIO(text, newline="")):
        if row["track"] == "track_1_short":
            end = End(
                int(row["step"]),
                int(row["num_steps"]),
                float(row["val_loss"]),
                int(row["train_time_ms"]) / 1000,
            )
            last[row["record"], row["log"]] = end
    ends: Ends = collections.defaultdict(list)
    for (record, log), end in last.items():
        ends[record, os.path.dirname(log)].append(end)
    return ends


def fault(side: list[End]) -> str:
    """Why a folder's runs are no trials of one side; empty where they are."""
    steps = sorted({end.num_steps for end in side})
    if len(steps) > 1:
        return f"its logs train {' and '.join(map(str, steps))} steps"
    if any(end.step < end.num_steps for end in side):
        return "a log ends before its last step"
    times = [end.seconds for end in side]
    if max(times) > _SAME_MACHINE * min(times):
        return f"its times are from {min(times):.0f} to {max(times):.0f} s, of several machines"
    return ""


def compared(first: list[End], second: list[End]) -> dict[str, Any]:
    """B beside A: the ratio of the times, the difference of the losses, and the runs needed."""
    times = [[end.seconds for end in side] for side in (first, second)]
    losses = [[end.loss for end in side] for side in (first, second)]
    sizes = [len(first), len(second)]
    samples = [Sample.of(side) for side in times]
    assert samples[0] is not None and samples[1] is not None
    case = contrast(samples[0], samples[1])
    ratio, difference = case.ratio(ALPHA), interval.difference(losses[1], losses[0])
    assert ratio is not None
    enough = min(sizes) >= FEWEST_TRIALS
    needed = None
    if min(sizes) > 1:
        deviations = [statistics.stdev(side) / statistics.fmean(side) for side in times]
        needed = trials_needed(ratio.value, deviations[0], deviations[1])
    return {
        "runs": sizes,
        "steps": [first[0].num_steps, second[0].num_steps],
        "seconds": [statistics.fmean(side) for side in times],
        "losses": [statistics.fmean(side) for side in losses],
        "ratio": ratio.value,
        "ratio_ends": [ratio.low, ratio.high],
        "ratio_kind": ratio.ends,
        "is_told_apart": enough and case.p_different <= ALPHA,
        "runs_needed": needed,
        "loss_difference": difference.value,
        "loss_ends": [difference.low, difference.high],
        "loss_kind": difference.ends,
        "p_not_below_target": below_target(losses[1]),
    }


def below_target(losses: list[float]) -> float | None:
    """Probability of so low a mean loss if the true one is the target; None for one run."""
    if len(losses) < 2:
        return None
    error = statistics.stdev(losses) / len(losses) ** 0.5
    distance = TARGET - statistics.fmean(losses)
    return interval.t_tail(len(losses) - 1, distance / error) if error else None


def rows(ends: Ends) -> tuple[list[dict[str, Any]], list[list[str]]]:
    """A row for each record with a predecessor, and the records that are left out, with why."""
    names = sorted({record for record, _ in ends} - NO_RECORDS)
    found, left_out = [], []
    before: tuple[str, list[End]] | None = None
    for record in names:
        folders = PAIRS.get(record)
        own_folder = folders[1] if folders else OWN_FOLDERS.get(record, "")
        own = ends[record, own_folder]
        why = fault(own)
        if why:
            left_out.append([record, why])
            continue
        if folders:
            first, beside = ends[record, folders[0]], folders[0]
        elif before:
            first, beside = before[1], before[0]
        else:
            before = record, own
            continue
        about: dict[str, Any] = {"record": record, "folder": own_folder, "beside": beside}
        about["is_one_machine"] = folders is not None
        found.append(about | compared(first, own))
        before = record, own
    return found, left_out


def machines(ends: Ends) -> list[dict[str, Any]]:
    """One code on two machines: a record's own runs beside those that the next one made of it."""
    found = []
    names = sorted({record for record, _ in ends} - NO_RECORDS)
    for before, record in zip(names, names[1:], strict=False):
        folders = PAIRS.get(record)
        if folders is None:
            continue
        own = PAIRS[before][1] if before in PAIRS else OWN_FOLDERS.get(before, "")
        sides = ends[before, own], ends[record, folders[0]]
        is_same = sides[0] and sides[0][0].num_steps == sides[1][0].num_steps
        if is_same and not any(map(fault, sides)):
            found.append({"record": before, "again_in": record} | compared(*sides))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        prog=sys.argv[0],
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.parse_args()
    data = os.environ.get("DAWNJAX_TEST_DATA")
    if not data:
        sys.exit("speedruns: DAWNJAX_TEST_DATA must name the folder that has speedruns/")
    ends = read(Path(data) / "speedruns" / "modded_nanogpt_evaluations.csv.xz")
    found, left_out = rows(ends)
    source = "KellerJordan/modded-nanogpt at f411b3d (2026-08-01), track 1"
    results = harness.Results("speedruns", source=source)
    results.add(rows=found, machines=machines(ends), left_out=left_out)
    results.show("speedruns_paired")
    results.show("speedruns_unpaired")
    return 0


if __name__ == "__main__":
    sys.exit(main())
