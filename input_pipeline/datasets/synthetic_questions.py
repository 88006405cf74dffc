"""Questions made from a seed, a stand-in for SQuAD that a model can learn.

A passage is a row of made-up words with numbers after each. A question repeats one word, and the
answer is the run of numbers after it.
"""

import dataclasses
import functools
import hashlib
from typing import Annotated, Any, ClassVar

import numpy as np

from dawnjax.input_pipeline.datasets.squad import OwnQuestions, asked, texts_of
from dawnjax.input_pipeline.reading.dataset import Declaration, Split
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
    encode_own,
)
from dawnjax.limits import Limit, OneOrMore

_NUM_WORDS = 40
_MOST_FACTS = 5


@dataclasses.dataclass(frozen=True, kw_only=True)
class SyntheticQuestions:
    """Passages of a few facts, each a word with one to three numbers, and questions about them.

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
    vector_width: Annotated[int, Limit(lambda value: 0 <= value <= 300, "lie in 0 to 300")] = 0
    vocabulary_size: Annotated[
        int, Limit(lambda value: value > NUM_SPECIAL, f"be above {NUM_SPECIAL}")
    ] = 100
    seed: Annotated[int, Limit(lambda value: 0 <= value < 2**62, "lie in 0 to 2**62 - 1")] = 0

    def spec(self) -> QuestionsSpec:
        fingerprint = hashlib.sha256(repr(self).encode()).hexdigest()[:16]
        declaration = Declaration(name="questions made from a seed")
        return _SELECTION.spec(self._encoded()[0], self.vector_width, fingerprint, declaration)

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

    def own_questions(self, passages: Passages) -> OwnQuestions:
        encoded, words = encode_own(*self._encoded(), passages)
        return asked(self._selection, encoded, self._vectors(len(words)), passages)

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
