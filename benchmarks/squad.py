"""The small SQuAD experiment as a user starts it, against PyTorch: time to accuracy and total.

    DAWNJAX_DATA=data python -m benchmarks squad --rounds=3

It needs the prepared `squad` in $DAWNJAX_DATA or in `./data`. Sides, rounds, clock and ratios are
those of `benchmarks/digits.py`; PyTorch's side is `pytorch_squad.py`. Its settings are chosen by
trials of 30 steps with one evaluation.
"""

import argparse
import sys

from benchmarks import digits

WAYS = ("eager", "eager, memory kept", "eager, one thread", "compiled, memory kept")
"""Tried on a CPU; `max-autotune` is left out for its long search."""

SCREENING_STEPS = 30


def main() -> int:
    """Runs the rounds, prints a table and writes `results/squad_pytorch.json`."""
    parser = argparse.ArgumentParser(prog=sys.argv[0], description=__doc__)
    digits.add_flags(parser, "squad_pytorch")
    return digits.compare(
        "squad_small",
        [digits.NOTHING_CACHED],
        "pytorch_squad",
        WAYS,
        parser.parse_args(),
        screening_flags=[f"--steps={SCREENING_STEPS}"],
    )


if __name__ == "__main__":
    sys.exit(main())
