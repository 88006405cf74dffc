"""Examples made from a seed, one small set for each kind of data: nothing is read.

A model can learn each of them. Trials, `--tiny` and tests use them.
"""

import dataclasses
import functools
import hashlib
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

import numpy as np

from dawnjax.input_pipeline.datasets.parallel_text import pair_lengths
from dawnjax.input_pipeline.datasets.squad import texts_of
from dawnjax.input_pipeline.reading import run_lengths
from dawnjax.input_pipeline.reading.dataset import DatasetSpec, Declaration, Split, TextSpec
from dawnjax.input_pipeline.reading.interactions import InteractionsSpec, draw_negatives, split_of
from dawnjax.input_pipeline.reading.objects import Objects, ObjectsSpec, PackedMasks, crops
from dawnjax.input_pipeline.reading.questions import (
    NUM_SPECIAL,
    Encoded,
    EvaluatedTexts,
    Lengths,
    Passages,
    Question,
    QuestionsSpec,
    Selection,
    encode,
)
from dawnjax.input_pipeline.reading.token_rows import TokenSpec, rows_of, token_spec
from dawnjax.input_pipeline.reading.token_words import KNOWN_WORDS, TokenText, token_text
from dawnjax.input_pipeline.reading.vocabulary import END, LARGEST_SIZE, PAD, UNKNOWN
from dawnjax.limits import Limit, OneOrMore, check_fields, require, within

STREAM = 2**63
"""Second word of the Philox key, with those after it: beyond any epoch, which the orders of
examples use. The first is the seed. Raw output of Philox is the same under any NumPy."""

_Seed = Annotated[int, Limit(lambda value: 0 <= value < 2**62, "be 0 or more, below 2**62")]


def _identity(config: Any, name: str) -> dict[str, Any]:
    return {
        "fingerprint": hashlib.sha256(repr(config).encode()).hexdigest()[:16],
        "declaration": Declaration(name=f"{name} made from a seed"),
    }


def _raw(seed: int, stream: int, count: int) -> np.ndarray:
    return np.random.Philox(key=np.array([seed, STREAM + stream], np.uint64)).random_raw(count)


CELLS = 4
"""A pattern has this many cells along each side of the image."""

# Pattern and noise are independent and each uniform on 0 to 127, so a pixel has mean 127 and
# variance 2 * (128**2 - 1) / 12 (the variance of a discrete uniform variable, twice).
MEAN = 127 / 255
STD = (2 * (128**2 - 1) / 12) ** 0.5 / 255


@dataclasses.dataclass(frozen=True, kw_only=True)
class Synthetic:
    """Images of any shape whose class is a coarse pattern under noise.

    An image is its class's pattern of 4x4 cells plus noise of the same strength in each pixel. The
    noise averages out over a cell, while a single pixel says little.

    Attributes:
      num_train_examples: Examples in the train split.
      num_eval_examples: Examples in the eval split; other noise, the same patterns.
      image_height: In pixels.
      image_width: In pixels.
      image_channels: Channels, each with its own pattern.
      num_classes: Classes, in equal numbers (to within one example).
      seed: Seed of patterns and noise, apart from a trial's seed.
    """

    TAG: ClassVar[str] = "synthetic"
    num_train_examples: OneOrMore[int] = 1024
    num_eval_examples: OneOrMore[int] = 256
    image_height: OneOrMore[int] = 8
    image_width: OneOrMore[int] = 8
    image_channels: Annotated[int, within(1, 2**16)] = 1
    num_classes: Annotated[int, Limit(lambda value: value >= 2, "be 2 or more")] = 10
    seed: _Seed = 0

    def spec(self) -> DatasetSpec:
        check_fields(self, "data.")
        return DatasetSpec(
            num_train_examples=self.num_train_examples,
            num_eval_examples=self.num_eval_examples,
            image_shape=(self.image_height, self.image_width, self.image_channels),
            num_classes=self.num_classes,
            mean=(MEAN,) * self.image_channels,
            std=(STD,) * self.image_channels,
            **_identity(self, "images"),
        )

    def load(self, split: Split) -> dict[str, np.ndarray]:
        spec = self.spec()
        height, width, channels = spec.image_shape
        patterns = _random_bytes(self.seed, 0, (spec.num_classes, CELLS, CELLS, channels))
        rows = np.arange(height) * CELLS // height
        columns = np.arange(width) * CELLS // width
        patterns = patterns[:, rows][:, :, columns] >> 1
        count = spec.num_train_examples if split == "train" else spec.num_eval_examples
        labels = np.arange(count, dtype=np.int32) % spec.num_classes
        images = _random_bytes(self.seed, 1 + (split == "eval"), (count, *spec.image_shape))
        images >>= 1
        # Both summands are 127 at most, so the sum stays within uint8.
        for label in range(spec.num_classes):
            images[label :: spec.num_classes] += patterns[label]
        return {"image": images, "label": labels}

    def classes(self) -> tuple[str, ...]:
        return tuple(str(number) for number in range(self.num_classes))


