"""Write the tables of the pages from the result files.

    python -m benchmarks tables

A table in a page of `docs/` or `benchmarks/` stands between `<!-- table NAME -->` and
`<!-- end of table -->`. The command replaces it from the files in `benchmarks/results/`, every file
and every failed trial included, or from `entries/`. While a page differs from the files,
`tests/docs/pages_test.py` fails.
"""

import argparse
import re
import sys
from pathlib import Path

from benchmarks.result_tables import plans, speedruns
from benchmarks.result_tables.race import race_records
from benchmarks.result_tables.result_files import Table, each
from benchmarks.result_tables.studies import faults, verdicts
from benchmarks.result_tables.trials import (
    against_pytorch,
    image_input,
    record_mode,
    start_up,
    steps,
)

TOP = Path(__file__).parent.parent
END = "<!-- end of table -->"
_BLOCK = re.compile(rf"(<!-- table (\w+) -->\n).*?({END})", re.DOTALL)


class UnknownTable(ValueError):
    """A page names a table that does not exist."""


def main() -> int:
    argparse.ArgumentParser(
        prog=sys.argv[0], description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    ).parse_args()
    for page in sorted([*TOP.glob("docs/*.md"), *TOP.glob("benchmarks/*.md")]):
        text = page.read_text()
        try:
            new = filled(text)
        except UnknownTable as error:
            print(f"benchmarks tables: {page}: {error}", file=sys.stderr)
            return 2
        if new != text:
            page.write_text(new)
            print(f"{page}: written")
    return 0


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
_SPEEDRUNS = ("speedruns.json",)
_RECORDS = (
    "record | B / A | runs | time, B / A (95 %) | told apart | runs of each needed | "
    "loss, B - A (95 %) | p that the loss is not below 3.28"
)
_TRIALS = ("digits", "recommendation", "language_model", "gnmt", "squad", "cells")
"""Benchmarks of trials to a target against PyTorch."""

_AGAINST_PYTORCH = each(
    f"{_WHERE} | reached; load | mean of the trials | DawnJAX | PyTorch | ratio | interval",
    against_pytorch,
)

TABLES = {
    **{f"{name}_pytorch": Table((f"{name}_pytorch*.json",), _AGAINST_PYTORCH) for name in _TRIALS},
    "gpu_steps": Table(
        ("steps_*_nvidia_*.json",),
        each(
            "step | PyTorch | hardware | date; versions | rounds | DawnJAX | PyTorch's | "
            "times as fast (95 %) | MFU",
            steps,
        ),
    ),
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
    "plan_errors": Table(("plan_validation.json",), plans.plan_errors),
    "plan_coverage": Table(("plan_validation.json",), plans.plan_coverage),
    "plan_outside": Table(("plan_validation.json",), plans.plan_outside),
    "predictions_of_v6_1": Table(("predictions_v6.1.json",), plans.predictions_of_v6_1),
    "results_of_v6_0": Table(("predictions_v6.1.json",), plans.results_of_v6_0),
    "plan_memory": Table(("plan_memory_jax_*.json",), plans.plan_memory),
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
    "verdicts_on_ladders": Table(
        ("verdicts_on_ladders.json",), each("claim | curves | how often, by trials", verdicts)
    ),
    "race_records": Table((), race_records),
    "race_rule": Table(
        ("race_rule.json",),
        each("claim | trials | how often, by rounds", verdicts),
    ),
    "image_input": Table(("image_input*.json",), each(f"work | {_COMPARED}", image_input)),
    "start_up": Table(("start_up.json",), each(f"process | {_COMPARED}", start_up)),
}


if __name__ == "__main__":
    sys.exit(main())
