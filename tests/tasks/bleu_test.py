"""BLEU against values worked out by hand, and its signature."""

import math

import pytest

pytest.importorskip("sacrebleu", reason="needs sacreBLEU (pip install -e '.[text]')")
from dawnjax.tasks.bleu import Scoring, corpus_bleu


def test_a_value_by_hand():
    # Tokens: the cat sat on the mat . (7 and 6). Matches: 1-grams 6 of 6, 2-grams 4 of 5 ("sat the"
    # is not there), 3-grams 2 of 4, 4-grams 1 of 3; brevity exp(1 - 7 / 6).
    hypothesis, reference = "the cat sat the mat .", "the cat sat on the mat ."
    precision = (6 / 6) * (4 / 5) * (2 / 4)
    # 4-grams: "the cat sat the", "cat sat the mat", "sat the mat .": none matches, and the first
    # count of zero is smoothed to 1 / 2 of a match.
    precision *= (1 / 2) / 3
    expected = 100 * math.exp(1 - 7 / 6) * precision**0.25
    score, _ = corpus_bleu([hypothesis], [reference])
    assert score == pytest.approx(expected, abs=1e-6)


def test_it_is_cased_tokenized_and_of_the_whole_corpus():
    assert corpus_bleu(["Ein Hund läuft."] * 2, ["Ein Hund läuft."] * 2)[0] == pytest.approx(100)
    # The full stop is a token of its own: 3 of 4 words match as in "ein" against "Ein".
    lower, _ = corpus_bleu(["ein Hund läuft ."], ["Ein Hund läuft."])
    assert 0 < lower < 100
    # Counts are summed before they are divided: not the mean of sentences.
    pairs = [("a b c d e", "a b c d e"), ("x y z w v", "p q r s t")]
    both, _ = corpus_bleu([pair[0] for pair in pairs], [pair[1] for pair in pairs])
    # 5 of 10, 4 of 8, 3 of 6, 2 of 4.
    assert both == pytest.approx(50)


def test_case_and_tokenizer_are_chosen_and_stated():
    pair = (["ein Hund läuft gern—oft"], ["Ein Hund läuft gern — oft"])
    uncased = Scoring(is_cased=False, tokenizer="intl")  # 13a does not split at a dash
    score, signature = corpus_bleu(*pair, uncased)
    assert score == pytest.approx(100)
    assert "case:lc" in signature and "tok:intl" in signature
    assert corpus_bleu(*pair, Scoring(is_cased=False))[0] < 99
    assert corpus_bleu(*pair, Scoring(tokenizer="intl"))[0] < 99


def test_nothing_written_scores_nothing():
    assert corpus_bleu(["", ""], ["a b c d", "e f g h"])[0] == 0.0
