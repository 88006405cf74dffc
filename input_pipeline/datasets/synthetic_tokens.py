"""Tokens made from a seed, a stand-in for text that a model can learn.

Each token is the one before it plus 1, 2 or 3; documents of 32 tokens begin with a separator.
"""

import dataclasses
import hashlib
from typing import Any, ClassVar, Literal

import numpy as np

from dawnjax.input_pipeline.datasets.token_shards import TokenSpec, rows_of, token_spec
from dawnjax.input_pipeline.reading.dataset import Declaration, Split
from dawnjax.input_pipeline.reading.token_words import KNOWN_WORDS, TokenText, token_text
from dawnjax.limits import NonNegative, OneOrMore

_DOCUMENT_LENGTH = 32


@dataclasses.dataclass(frozen=True, kw_only=True)
class SyntheticTokens:
    """Documents that count upward by small steps.

    Attributes:
      num_train_tokens: Tokens to predict in the training stream.
      num_eval_tokens: Tokens to predict in the stream to evaluate.
      sequence_length: Tokens that a row predicts.
      vocabulary: As `token_shards` has it.
      seed: Seed of the steps.
    """

    TAG: ClassVar[str] = "synthetic_tokens"
    num_train_tokens: OneOrMore[int] = 1024
    num_eval_tokens: OneOrMore[int] = 200
    sequence_length: OneOrMore[int] = 32
    vocabulary: Literal["bytes", "gpt2"] = "bytes"
    seed: NonNegative[int] = 0

    def spec(self) -> TokenSpec:
        """Count and shapes; raises ValueError for less than a row to train on."""
        if self.num_train_tokens < self.sequence_length:
            raise ValueError(
                f"data.num_train_tokens={self.num_train_tokens} must be data.sequence_length="
                f"{self.sequence_length} or more"
            )
        return token_spec(
            self.num_train_tokens + 1,
            self.num_eval_tokens + 1,
            self.sequence_length,
            KNOWN_WORDS[self.vocabulary],
            hashlib.sha256(repr(self).encode()).hexdigest()[:16],
            Declaration(name="tokens made from a seed"),
        )

    def load(self, split: Split) -> dict[str, Any]:
        count = 1 + (self.num_train_tokens if split == "train" else self.num_eval_tokens)
        key = np.array([self.seed, 2**63 + (split == "eval")], np.uint64)
        steps = 1 + np.random.Philox(key=key).random_raw(count) % np.uint64(3)
        separator = KNOWN_WORDS[self.vocabulary].separator
        tokens = (np.cumsum(steps) % np.uint64(separator)).astype(np.uint16)
        tokens[::_DOCUMENT_LENGTH] = separator
        return rows_of(tokens, count, self.sequence_length, separator, split)

    def token_text(self) -> TokenText:
        return token_text(KNOWN_WORDS[self.vocabulary])
