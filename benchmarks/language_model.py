"""The small language model as a user starts it, against PyTorch: time to accuracy and total.

    DAWNJAX_DATA=data python -m benchmarks language_model --rounds=5

It needs the prepared `squad_text` in $DAWNJAX_DATA or in `./data`. Sides, rounds, clock and ratios
are those of `benchmarks/digits.py`; PyTorch's side is `pytorch_language_model.py`, whose fastest
way is found by runs of 40 steps. The target was fixed by PyTorch's seeds 1000 to 1002, which no
round has.
"""

import argparse
import sys

from benchmarks import digits

WAYS = (
    "eager, memory kept",
    "eager, one thread",
    "compiled, memory kept",
    "compiled, one thread",
)
"""Tried on a CPU; `max-autotune` is left out for its long search."""


def main() -> int:
    """Runs the rounds, prints a table and writes `results/language_model_pytorch.json`."""
    parser = argparse.ArgumentParser(prog=sys.argv[0], description=__doc__)
    digits.add_flags(parser, "language_model_pytorch")
    return digits.compare(
        "wikipedia_bytes_small",
        [digits.NOTHING_CACHED],
        "pytorch_language_model",
        WAYS,
        parser.parse_args(),
        screening_flags=["--max_steps=40"],
    )


if __name__ == "__main__":
    sys.exit(main())
