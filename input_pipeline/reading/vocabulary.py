"""The joint vocabulary of source and target: SentencePiece, byte-pair encoding, lossless.

Text is not normalized, and a character that the vocabulary lacks becomes its UTF-8 bytes. So a
translation needs no detokenization before it is scored.

Source: Kudo and Richardson 2018, "SentencePiece" (arXiv 1808.06226); Sennrich et al. 2016 (arXiv
1508.07909) for the encoding.
"""

import io
from collections.abc import Sequence
from typing import Any

import numpy as np

from dawnjax.errors import install
from dawnjax.input_pipeline.reading.dataset import DataError

PAD, END, UNKNOWN = 0, 1, 2
"""The first tokens. A target sentence begins with `PAD` as the decoder's first input."""

SMALLEST_SIZE = 300
"""256 bytes, the three tokens above, and a few characters."""

LARGEST_SIZE = 2**16
"""Tokens are stored as uint16."""

MOST_BYTES = 2**28
"""Limit of a model file; 65,536 tokens take 1.2 MB."""

MOST_TRAINING_SENTENCES = 2_000_000
"""Lines of a larger corpus, evenly spaced: training time and memory grow with their number."""


class Vocabulary:
    """Encoder and decoder of text by the content of a SentencePiece model file."""

    def __init__(self, model: bytes, where: str = "the vocabulary"):
        self._processor = _sentencepiece().SentencePieceProcessor()
        try:
            self._processor.LoadFromSerializedProto(model)
        except Exception:  # a RuntimeError of the C++ library, or a TypeError of its wrapper
            raise DataError(f"{where}: is not a SentencePiece model") from None
        processor = self._processor
        first = (processor.pad_id(), processor.eos_id(), processor.unk_id())
        if first != (PAD, END, UNKNOWN):
            raise DataError(
                f"{where}: padding, end and unknown are tokens {first}, wanted "
                f"{(PAD, END, UNKNOWN)}; train it with `dawnjax prepare`"
            )

    @property
    def size(self) -> int:
        return self._processor.GetPieceSize()

    def encode(self, sentences: Sequence[str]) -> list[np.ndarray]:
        """Tokens of each sentence, uint16, `END` last."""
        rows: Any = self._processor.Encode(list(sentences), add_eos=True, num_threads=1)
        return [np.array(row, np.uint16) for row in rows]

    def decode(self, tokens: np.ndarray) -> list[str]:
        """Text of each row of int [sentences, length] up to its end."""
        texts = []
        for row in tokens.tolist():
            end = row.index(END) if END in row else len(row)
            texts.append([token for token in row[:end] if token != PAD])
        return self._processor.Decode(texts)


def train_vocabulary(sentences: Sequence[str], size: int) -> bytes:
    """Train a vocabulary: the content of a model file, the same for the same sentences and library.

    Blanks in a row become one.
    """
    if not SMALLEST_SIZE <= size <= LARGEST_SIZE:
        raise DataError(
            f"a vocabulary of {size} tokens must lie in {SMALLEST_SIZE} to {LARGEST_SIZE}"
        )
    stride = -(-len(sentences) // MOST_TRAINING_SENTENCES)
    model = io.BytesIO()
    try:
        _sentencepiece().SentencePieceTrainer.Train(
            sentence_iterator=iter(sentences[::stride]),
            model_writer=model,
            vocab_size=size,
            model_type="bpe",
            normalization_rule_name="identity",
            byte_fallback=True,
            character_coverage=0.9999,
            pad_id=PAD,
            eos_id=END,
            unk_id=UNKNOWN,
            bos_id=-1,
            num_threads=1,
            minloglevel=2,
            add_dummy_prefix=True,
            remove_extra_whitespaces=True,
        )
    except RuntimeError as error:
        words = " ".join(str(error).split())
        raise DataError(f"no vocabulary of {size} tokens can be trained: {words}") from None
    return model.getvalue()


def _sentencepiece() -> Any:
    try:
        import sentencepiece
    except ImportError:
        raise DataError(f"a vocabulary needs SentencePiece: {install('text')}") from None
    return sentencepiece
