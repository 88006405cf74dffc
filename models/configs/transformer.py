"""Settings of the Transformer that translates, and its matrix products."""

import dataclasses
from typing import Any, ClassVar

import numpy as np

from dawnjax.limits import FractionBelowOne, OneOrMore, require
from dawnjax.models.configs.network import TextNetwork
from dawnjax.models.configs.types import Axes


@dataclasses.dataclass(frozen=True, kw_only=True)
class Transformer(TextNetwork):
    """An encoder and a decoder of the same depth and width.

    The defaults are the paper's base model: 63,047,680 parameters with a vocabulary of 37,000.

    Attributes:
      num_layers: Layers of the encoder, and of the decoder.
      width: Channels of a token between layers.
      hidden_width: Channels inside the feed-forward sublayers.
      num_heads: Heads of each attention; they share the width.
      dropout_rate: Dropout of each sublayer's output and of the embeddings (section 5.4).
    """

    TAG: ClassVar[str] = "transformer"
    NETWORK: ClassVar[str] = "transformer.TransformerModule"

    num_layers: OneOrMore[int] = 6
    width: OneOrMore[int] = 512
    hidden_width: OneOrMore[int] = 2048
    num_heads: OneOrMore[int] = 8
    dropout_rate: FractionBelowOne = 0.1

    def check_together(self, prefix: str) -> None:
        rule = f"be a multiple of twice the {self.num_heads} heads"
        require(self.width % (2 * self.num_heads) == 0, f"{prefix}width", self.width, rule)

    def split_sizes(self, spec: Any) -> dict[str, tuple[tuple[str, int], ...]]:
        """For each axis of the mesh, the fields that it must divide, and their values."""
        names = ("num_heads", "hidden_width")
        return {
            "fsdp": (("model.width", self.width),),
            "model": tuple((f"model.{name}", getattr(self, name)) for name in names),
        }

    def logical_axes(self) -> dict[str, Axes]:
        """Named axes of each parameter, by the end of its path; `sharding.RULES` places them."""
        attention: dict[str, Axes] = dict.fromkeys(("query", "key", "value"), ("embed", "heads"))
        attention["output"] = ("heads", "embed")
        return {
            "embedding": ("vocab", "embed"),
            **{f"attention/{name}": axes for name, axes in attention.items()},
            **{f"source_attention/{name}": axes for name, axes in attention.items()},
            "kernel_1": ("embed", "mlp"),
            "bias_1": ("mlp",),
            "kernel_2": ("mlp", "embed"),
        }

    def tiny(self) -> "Transformer":
        """Network of the same kind for `--tiny`."""
        return dataclasses.replace(self, num_layers=1, width=16, hidden_width=16, num_heads=2)

    def multiply_adds(
        self, source_lengths: np.ndarray, target_lengths: np.ndarray, vocabulary_size: int
    ) -> int:
        """Multiply-adds of the forward pass's matrix products over pairs of int [pairs] tokens.

        Each pair counts as if it were alone and unpadded.
        """
        sources, targets = source_lengths.astype(np.int64), target_lengths.astype(np.int64)
        num_sources, num_targets = int(sources.sum()), int(targets.sum())
        square, feed_forward = self.width**2, 2 * self.width * self.hidden_width
        encoder = num_sources * (4 * square + feed_forward)
        # Query, key, value and output of self-attention; query and output, then key and value, of
        # the attention to the source.
        decoder = num_targets * (6 * square + feed_forward) + num_sources * 2 * square
        # Scores and weighted sums, each [queries, keys] by the channels of all heads.
        # The decoder's mask hides later tokens, and their products are made all the same.
        seen = int((sources**2).sum() + (targets**2).sum() + (sources * targets).sum())
        logits = num_targets * self.width * vocabulary_size
        return self.num_layers * (encoder + decoder + 2 * self.width * seen) + logits
