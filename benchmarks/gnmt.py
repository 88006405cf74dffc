"""The Multi30K GNMT experiment as a user starts it, against PyTorch: time to accuracy and total.

    DAWNJAX_DATA=data python -m benchmarks gnmt --rounds=3

It needs the prepared `multi30k_en_de` in $DAWNJAX_DATA or in `./data`. Sides, rounds, clock and
ratios are those of `benchmarks/digits.py`; PyTorch's side is `pytorch_gnmt.py`. Its ways are tried
for 60 steps each, without an evaluation.
"""

import argparse
import sys

from benchmarks import digits, pytorch_settings


def main() -> int:
    """Runs the rounds, prints a table and writes `results/gnmt_pytorch.json`."""
    parser = argparse.ArgumentParser(prog=sys.argv[0], description=__doc__)
    digits.add_flags(parser, "gnmt_pytorch")
    return digits.compare(
        "multi30k_gnmt",
        [digits.NOTHING_CACHED],
        "pytorch_gnmt",
        pytorch_settings.CPU_RECURRENT,
        parser.parse_args(),
        ["--steps=60"],
    )


if __name__ == "__main__":
    sys.exit(main())
