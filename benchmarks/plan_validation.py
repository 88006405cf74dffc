"""Predict published results by fits that leave them out, and count how many intervals hold them.

    python -m benchmarks plan_validation

It compiles nothing, and writes `benchmarks/results/plan_validation.json`, of which the tables of
the docs are made. Run it after a change of the fits, of their observations or of the hardware's
figures.
"""

import argparse
import dataclasses
import json
import sys
from typing import Any

from benchmarks.plan_accuracy import checks, results
from benchmarks.result_tables.result_files import RESULTS
from dawnjax.page.table import of_words

FILE = RESULTS / "plan_validation.json"


def main() -> int:
    argparse.ArgumentParser(
        prog=sys.argv[0], description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    ).parse_args()
    found = results.checks()
    rows = [json.dumps(_rounded(dataclasses.asdict(check))) for check in found]
    FILE.write_text('{"rows": [\n' + ",\n".join(rows) + "\n]}\n")
    print(of_words(checks.COVERAGE_HEAD, checks.coverage_rows(found)).to_text())
    return 0


def _rounded(value: Any) -> Any:
    """Numbers in six digits."""
    if isinstance(value, dict):
        return {name: _rounded(item) for name, item in value.items()}
    return float(f"{value:.6g}") if isinstance(value, float) else value


if __name__ == "__main__":
    sys.exit(main())
