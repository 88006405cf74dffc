"""Exact match and F1 of answers, by the rules of SQuAD v1.1.

Source: Rajpurkar et al. 2016, "SQuAD: 100,000+ Questions for Machine Comprehension of Text" (arXiv
1606.05250), section 6.1, and the rules of the v1.1 evaluation script that came with the data.
"""

import collections
import functools
import re
import string
from collections.abc import Sequence

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")


@functools.lru_cache(maxsize=2**17)
def normalize(text: str) -> str:
    """Text in lower case without ASCII punctuation and articles, words one blank apart."""
    without_punctuation = text.lower().translate(_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", without_punctuation).split())


def exact_match(answer: str, reference: str) -> float:
    """1.0 where the normalized texts are equal, else 0.0."""
    return float(normalize(answer) == normalize(reference))


def f1_score(answer: str, reference: str) -> float:
    """F1 of the normalized texts as bags of words; 0 where they share none, as two empty ones."""
    words, wanted = normalize(answer).split(), normalize(reference).split()
    shared = sum((collections.Counter(words) & collections.Counter(wanted)).values())
    if not shared:
        return 0.0
    precision, recall = shared / len(words), shared / len(wanted)
    return 2 * precision * recall / (precision + recall)


def scores(
    answers: Sequence[str | None], references: Sequence[Sequence[str]]
) -> tuple[float, float]:
    """Mean exact match and mean F1 over all questions, each from 0 to 1.

    A question counts its best reference; None is no answer and has 0.
    """
    if not answers or len(answers) != len(references):
        raise ValueError(f"{len(answers)} answers to {len(references)} questions")
    matches = f1 = 0.0
    for answer, wanted in zip(answers, references, strict=True):
        if answer is not None:
            matches += max(exact_match(answer, reference) for reference in wanted)
            f1 += max(f1_score(answer, reference) for reference in wanted)
    return matches / len(answers), f1 / len(answers)
