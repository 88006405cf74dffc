"""Parallel text made from a seed: each source word has one target word, in the same place."""

import dataclasses
import hashlib
from collections.abc import Sequence
from typing import Annotated, ClassVar

import numpy as np

from dawnjax.input_pipeline.datasets.parallel_text import pair_lengths
from dawnjax.input_pipeline.reading.dataset import Declaration, Split, TextSpec
from dawnjax.input_pipeline.reading.vocabulary import END, LARGEST_SIZE, PAD, UNKNOWN
from dawnjax.limits import Limit, OneOrMore

FIRST_WORD = UNKNOWN + 1

# Second words of the Philox key, beyond any epoch, which the orders of examples use. The first is
# the seed.
_STREAMS: dict[Split, int] = {"train": 2**63, "eval": 2**63 + 1}


class Words:
    """Vocabulary in which the word of token 7 is `w7`."""

    def __init__(self, size: int):
        self.size = size

    def encode(self, sentences: Sequence[str]) -> list[np.ndarray]:
        """Tokens of each sentence, uint16, `END` last; `UNKNOWN` for another word."""
        known = {f"w{token}": token for token in range(FIRST_WORD, self.size)}
        rows = [[known.get(word, UNKNOWN) for word in text.split()] for text in sentences]
        return [np.array([*row, END], np.uint16) for row in rows]

    def decode(self, tokens: np.ndarray) -> list[str]:
        """Text of each row of int [sentences, length] up to its end, without unknown words."""
        rows = [row[: row.index(END)] if END in row else row for row in tokens.tolist()]
        return [" ".join(f"w{token}" for token in row if token >= FIRST_WORD) for row in rows]


@dataclasses.dataclass(frozen=True, kw_only=True)
class SyntheticText:
    """Sentence pairs of made-up words.

    Attributes:
      num_train_examples: Rows of the train split.
      num_eval_examples: Sentence pairs of the eval split.
      pairs_per_row: Sentence pairs side by side in a row.
      most_words: Words of the longest sentences; the shortest have one.
      vocabulary_size: Tokens; three of them are no words.
      seed: Seed of the sentences, apart from a trial's seed.
    """

    TAG: ClassVar[str] = "synthetic_text"
    num_train_examples: OneOrMore[int] = 256
    num_eval_examples: OneOrMore[int] = 32
    pairs_per_row: Annotated[int, Limit(lambda value: 1 <= value <= 255, "lie in 1 to 255")] = 3
    most_words: OneOrMore[int] = 7
    vocabulary_size: Annotated[
        int,
        Limit(lambda value: FIRST_WORD < value <= LARGEST_SIZE, f"lie in 4 to {LARGEST_SIZE:,}"),
    ] = 24
    seed: Annotated[int, Limit(lambda value: value >= 0, "be 0 or more")] = 0

    def spec(self) -> TextSpec:
        longest = self.most_words + 1
        return TextSpec(
            num_train_examples=self.num_train_examples,
            num_train_pairs=self.num_train_examples * self.pairs_per_row,
            num_eval_examples=self.num_eval_examples,
            source_length=self.pairs_per_row * longest,
            target_length=self.pairs_per_row * longest,
            eval_source_length=longest,
            eval_target_length=longest,
            vocabulary_size=self.vocabulary_size,
            end=END,
            fingerprint=hashlib.sha256(repr(self).encode()).hexdigest()[:16],
            declaration=Declaration(name="text made from a seed"),
        )

    def load(self, split: Split) -> dict[str, np.ndarray]:
        if split == "eval":
            return self._sentences(split, self.num_eval_examples)
        pairs = self._sentences(split, self.num_train_examples * self.pairs_per_row)
        arrays = {}
        for side, sentences in pairs.items():
            rows = sentences.reshape(self.num_train_examples, -1)
            numbers = 1 + np.arange(rows.shape[1]) // sentences.shape[1]
            segments = np.where(rows != PAD, numbers, 0).astype(np.uint8)
            # What is left of a sentence's room moves to the end of the row.
            order = np.argsort(rows == PAD, axis=1, kind="stable")
            arrays[side] = np.take_along_axis(rows, order, axis=1)
            arrays[f"{side}_segments"] = np.take_along_axis(segments, order, axis=1)
        return arrays

    def train_pair_lengths(self) -> tuple[np.ndarray, np.ndarray]:
        arrays = self.load("train")
        return pair_lengths(arrays["source_segments"], arrays["target_segments"])

    def vocabulary(self) -> Words:
        return Words(self.vocabulary_size)

    def references(self) -> tuple[str, ...]:
        return tuple(self.vocabulary().decode(self.load("eval")["target"]))

    def _sentences(self, split: Split, count: int) -> dict[str, np.ndarray]:
        """Pairs of sentences, uint16 [count, most_words + 1] a side."""
        stream = np.random.Philox(key=np.array([self.seed, _STREAMS[split]], np.uint64))
        raw = stream.random_raw(count * (self.most_words + 1)).reshape(count, -1)
        num_words = self.vocabulary_size - FIRST_WORD
        lengths = 1 + raw[:, :1] % np.uint64(self.most_words)
        places = np.arange(self.most_words + 1, dtype=np.uint64)
        words = np.roll(raw, -1, axis=1) % np.uint64(num_words)

        def ended(words: np.ndarray) -> np.ndarray:
            tokens = np.where(places < lengths, words + np.uint64(FIRST_WORD), np.uint64(PAD))
            return np.where(places == lengths, np.uint64(END), tokens).astype(np.uint16)

        partner = (words + np.uint64(num_words // 2)) % np.uint64(num_words)
        return {"source": ended(words), "target": ended(partner)}
