"""Settings of BiDAF, and its matrix products."""

import dataclasses
from typing import ClassVar

import numpy as np

from dawnjax.limits import FractionBelowOne, OneOrMore
from dawnjax.models.configs.network import TextNetwork

TAPS = 5
"""Characters that a filter sees. Source: section 4.1 of the paper, "Model Details"."""

NUM_HIGHWAY_LAYERS = 2
"""Source: section 2, layer 2."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class BiDAF(TextNetwork):
    """The size of the network; the defaults are the paper's, with 2.6 million parameters.

    Attributes:
      word_width: Values of a word's vector.
      character_width: Values of a character. Source: the authors' code, `char_emb_size`.
      filters: Values of a word from its characters.
      hidden_width: Values of an LSTM in one direction.
      num_modelling_layers: Layers of LSTMs after the attention.
      has_match: Whether each token's embedding also has a bit for its exact match in the other
        text. Not in the paper; Chen et al. 2017 (arXiv 1704.00051), section 3.2, "exact match".
      dropout_rate: Dropout of the inputs of every LSTM, of characters and of the last layers.
    """

    TAG: ClassVar[str] = "bidaf"
    NETWORK: ClassVar[str] = "bidaf.BiDAFModule"

    word_width: OneOrMore[int] = 100
    character_width: OneOrMore[int] = 8
    filters: OneOrMore[int] = 100
    hidden_width: OneOrMore[int] = 100
    num_modelling_layers: OneOrMore[int] = 2
    has_match: bool = False
    dropout_rate: FractionBelowOne = 0.2

    @property
    def embedded_width(self) -> int:
        """Values of a token before the LSTMs."""
        return self.word_width + self.filters + self.has_match

    def tiny(self) -> "BiDAF":
        """Network of the same kind for `--tiny`."""
        return dataclasses.replace(
            self,
            word_width=6,
            character_width=4,
            filters=6,
            hidden_width=6,
            num_modelling_layers=1,
        )

    def multiply_adds(
        self, context_lengths: np.ndarray, question_lengths: np.ndarray, words: np.ndarray
    ) -> int:
        """Multiply-adds of the forward pass's matrix products, padding left out.

        Lengths are int [questions]; `words`, int [longest + 1], counts tokens by their characters.
        """
        passage, question = int(context_lengths.sum()), int(question_lengths.sum())
        pairs = int((context_lengths.astype(np.int64) * question_lengths).sum())
        width, d = self.embedded_width, self.hidden_width

        def lstm(in_width: int) -> int:
            return 2 * 4 * d * (in_width + d)

        both = 2 * NUM_HIGHWAY_LAYERS * width**2 + lstm(width)
        attention = 2 * d * (passage + question + 2 * pairs + passage)
        modelling = lstm(8 * d) + (self.num_modelling_layers - 1) * lstm(2 * d)
        last = 2 * d + lstm(14 * d) + 2 * 10 * d
        total = (passage + question) * both + attention + passage * (modelling + last)
        return total + character_multiply_adds(words, TAPS, self.character_width, self.filters)


def character_multiply_adds(words: np.ndarray, taps: int, character_width: int, width: int) -> int:
    """Multiply-adds of `CharacterCNN` where both places of a product hold characters.

    `words`, int [longest + 1], counts tokens by their characters.
    """
    side = taps // 2
    pairs = 0
    for length, count in enumerate(words.tolist()):
        pairs += count * sum(max(0, length - abs(tap - side)) for tap in range(taps))
    return pairs * character_width * width
