"""A campaign: one fault tried many times, and how often the promise held.

A test marked `long` leaves its counts in `benchmarks/results/faults_NAME.json`, from which
`python -m benchmarks tables` makes the table of benchmarks/faults.md. The same test with a small
count runs by default and leaves no file:

    @pytest.mark.parametrize("count", [3, pytest.param(100, marks=pytest.mark.long)])
    def test_a_killed_run_resumes_to_the_same_parameters(count, campaign):
        kills = campaign("kills", "`train` killed at a random moment, resumed", "same parameters")
        for number in range(count):
            ...
            kills.tried(f"kill {number}", held=same, seconds=elapsed)
        kills.finish()
"""

from typing import Any

from benchmarks import harness


class Campaign:
    """Counts what was tried and what held."""

    def __init__(self, name: str, what: str, promise: str, *, is_written: bool):
        """Begins without a try.

        Args:
          name: Of the result file, after `faults_`.
          what: What is tried, for the table; Markdown.
          promise: What must hold each time, for the table; Markdown.
          is_written: Whether the counts go to a result file.
        """
        self._name, self._is_written = name, is_written
        self._record: dict[str, Any] = {"what": what, "promise": promise, "tried": 0, "held": 0}
        self._failures: list[str] = []
        self._largest: dict[str, float] = {}

    def tried(self, label: str, *, held: bool, why: str = "", **figures: float) -> None:
        """Counts a try.

        Args:
          label: Names the try, so that it can be repeated.
          held: Whether the promise held.
          why: What was seen where it did not.
          **figures: Quantities of which the largest is kept, by name with its unit: `seconds`,
            `megabytes`.
        """
        self._record["tried"] += 1
        self._record["held"] += held
        if not held:
            self._failures.append(f"{label}: {why}".removesuffix(": "))
        for figure, value in figures.items():
            self._largest[figure] = max(value, self._largest.get(figure, value))

    def within(self, seconds: float) -> float:
        """Limit of a duration: a long campaign has the machine to itself, the others share it."""
        return seconds if self._is_written else seconds + 15.0

    def finish(self) -> None:
        """Writes the counts of a long campaign, and fails the test unless every try held.

        Raises:
          AssertionError: The promise did not hold each time, or nothing was tried.
        """
        if self._is_written:
            largest = {figure: round(value, 3) for figure, value in self._largest.items()}
            record = {**self._record, "largest": largest, "failures": self._failures[:20]}
            harness.Results(f"faults_{self._name}").add(**record)
        assert self._record["tried"], "nothing was tried"
        assert not self._failures, "\n".join(self._failures[:20])