def _random_bytes(seed: int, stream: int, shape: tuple[int, ...]) -> np.ndarray:
    size = int(np.prod(shape))
    words = _raw(seed, stream, -(-size // 8))
    return words.astype("<u8", copy=False).view(np.uint8)[:size].reshape(shape)


_COLOURS = np.array([(220, 40, 40), (40, 200, 60), (50, 80, 230)])
_PUBLISHED_PIXELS = 8
"""Pixels of an image as published for each one drawn, so that all of COCO's sizes occur."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SyntheticObjects:
    """Rectangles of three colours, their classes, on noise.

    Attributes:
      num_train_examples: Images to train on.
      num_eval_examples: Images to evaluate.
      height: Of the images, in pixels.
      width: Likewise.
      objects_an_image: The most; each image has one or more.
      mask_side: Of the square that each mask is cut to, in its box; 0 gives no masks.
      seed: Seed of what is drawn.
    """

    TAG: ClassVar[str] = "synthetic_objects"
    num_train_examples: OneOrMore[int] = 256
    num_eval_examples: OneOrMore[int] = 64
    height: Annotated[int, within(16, 1024)] = 64
    width: Annotated[int, within(16, 1024)] = 64
    objects_an_image: Annotated[int, within(1, 20)] = 3
    mask_side: Annotated[int, within(0, 256)] = 0
    seed: _Seed = 0

    def spec(self) -> ObjectsSpec:
        shape = (self.height, self.width, 3)
        return ObjectsSpec(
            num_train_examples=self.num_train_examples,
            num_eval_examples=self.num_eval_examples,
            image_shape=shape,
            train_image_shape=shape,
            num_classes=len(_COLOURS),
            most_objects=self.objects_an_image,
            mean=(0.5,) * 3,
            std=(0.25,) * 3,
            mask_side=self.mask_side,
            **_identity(self, "rectangles"),
        )

    def load(self, split: Split) -> dict[str, Any]:
        images, objects = _drawn(self, split)
        arrays: dict[str, Any] = {"image": images}
        if self.mask_side:
            arrays["covered"] = np.ones((len(images), 2), np.float32)
        if split == "eval":
            return arrays
        most = self.objects_an_image
        if self.mask_side:
            arrays["masks"] = crops(objects, most, self.mask_side)
        return {**arrays, **objects.padded(most)}

    def evaluated_objects(self) -> Objects:
        return _drawn(self, "eval")[1]

    def classes(self) -> tuple[str, ...]:
        return ("red", "green", "blue")


@functools.lru_cache(maxsize=4)
def _drawn(config: SyntheticObjects, split: Split) -> tuple[np.ndarray, Objects]:
    random = np.random.default_rng(2 * config.seed + (split == "eval"))
    is_train = split == "train"
    count = config.num_train_examples if is_train else config.num_eval_examples
    height, width = config.height, config.width
    images = random.integers(90, 130, (count, height, width, 3)).astype(np.uint8)
    boxes, classes, masks, numbers = [], [], [], []
    for image in images:
        number = int(random.integers(1, config.objects_an_image + 1))
        numbers.append(number)
        for place in range(number):
            # Small, medium and large ones in turn, in pixels of the image as published.
            least, most = ((2, 4), (5, 11), (13, 16))[place % 3]
            w, h = random.integers(least, most, 2)
            x, y = random.integers(0, width - w + 1), random.integers(0, height - h + 1)
            kind = int(random.integers(len(_COLOURS)))
            image[y : y + h, x : x + w] = _COLOURS[kind]
            boxes.append((x, y, w, h))
            classes.append(kind + 1)
            mask = np.zeros((height, width), bool)
            mask[y : y + h, x : x + w] = True
            masks.append(
                run_lengths.pack(mask.repeat(_PUBLISHED_PIXELS, 0).repeat(_PUBLISHED_PIXELS, 1))
            )
    boxes = np.array(boxes, np.float64) * _PUBLISHED_PIXELS
    objects = Objects(
        sizes=np.full((count, 2), (height, width), np.int32) * _PUBLISHED_PIXELS,
        ends=np.cumsum(numbers),
        boxes=boxes,
        areas=boxes[:, 2] * boxes[:, 3],
        classes=np.array(classes, np.int32),
        crowd=np.zeros(len(boxes), bool),
        masks=PackedMasks.of(masks),
        names=config.classes(),
    )
    images.setflags(write=False)
    return images, objects


_NUM_WORDS, _MOST_FACTS = 40, 5


@dataclasses.dataclass(frozen=True, kw_only=True)
class SyntheticQuestions:
    """Questions about passages of made-up words with numbers after each, a stand-in for SQuAD.

    A question repeats one word, and the answer is the run of numbers after it.

    Attributes:
      num_train_examples: Questions to train on; each has a passage of its own.
      num_eval_examples: Questions to evaluate.
      vector_width: Values of vectors that words have from outside; 0 where the model trains its
        own.
      vocabulary_size: As in `squad.Squad`.
      seed: Seed of what is asked.
    """

    TAG: ClassVar[str] = "synthetic_questions"
    num_train_examples: OneOrMore[int] = 512
    num_eval_examples: OneOrMore[int] = 100
    vector_width: Annotated[int, within(0, 300)] = 0
    vocabulary_size: Annotated[
        int, Limit(lambda value: value > NUM_SPECIAL, f"be above {NUM_SPECIAL}")
    ] = 100
    seed: _Seed = 0

    def spec(self) -> QuestionsSpec:
        encoded, _ = self._encoded()
        return _SELECTION.spec(encoded, self.vector_width, **_identity(self, "questions"))

    def load(self, split: Split) -> dict[str, Any]:
        encoded, types = self._encoded()
        vectors, selection = self._vectors(len(types)), self._selection
        spec = selection.spec(encoded, self.vector_width, "", None)
        return selection.arrays(encoded, split, vectors, spec)

    def evaluated_texts(self) -> EvaluatedTexts:
        passages = _passages(self.num_eval_examples, 2 * self.seed + 1)
        questions = passages.questions
        answers = [[text for _, text in question.answers] for question in questions]
        texts = [question.text for question in questions]
        return texts_of(passages.contexts, texts, answers, self._encoded()[0], _SELECTION)

    def train_lengths(self) -> Lengths:
        return _SELECTION.lengths(self._encoded()[0])

    @property
    def _selection(self) -> Selection:
        return dataclasses.replace(_SELECTION, vocabulary_size=self.vocabulary_size)

    def _vectors(self, num_types: int) -> np.ndarray | None:
        if not self.vector_width:
            return None
        shape = (num_types, self.vector_width)
        vectors = np.random.default_rng(self.seed).normal(0, 1, shape).astype(np.float16)
        vectors[0] = 0
        return vectors

    def _encoded(self) -> tuple[Encoded, list[str]]:
        return _encoded(self.num_train_examples, self.num_eval_examples, self.seed)


_SELECTION = Selection(
    context_length=4 * _MOST_FACTS, question_length=4, eval_context_length=0, vocabulary_size=100
)


@functools.lru_cache(maxsize=4)
def _encoded(num_train: int, num_eval: int, seed: int) -> tuple[Encoded, list[str]]:
    return encode(_passages(num_train, 2 * seed), _passages(num_eval, 2 * seed + 1))


def _passages(count: int, seed: int) -> Passages:
    random = np.random.default_rng(seed)
    words = [f"{a}{b}{a}" for a in "bdfgklmnprst" for b in "aeiou"][:_NUM_WORDS]
    contexts, questions = [], []
    for number in range(count):
        facts = []
        for word in random.choice(words, int(random.integers(2, _MOST_FACTS + 1)), replace=False):
            values = random.integers(10, 40, int(random.integers(1, 4)))
            facts.append((str(word), " ".join(map(str, values))))
        context = " ".join(f"{word} {values}" for word, values in facts)
        word, values = facts[int(random.integers(len(facts)))]
        start = context.index(f"{word} ") + len(word) + 1
        answers = ((start, values), (start, values.split(" ")[0]))
        questions.append(Question(f"{seed}-{number}", number, number, f"what is {word}", answers))
        contexts.append(context)
    return Passages(count, contexts, questions)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SyntheticRatings:
    """Users who rate the items next to them on a circle, a stand-in for MovieLens.

    Attributes:
      num_users: Users.
      num_items: Items; more than `ratings_per_user`.
      ratings_per_user: Ratings of each user, 2 or more; the last is held out.
      num_eval_negatives: Items that a held-out one is ranked among.
      eval_negatives_seed: Seed of these items.
      seed: Seed of the order in which a user rates.
    """

    TAG: ClassVar[str] = "synthetic_ratings"
    num_users: OneOrMore[int] = 64
    num_items: OneOrMore[int] = 100
    ratings_per_user: OneOrMore[int] = 9
    num_eval_negatives: OneOrMore[int] = 20
    eval_negatives_seed: _Seed = 0
    seed: _Seed = 0

    def check_together(self, prefix: str) -> None:
        fits, name = 2 <= self.ratings_per_user < self.num_items, f"{prefix}ratings_per_user"
        require(fits, name, self.ratings_per_user, f"lie in 2 to {prefix}num_items - 1")

    def spec(self) -> InteractionsSpec:
        check_fields(self, "data.")
        return InteractionsSpec(
            num_train_examples=self.num_users * (self.ratings_per_user - 1),
            num_eval_examples=self.num_users,
            num_users=self.num_users,
            num_items=self.num_items,
            num_eval_negatives=self.num_eval_negatives,
            **_identity(self, "ratings"),
        )

    def load(self, split: Split) -> dict[str, Any]:
        users, count = np.arange(self.num_users)[:, None], self.ratings_per_user
        raw = _raw(self.seed, 0, self.num_users * count).reshape(self.num_users, count)
        places = np.argsort(raw, axis=1)
        items = (users * self.num_items // self.num_users + places) % self.num_items
        pairs = np.stack([np.repeat(users, count), items.reshape(-1)], axis=1).astype(np.int32)
        return split_of(
            pairs,
            self.num_items,
            split,
            lambda all: draw_negatives(
                all, self.num_items, self.num_eval_negatives, self.eval_negatives_seed
            ),
        )


FIRST_WORD = UNKNOWN + 1


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
    """Sentence pairs of made-up words: each has one target word, in the same place.

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
    pairs_per_row: Annotated[int, within(1, 255)] = 3
    most_words: OneOrMore[int] = 7
    vocabulary_size: Annotated[int, within(FIRST_WORD + 1, LARGEST_SIZE)] = 24
    seed: _Seed = 0

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
            **_identity(self, "text"),
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
        raw = _raw(self.seed, split == "eval", count * (self.most_words + 1)).reshape(count, -1)
        num_words = self.vocabulary_size - FIRST_WORD
        lengths = 1 + raw[:, :1] % np.uint64(self.most_words)
        places = np.arange(self.most_words + 1, dtype=np.uint64)
        words = np.roll(raw, -1, axis=1) % np.uint64(num_words)

        def ended(words: np.ndarray) -> np.ndarray:
            tokens = np.where(places < lengths, words + np.uint64(FIRST_WORD), np.uint64(PAD))
            return np.where(places == lengths, np.uint64(END), tokens).astype(np.uint16)

        partner = (words + np.uint64(num_words // 2)) % np.uint64(num_words)
        return {"source": ended(words), "target": ended(partner)}


_DOCUMENT_LENGTH = 32


@dataclasses.dataclass(frozen=True, kw_only=True)
class SyntheticTokens:
    """Tokens that count upward by 1, 2 or 3; documents of 32 begin with a separator.

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
    seed: _Seed = 0

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
            **_identity(self, "tokens"),
        )

    def load(self, split: Split) -> dict[str, Any]:
        count = 1 + (self.num_train_tokens if split == "train" else self.num_eval_tokens)
        steps = 1 + _raw(self.seed, split == "eval", count) % np.uint64(3)
        separator = KNOWN_WORDS[self.vocabulary].separator
        tokens = (np.cumsum(steps) % np.uint64(separator)).astype(np.uint16)
        tokens[::_DOCUMENT_LENGTH] = separator
        return rows_of(tokens, count, self.sequence_length, separator, split)

    def token_text(self) -> TokenText:
        return token_text(KNOWN_WORDS[self.vocabulary])
