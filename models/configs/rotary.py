"""Rates of rotary positions, with the stretched wavelengths that long contexts are trained with."""

import dataclasses
import math
from typing import Literal

import numpy as np

from dawnjax.limits import OneOrMore, Positive, require


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rotary:
    """Rates at which pairs of channels turn with the position.

    Attributes:
      base: Pair i of n turns by base**(-i / n) per token.
      scaling: `llama3` divides the rates of long wavelengths by `factor` and keeps short ones;
        `yarn` does so by the number of turns in `original_length`, and sharpens the attention.
      factor: Factor by which the context became longer.
      original_length: Context before the extension, in tokens.
      low: Wavelengths above `original_length / low` are stretched whole (llama3), or those with
        fewer turns than `low` (yarn).
      high: Wavelengths below `original_length / high`, or with more turns, stay.

    Source: Su et al. 2021 (arXiv 2104.09864); "The Llama 3 Herd of Models" (arXiv 2407.21783),
    section 3.4.2, with the blend of Llama's `apply_scaling`; Peng et al. 2023 (arXiv 2309.00071),
    section 3.2 and equation 22, without rounding of the boundaries, as GPT-OSS has it.
    """

    base: Positive[float] = 500_000.0
    scaling: Literal["none", "llama3", "yarn"] = "none"
    factor: Positive[float] = 8.0
    original_length: OneOrMore[int] = 8192
    low: Positive[float] = 1.0
    high: Positive[float] = 4.0

    def check_together(self, prefix: str) -> None:
        require(
            self.low < self.high, f"{prefix}low", self.low, f"be below {prefix}high={self.high}"
        )

    def rates(self, head_width: int) -> np.ndarray:
        """Radians a token of each pair of channels: float64 [head_width / 2]."""
        half = head_width // 2
        rates = self.base ** (-np.arange(half) / half)
        if self.scaling == "none":
            return rates
        if self.scaling == "llama3":
            # 0 for wavelengths to stretch whole, 1 for those to keep.
            turns = self.original_length * rates / (2 * math.pi)
            kept = np.clip((turns - self.low) / (self.high - self.low), 0, 1)
        else:
            # Linear in the pair's number, between the pairs that make `high` and `low` turns.
            first, last = (
                half * math.log(self.original_length / (turns * 2 * math.pi)) / math.log(self.base)
                for turns in (self.high, self.low)
            )
            first, last = max(first, 0), min(last, head_width - 1)
            kept = 1 - np.clip((np.arange(half) - first) / max(last - first, 1e-3), 0, 1)
        return rates * (kept + (1 - kept) / self.factor)

    @property
    def sharpening(self) -> float:
        """Factor of queries and of keys, once each."""
        return 0.1 * math.log(self.factor) + 1 if self.scaling == "yarn" else 1.0
