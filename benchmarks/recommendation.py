"""The MovieLens 100K experiment as a user starts it, against PyTorch: time to accuracy and total.

    DAWNJAX_DATA=data python -m benchmarks recommendation --rounds=20

It needs the prepared `ml-100k` in $DAWNJAX_DATA or in `./data`. Sides, rounds, clock and ratios are
those of `benchmarks/digits.py`; PyTorch's side is `pytorch_recommendation.py`. The target was fixed
by PyTorch's seeds 1000 to 1009, which no round has.
"""

import argparse
import sys

from benchmarks import digits, pytorch_settings


def main() -> int:
    """Runs the rounds, prints a table and writes `results/recommendation_pytorch.json`."""
    parser = argparse.ArgumentParser(prog=sys.argv[0], description=__doc__)
    digits.add_flags(parser, "recommendation_pytorch")
    return digits.compare(
        "movielens_ml100k_neumf",
        [digits.NOTHING_CACHED],
        "pytorch_recommendation",
        pytorch_settings.CPU_VECTORS,
        parser.parse_args(),
    )


if __name__ == "__main__":
    sys.exit(main())
