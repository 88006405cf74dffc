"""Settings of GNMT, and its matrix products."""

import dataclasses
from typing import Annotated, ClassVar

import numpy as np

from dawnjax.limits import (
    FractionBelowOne,
    Limit,
    OneOrMore,
    Positive,
)
from dawnjax.models.configs.network import TextNetwork


@dataclasses.dataclass(frozen=True, kw_only=True)
class GNMT(TextNetwork):
    """An encoder and a decoder of LSTM layers.

    The defaults are MLPerf's: 160,634,433 parameters with a vocabulary of 32,320. Each of
    PyTorch's layers has a second bias, which is only added to the first: 36,864 parameters more.

    Attributes:
      num_layers: Layers of the encoder, and of the decoder.
      width: Channels of the embedding and of each layer, a direction.
      dropout_rate: Dropout of each layer's input.
      initial_bound: Parameters start uniform between plus and minus this bound, except for the
        embedding and the attention's length and bias. MLPerf's reference has 0.1 (`init_lstm_`).
      embedding_bound: The same for the embedding. Each layer of a narrow network shrinks its input
        at first: with a small embedding the attention of `multi30k_gnmt` settled on the source's
        first token (benchmarks/measurements.md).
    """

    TAG: ClassVar[str] = "gnmt"
    NETWORK: ClassVar[str] = "gnmt.GNMTModule"
    has_coverage: ClassVar[bool] = True

    num_layers: Annotated[int, Limit(lambda value: value >= 2, "be 2 or more")] = 4
    width: OneOrMore[int] = 1024
    dropout_rate: FractionBelowOne = 0.2
    initial_bound: Positive[float] = 0.1
    embedding_bound: Positive[float] = 0.1

    def tiny(self) -> "GNMT":
        """Network of the same kind for `--tiny`."""
        return dataclasses.replace(self, num_layers=2, width=16)

    def multiply_adds(
        self, source_lengths: np.ndarray, target_lengths: np.ndarray, vocabulary_size: int
    ) -> int:
        """Multiply-adds of the forward pass's matrix products over pairs of int [pairs] tokens.

        Each pair counts as if it were alone and unpadded.
        """
        sources, targets = source_lengths.astype(np.int64), target_lengths.astype(np.int64)
        square, rest = self.width**2, self.num_layers - 2
        # By widths of input and state: both directions, the second layer, those after it.
        # Kernels of four gates each.
        encoder = 4 * square * (2 * 2 + 3 + 2 * rest) + square
        decoder = 4 * square * (2 + 3 * (self.num_layers - 1)) + square
        decoder += self.width * vocabulary_size
        # A score and a part of a weighted sum for each pair of tokens.
        attention = 2 * self.width * int((sources * targets).sum())
        return int(sources.sum()) * encoder + int(targets.sum()) * decoder + attention
