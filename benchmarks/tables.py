"""Write the tables of the docs, and README's picture, from the result files.

    python -m benchmarks tables

A table in a page of `docs/` stands between `<!-- table NAME -->` and `<!-- end of table -->`. The
command replaces it from the files in `benchmarks/results/`, every file and every failed trial
included, or from `entries/`, and draws `docs/images/time_to_accuracy_*.svg`. While a page or a
picture differs from the files, `tests/docs/pages_test.py` fails.
"""

import argparse
import json
import re
import sys
from pathlib import Path

from benchmarks.result_tables import speedruns
from benchmarks.result_tables.cells import notes
from benchmarks.result_tables.costs import (
    image_input,
    import_logs,
    loop_overhead,
    profile_cost,
    start_up,
)
from benchmarks.result_tables.goals import goals
from benchmarks.result_tables.picture import picture
from benchmarks.result_tables.plans import (
    plan_before,
    plan_coverage,
    plan_decoders,
    plan_held_out,
    plan_outside,
    plan_validation,
    predictions_of_v6_1,
    results_of_v6_0,
)
from benchmarks.result_tables.programs import (
    compilation,
    moved_bytes,
    plan_memory,
)
from benchmarks.result_tables.race import race_lesions, race_records, race_rule
from benchmarks.result_tables.result_files import RESULTS, Table, each
from benchmarks.result_tables.self_play import peer, phases, trials_by_simulations
from benchmarks.result_tables.steps import STEPS_HEAD, pytorch_ways, steps
from benchmarks.result_tables.studies import (
    evaluation_negatives,
    faults,
    fine_tuning,
    study_trials,
    verdicts,
)
from benchmarks.result_tables.trials import against_pytorch, record_mode, trials

DOCS = Path(__file__).parent.parent / "docs"
IMAGES = DOCS / "images"
END = "<!-- end of table -->"
_BLOCK = re.compile(rf"(<!-- table (\w+) -->\n).*?({END})", re.DOTALL)


class UnknownTable(ValueError):
    """A page names a table that does not exist."""


def main() -> int:
    argparse.ArgumentParser(
        prog=sys.argv[0], description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    ).parse_args()
    for page in sorted(DOCS.glob("*.md")):
        text = page.read_text()
        try:
            new = filled(text)
        except UnknownTable as error:
            print(f"benchmarks tables: {page}: {error}", file=sys.stderr)
            return 2
        if new != text:
            page.write_text(new)
            print(f"{page}: written")
    for theme in ("light", "dark"):
        file = IMAGES / f"time_to_accuracy_{theme}.svg"
        file.write_text(time_to_accuracy(theme))
    return 0


def time_to_accuracy(theme: str) -> str:
    """README's picture, as SVG."""
    files = (file for name in _TRIALS for file in sorted(RESULTS.glob(f"{name}_pytorch*.json")))
    return picture([(file.stem, json.loads(file.read_text())) for file in files], theme)


def filled(page: str) -> str:
    """A page's Markdown with each of its tables made anew.

    Raises:
      UnknownTable: The page names a table that does not exist.
    """

    def replaced(match: re.Match[str]) -> str:
        name = match[2]
        if name not in TABLES:
            raise UnknownTable(f"no table {name!r}; there are {', '.join(TABLES)}")
        return f"{match[1]}{TABLES[name].text()}\n{match[3]}"

    return _BLOCK.sub(replaced, page)


_COMPARED = "hardware | date; versions | rounds | ours | theirs | ratio (95 %)"
_WHERE = "hardware | date; versions"
_NOTES = ("notes.json",)
_SPEEDRUNS = ("speedruns.json",)
_RECORDS = (
    "record | B / A | runs | time, B / A (95 %) | told apart | runs of each needed | "
    "loss, B - A (95 %) | p that the loss is not below 3.28"
)
_COMPILED = "flagship_compile_"
_SELF_PLAY = "seeds_connect_four_selfplay.json"
_TRIALS = ("digits", "recommendation", "language_model", "gnmt", "squad", "cells", "nuclei")
"""Benchmarks of trials to a target against PyTorch."""

_AGAINST_PYTORCH = each(
    f"{_WHERE} | reached; load | mean of the trials | DawnJAX | PyTorch | ratio | interval",
    against_pytorch,
)

