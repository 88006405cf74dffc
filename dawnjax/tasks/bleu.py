"""BLEU as everybody can compare it: sacreBLEU on detokenized, cased text, with its signature."""

from collections.abc import Sequence
from typing import Any

from dawnjax.errors import ConfigError


def corpus_bleu(hypotheses: Sequence[str], references: Sequence[str]) -> tuple[float, str]:
    """Computes BLEU, from 0 to 100, and the signature that says how.

    Args:
      hypotheses: Detokenized translations.
      references: One reference for each.

    Raises:
      ConfigError: sacreBLEU is not installed.

    Source: Post 2018, "A Call for Clarity in Reporting BLEU Scores" (arXiv 1804.08771). The
    settings are its own defaults: tokenizer 13a, cased, exponential smoothing.
    """
    metric = _sacrebleu().metrics.BLEU()
    score = metric.corpus_score(list(hypotheses), [list(references)])
    return float(score.score), str(metric.get_signature())


def require_sacrebleu() -> None:
    """Loads sacreBLEU, so that a run without it ends before it has trained.

    Raises:
      ConfigError: It is not installed.
    """
    _sacrebleu()


def _sacrebleu() -> Any:
    try:
        import sacrebleu
    except ImportError:
        raise ConfigError("BLEU needs sacreBLEU: pip install 'dawnjax[text]'") from None
    return sacrebleu
