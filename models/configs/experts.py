"""Settings of a layer's experts."""

import dataclasses
from typing import Literal

from dawnjax.limits import NonNegative, OneOrMore, require


@dataclasses.dataclass(frozen=True, kw_only=True)
class Experts:
    """Number and kind of a layer's experts.

    Attributes:
      count: Experts of a layer; 0 for one MLP that takes every token.
      chosen: Experts that a token goes through.
      activation: `swiglu`, or GPT-OSS's `clipped_swiglu`, which clips both halves at 7 and adds 1
        to one of them.
      balance: Factor of the balance loss, which is 1 if all experts get equally many tokens; it is
        added only to the training loss. With `accumulation_steps` above 1 each part of the batch is
        balanced separately, which is another objective than the whole batch's balance.
    """

    count: NonNegative[int] = 0
    chosen: OneOrMore[int] = 2
    activation: Literal["swiglu", "clipped_swiglu"] = "swiglu"
    balance: NonNegative[float] = 0.0

    def check_together(self, prefix: str) -> None:
        is_possible = not self.count or self.chosen <= self.count
        rule = f"be at most {prefix}count={self.count}"
        require(is_possible, f"{prefix}chosen", self.chosen, rule)