TABLES = {
    "goals": Table((), goals),
    "trials": Table(("seeds_*.json",), trials),
    **{f"{name}_pytorch": Table((f"{name}_pytorch*.json",), _AGAINST_PYTORCH) for name in _TRIALS},
    "evaluation_negatives": Table(
        ("evaluation_negatives*.json",),
        each(
            "metric | mean | deviation over draws | over seeds | least and most mean of a draw | "
            "from",
            evaluation_negatives,
        ),
    ),
    "pytorch_ways": Table(
        (
            "steps_*.json",
            *(f"{name}_pytorch*.json" for name in _TRIALS),
        ),
        each("benchmark | PyTorch | measured | ", pytorch_ways),
    ),
    "cpu_steps": Table(("steps_*_cpu*.json",), each(STEPS_HEAD, steps)),
    "gpu_steps": Table(("steps_*_nvidia_*.json",), each(STEPS_HEAD, steps)),
    "record_mode": Table(
        ("record_*.json", "speedrun_*.json"),
        each(
            f"program | {_WHERE} | runs | seconds | top-1 accuracy | compilation, s | "
            "ours / its time (95 %) | our accuracy less its (95 %)",
            record_mode,
        ),
    ),
    "faults": Table(
        ("faults_*.json",),
        each(f"what was tried | what must hold | held | at most | {_WHERE}", faults),
    ),
    "plan_validation": Table(("plan_validation.json",), plan_validation),
    "plan_before": Table(("plan_before_*.json", "steps_*_nvidia_h200.json"), plan_before),
    "plan_coverage": Table(("plan_validation.json",), plan_coverage),
    "plan_decoders": Table(("plan_validation.json",), plan_decoders),
    "plan_held_out": Table(("plan_validation.json",), plan_held_out),
    "plan_outside": Table(("plan_validation.json",), plan_outside),
    "predictions_of_v6_1": Table(("predictions_v6.1.json",), predictions_of_v6_1),
    "results_of_v6_0": Table(("predictions_v6.1.json",), results_of_v6_0),
    "plan_memory": Table(("plan_memory_*.json",), plan_memory),
    "fine_tuning": Table(
        ("fine_tuning_*.json",),
        each(
            f"experiment | {_WHERE} | trials | changed in all | in the fine-tuned alone | "
            "source, its classes | other classes from anew | fine-tuned | gain",
            fine_tuning,
        ),
    ),
    "study_trials": Table(
        ("study_trials*.json",),
        each(f"{_WHERE} | trials | what | in a study | single runs | ratio (95 %)", study_trials),
    ),
    "verdicts": Table(("verdicts.json",), each("claim | times | how often, by trials", verdicts)),
    "speedruns_counts": Table(
        _SPEEDRUNS,
        each(
            "beside | records | with 5 runs of each | faster | slower | loss told apart",
            speedruns.counts,
        ),
    ),
    "speedruns_paired": Table(_SPEEDRUNS, each(_RECORDS, speedruns.paired)),
    "speedruns_unpaired": Table(_SPEEDRUNS, each(_RECORDS, speedruns.unpaired)),
    "speedruns_machines": Table(
        _SPEEDRUNS,
        each(
            "record | again in | runs | its seconds | seconds again | ratio (95 %)",
            speedruns.machines,
        ),
    ),
    "speedruns_left_out": Table(_SPEEDRUNS, each("record | why", speedruns.left_out)),
    "verdicts_at_budgets": Table(
        ("verdicts_at_budgets.json",), each("claim | curves | how often, by trials", verdicts)
    ),
    "race_records": Table((), race_records),
    "race_rule": Table(
        ("race_rule.json",),
        each("an entry truly | accepted, by rounds | by the rule before", race_rule),
    ),
    "race_lesions": Table(
        ("race_lesions_*.json",),
        each(
            "recipe | arm | reached | expected time, s | over the whole recipe's | verdict",
            race_lesions,
        ),
    ),
    "loop_overhead": Table(
        ("loop_overhead*.json",), each(f"a call of | {_COMPARED}", loop_overhead)
    ),
    "profile_cost": Table(
        ("profile_cost.json",), each("quantity | value | 95 % interval | rounds", profile_cost)
    ),
    "image_input": Table(("image_input.json",), each(f"work | {_COMPARED}", image_input)),
    "import_logs": Table(("import_logs.json",), each(f"work | {_COMPARED}", import_logs)),
    "start_up": Table(("start_up.json",), each(f"process | {_COMPARED}", start_up)),
    "self_play_trials": Table(
        (_SELF_PLAY, "simulations_connect_four_*.json"),
        each(
            "simulations a move | reached | generations to the target | CPU s to it | "
            f"wall s to it | expected CPU s | {_WHERE}",
            trials_by_simulations,
        ),
    ),
    "self_play_phases": Table(
        (_SELF_PLAY,),
        each("phase | wall s a trial | CPU s a trial | share of the CPU time | made", phases),
    ),
    "self_play_peer": Table(("self_play_peer*.json",), each(f"a move of | {_COMPARED}", peer)),
    "compilation": Table(
        tuple(f"{_COMPILED}{target}.json" for target in ("tpu_v5e", "tpu_v4", "h100")),
        each(
            "experiment | target | devices | a device | pixels | compile s | GB a device | "
            "collectives | date; versions",
            compilation,
        ),
    ),
    "moved_bytes": Table(
        (f"{_COMPILED}*_on_1*.json", f"{_COMPILED}tpu_v5e_variants.json"),
        each(
            "step, variant | target | examples a device | GB moved | ms at 3.35 TB/s | "
            "examples a second at that | GB a device | date; versions",
            moved_bytes,
        ),
    ),
    **{
        name: Table(_NOTES, each("what | seen | hardware | date", notes(name)))
        for name in (
            "single_runs",
            "translation_runs",
            "gnmt_recipes",
            "gnmt_target",
            "span_answering_runs",
        )
    },
    "repeats": Table(_NOTES, each("benchmark | seen | hardware | date", notes("repeats"))),
    "kept": Table(_NOTES, each("change | effect | hardware | date", notes("kept"))),
}


if __name__ == "__main__":
    sys.exit(main())
