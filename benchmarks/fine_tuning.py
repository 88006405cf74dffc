"""What parameters of other classes are worth: five classes learnt anew, and fine-tuned.

    python -m benchmarks fine_tuning [--experiment=digits] [--seeds=20] [--epochs=8]
                                     [--tuned="FLAG FLAG"] [--ending=_low_rate] [FLAG...]

For each seed a run learns five classes (the source), and two others learn the five classes that it
has not seen: one begins anew, one with the source's parameters and a new head. Both have the same
budget and no target to stop at. Flags are those of all three runs, so that no side alone has a rate
that suits it; `--tuned` has more for the fine-tuned run. After each seed the benchmark writes
`results/fine_tuning_EXPERIMENT<ending>.json`: the accuracy of each run at its end, and the seconds
until it first had the accuracy that the run from anew had at its end. This is the protocol of
Table 5 of Coleman et al. 2019 (arXiv 1806.01427) on data that are here: theirs fine-tunes DAWNBench
entries on other sets of photographs.
"""

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import harness
from dawnjax.__main__ import main as dawnjax_main
from dawnjax.api import load_run

HALVES = ((0, 1, 2, 3, 4), (5, 6, 7, 8, 9))


def main() -> int:
    """Runs all seeds, and prints what came of each."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks fine_tuning")
    parser.add_argument("--experiment", default="digits")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--epochs", type=float, default=8.0)
    parser.add_argument(
        "--tuned", default="", help="flags of the fine-tuned run alone, with blanks"
    )
    parser.add_argument("--ending", default="", help="of the result file's name")
    arguments, flags = parser.parse_known_args()
    results = harness.Results(f"fine_tuning_{arguments.experiment}{arguments.ending}")
    rows: list[dict[str, Any]] = []
    for seed in range(arguments.seeds):
        with tempfile.TemporaryDirectory() as folder:
            rows.append(_seed(Path(folder), seed, arguments, flags))
        print(rows[-1], flush=True)
        results.add(
            experiment=arguments.experiment,
            epochs=arguments.epochs,
            flags=[flag for flag in flags if not flag.startswith("--data.data_dir")],
            tuned_flags=arguments.tuned,
            rows=rows,
        )
    print(results.path)
    return 0


def _seed(folder: Path, seed: int, arguments: argparse.Namespace, flags: list[str]) -> dict:
    source = _run(folder / "source", HALVES[0], seed, arguments, flags)
    anew = _run(folder / "anew", HALVES[1], seed, arguments, flags)
    begun = [*flags, *arguments.tuned.split(), f"--initialize_from={folder / 'source'}"]
    tuned = _run(folder / "tuned", HALVES[1], seed, arguments, begun)
    wanted = anew[-1][1]
    reached = [seconds for seconds, accuracy in tuned if accuracy >= wanted]
    return {
        "seed": seed,
        "source_accuracy": source[-1][1],
        "anew_accuracy": wanted,
        "tuned_accuracy": tuned[-1][1],
        "anew_seconds": next(seconds for seconds, accuracy in anew if accuracy >= wanted),
        "tuned_seconds": reached[0] if reached else None,
    }


def _run(
    run_dir: Path, kept: tuple[int, ...], seed: int, arguments: argparse.Namespace, flags: list[str]
) -> list[tuple[float, float]]:
    """Trains to the end of the budget; seconds and accuracy of each evaluation."""
    labels = ",".join(map(str, kept))
    command = ["train", arguments.experiment, f"--data.kept_classes={labels}", f"--seed={seed}"]
    command += [f"--num_epochs={arguments.epochs}", f"--run_dir={run_dir}"]
    command += ["--evaluation.every_epochs=0.5", "--evaluation.first_epoch=0"]
    command += ["--evaluation.stop_at_target=false", "--profile.after_run=false"]
    status = dawnjax_main([*command, *flags])
    if status not in (0, 3):
        raise SystemExit(f"{' '.join(command)}: status {status}")
    rows = load_run(run_dir).evaluations
    return [(row["seconds_since_run_start"], row["top_1_accuracy"]) for row in rows]


if __name__ == "__main__":
    sys.exit(main())
