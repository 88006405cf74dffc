"""Settings of QANet, and its matrix products."""

import dataclasses
from typing import ClassVar

import numpy as np

from dawnjax.limits import Fraction, FractionBelowOne, OneOrMore
from dawnjax.models.configs.bidaf import character_multiply_adds
from dawnjax.models.configs.network import TextNetwork
from dawnjax.models.configs.transformer import Transformer

CHARACTER_TAPS = 5
EMBEDDING_TAPS, MODEL_TAPS = 7, 5
"""Tokens that a convolution sees. Source: section 4.1.1."""

EMBEDDING_CONVOLUTIONS, MODEL_CONVOLUTIONS = 4, 2
"""Convolutions of a block. Source: section 4.1.1."""

NUM_HIGHWAY_LAYERS = 2
NUM_PASSES = 3
"""Passes through the blocks after the attention, with the same weights."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class QANet(TextNetwork):
    """The size of the network; the defaults are the paper's.

    Attributes:
      word_width: Values of a word's vector.
      character_width: Values of a character.
      filters: Values of a word from its characters.
      width: Values of a token between layers.
      num_heads: Heads of each attention.
      num_model_blocks: Blocks after the attention.
      dropout_rate: Dropout of words and of each sublayer's result; characters have half of it.
      layer_survival: Probability that the last sublayer of a stack takes part in a training step.
        Earlier sublayers are nearer to 1 (Huang et al. 2016, arXiv 1603.09382, equation 4).
    """

    TAG: ClassVar[str] = "qanet"
    NETWORK: ClassVar[str] = "qanet.QANetModule"

    word_width: OneOrMore[int] = 300
    character_width: OneOrMore[int] = 64
    filters: OneOrMore[int] = 200
    width: OneOrMore[int] = 128
    num_heads: OneOrMore[int] = 8
    num_model_blocks: OneOrMore[int] = 7
    dropout_rate: FractionBelowOne = 0.1
    layer_survival: Fraction = 0.9

    @property
    def attention(self) -> Transformer:
        """Attention and feed-forward layer of a block, as a Transformer's config."""
        return Transformer(
            num_layers=1, width=self.width, hidden_width=self.width, num_heads=self.num_heads
        )

    def check_together(self, prefix: str) -> None:
        self.attention.check_together(prefix)

    def tiny(self) -> "QANet":
        """Network of the same kind for `--tiny`."""
        return dataclasses.replace(
            self,
            word_width=6,
            character_width=4,
            filters=6,
            width=8,
            num_heads=2,
            num_model_blocks=1,
        )

    def multiply_adds(
        self, context_lengths: np.ndarray, question_lengths: np.ndarray, words: np.ndarray
    ) -> int:
        """Multiply-adds of the forward pass's matrix products and convolutions, without padding.

        Lengths are int [questions]; `words`, int [longest + 1], counts tokens by their characters.
        """
        contexts, questions = (x.astype(np.int64) for x in (context_lengths, question_lengths))
        passage, question = int(contexts.sum()), int(questions.sum())
        pairs = int((contexts * questions).sum())
        embedded, w = self.word_width + self.filters, self.width

        def block(lengths: np.ndarray, convolutions: int, taps: int) -> int:
            windows = sum(
                int(np.maximum(0, lengths - abs(t - taps // 2)).sum()) for t in range(taps)
            )
            tokens, squares = int(lengths.sum()), int((lengths**2).sum())
            convolved = convolutions * (windows * w + tokens * w**2)
            return convolved + tokens * 6 * w**2 + 2 * squares * w

        total = (passage + question) * (2 * NUM_HIGHWAY_LAYERS * embedded**2 + embedded * w)
        for lengths in (contexts, questions):
            total += block(lengths, EMBEDDING_CONVOLUTIONS, EMBEDDING_TAPS)
        total += w * (passage + question + 4 * pairs) + passage * 4 * w**2
        blocks = NUM_PASSES * self.num_model_blocks
        total += blocks * block(contexts, MODEL_CONVOLUTIONS, MODEL_TAPS) + passage * 4 * w
        characters = (CHARACTER_TAPS, self.character_width, self.filters)
        return total + character_multiply_adds(words, *characters)
