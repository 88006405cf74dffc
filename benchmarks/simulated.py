"""What the simulations share: a command line, and one row for each case.

A case is a claim about sides whose truth is known. It is repeated, and its row counts how often the
claim was wrong, or how often a difference that is there was found.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks import harness

Cases = Iterator[tuple[str, str, str, Sequence[bool]]]
"""Claim, trials, what they were drawn from, and the answer of each repetition."""

Groups = Mapping[str, Callable[[np.random.Generator, int], Cases]]
"""Cases by the name of their group; those of `power` may be true as often as they like."""


def run(text: str | None, groups: Groups, name: str, repetitions: int) -> int:
    """Simulate groups of cases, print each and write them all to a result file."""
    parser = argparse.ArgumentParser(prog=sys.argv[0], description=text)
    parser.add_argument("--repetitions", type=int, default=repetitions, help="of each case")
    parser.add_argument("--name", default=name, help="of the result file")
    options = parser.parse_args()
    random, rows = np.random.default_rng(0), []
    for group, cases in groups.items():
        for claim, trials, times, answers in cases(random, options.repetitions):
            row: dict[str, Any] = {"group": group, "claim": claim, "trials": trials, "times": times}
            rows.append({**row, "found": sum(answers), "of": len(answers)})
            print(f"{100 * sum(answers) / len(answers):5.1f} %", trials, claim, times, sep="\t")
    results = harness.Results(options.name)
    results.add(repetitions=options.repetitions, rows=rows)
    print(results.path)
    return 0


def sizes_text(sizes: Sequence[int]) -> str:
    """Trials of each side, `5` or `5 and 20`."""
    return " and ".join(map(str, dict.fromkeys(sizes)))


def sides_text(first: str, second: str) -> str:
    return first if first == second else f"A: {first}; B: {second}"
