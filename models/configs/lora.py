"""Settings of low-rank adapters."""

import dataclasses
from typing import Annotated

from dawnjax.limits import FractionBelowOne, Limit, NonNegative, Positive
from dawnjax.models.configs.types import Axes

TARGETS = {
    "qkv": ("query", "key", "value"),
    "output": ("output",),
    "gate": ("gate",),
    "up": ("up",),
    "down": ("down",),
}
"""Products that an adapter stands beside. Those of `qkv` share the factor that they begin with, as
in a checkpoint whose query, key and value are one matrix."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lora:
    """Adapters of rank `rank`: W x becomes W x + alpha / rank * B A x.

    Attributes:
      rank: Rows of A; 0 for no adapters.
      alpha: The adapter's weight times its rank.
      targets: Products with an adapter.
      dropout_rate: Dropout of the adapters' inputs in training.
    """

    rank: NonNegative[int] = 0
    alpha: Positive[float] = 32.0
    targets: Annotated[
        tuple[str, ...],
        Limit(
            lambda values: bool(values) and set(values) <= set(TARGETS),
            f"name one or more of {', '.join(TARGETS)}",
        ),
    ] = ("qkv", "output")
    dropout_rate: FractionBelowOne = 0.0


ADAPTER_AXES: dict[str, Axes] = {
    "qkv_in": ("layers", "embed", "rank"),
    "query_out": ("layers", "rank", "heads"),
    "key_out": ("layers", "rank", "kv_heads"),
    "value_out": ("layers", "rank", "kv_heads"),
    "output_in": ("layers", "heads", "rank"),
    "output_out": ("layers", "rank", "embed"),
    "gate_in": ("layers", "embed", "rank"),
    "gate_out": ("layers", "rank", "mlp"),
    "up_in": ("layers", "embed", "rank"),
    "up_out": ("layers", "rank", "mlp"),
    "down_in": ("layers", "mlp", "rank"),
    "down_out": ("layers", "rank", "embed"),
}
