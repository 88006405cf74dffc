"""Lines that other programs print, as cells.

Source of the forms: KellerJordan/modded-nanogpt (`step:125/1490 val_loss:4.5 train_time:7300ms`),
karpathy/nanochat, `scripts/base_train.py` (`Step 00250 | Validation bpb: 1.2`), and the closing
summary that karpathy/autoresearch asks of a program (`---`, then `val_bpb: 0.99`).
"""

import re
from typing import Any

_PIPED = re.compile(r"step (\d{1,15})(?:/\d+)?(?: \([^)]*\))? \| (.+)", re.IGNORECASE)
_SUMMED = re.compile(r"([A-Za-z_]\w*):\s+(\S+)\s*$")
_AMOUNT = re.compile(
    r"([-+]?(?:\d[\d,]*\.?\d*|\.\d+)(?:e[-+]?\d+)?|[-+]?nan|[-+]?inf)(ms|s|m|h)?/?"
)
_SECONDS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_A_STEP = re.compile(r"Total batch size ([\d,]+)\b")
_A_TOKEN = re.compile(r"Estimated FLOPs per token: ([\d.e+]+)")
_LONGEST_AMOUNT, _MOST_IN_SUMMARY = 60, 1000
_TOTAL = "total_time"


class Seconds(float):
    """A duration whose unit the log gives."""


class Reader:
    """Reader of one log's lines, which remembers what its earlier lines said."""

    def __init__(self) -> None:
        self._clock: Seconds | None = None
        self._tokens_a_step = self._flops_a_token = 0.0
        self._summary: dict[str, Any] | None = None

    @property
    def summary(self) -> dict[str, Any]:
        """Cells of the closing summary; empty without one."""
        cells = dict(self._summary or {})
        if "num_steps" in cells:
            cells["step"] = cells.pop("num_steps")
        if "training_seconds" in cells:
            cells["training_seconds"] = Seconds(cells["training_seconds"])
        return cells

    def cells(self, line: bytes) -> dict[str, Any]:
        """Cells of a line; empty if its form is not known."""
        if line.startswith(b"step:"):
            return _pairs(line)
        if line[:5] in (b"step ", b"Step "):
            return self._piped(line)
        if line.rstrip() == b"---":
            self._summary = {}
        elif self._summary is not None and (pair := _SUMMED.match(_decoded(line))):
            amount = _amount(pair[2])
            if amount is not None and len(self._summary) < _MOST_IN_SUMMARY:
                self._summary[pair[1]] = amount
        elif line.startswith(b"Total") and (found := _A_STEP.match(_decoded(line))):
            self._tokens_a_step = _amount(found[1]) or 0.0
        elif line.startswith(b"Estimated") and (found := _A_TOKEN.match(_decoded(line))):
            self._flops_a_token = _amount(found[1]) or 0.0
        return {}

    def _piped(self, line: bytes) -> dict[str, Any]:
        found = _PIPED.match(_decoded(line))
        if not found:
            return {}
        step = int(found[1])
        cells: dict[str, Any] = {"step": step}
        for part in found[2].split(" | "):
            name, _, value = part.partition(": ")
            amount = _amount(value.strip())
            if amount is not None:
                cells[name.strip().lower().replace(" ", "_")] = amount
        if _TOTAL in cells:
            self._clock = cells[_TOTAL]
        else:
            # A line of an evaluation has no clock; that stands still since the last step's line.
            cells[_TOTAL] = self._clock if self._clock is not None or step else Seconds(0.0)
        if self._tokens_a_step:
            # A step's own line comes after it, an evaluation's before.
            done = step if "loss" not in cells else step + 1
            cells["tokens"] = done * self._tokens_a_step
            if self._flops_a_token:
                cells["flops"] = cells["tokens"] * self._flops_a_token
        return {name: value for name, value in cells.items() if value is not None}


def _pairs(line: bytes) -> dict[str, Any]:
    """Cells of a line of `name:value` words; a million of them are read in seconds."""
    cells = {}
    for word in _decoded(line).split():
        name, _, text = word.partition(":")
        if "/" in text:
            text = text.partition("/")[0]  # the steps of steps in all
        amount = _amount(text)
        if amount is not None:
            cells[name] = amount
    return cells


def _decoded(line: bytes) -> str:
    return line.decode("utf-8", "replace")


def _amount(text: str) -> float | None:
    """A number, or a duration with its unit in seconds; None for any other text."""
    try:  # a million of them are read in seconds
        return Seconds(float(text[:-2]) * 1e-3) if text.endswith("ms") else float(text)
    except ValueError:
        pass
    if len(text) > _LONGEST_AMOUNT:  # tried in the square of its length
        return None
    found = _AMOUNT.fullmatch(text)
    if not found:
        return None
    number = float(found[1].replace(",", ""))
    return Seconds(number * _SECONDS[found[2]]) if found[2] else number
