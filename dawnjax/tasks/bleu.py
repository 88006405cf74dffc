"""BLEU as everybody can compare it: sacreBLEU on detokenized text, with its signature."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal

from dawnjax.errors import ConfigError, install


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scoring:
    """Case and tokenizer of BLEU. Scores of different scorings do not compare.

    Attributes:
      is_cased: Whether `Hund` and `hund` are two words.
      tokenizer: sacreBLEU's tokenizer. `intl` splits at all Unicode punctuation and symbols.
    """

    is_cased: bool = True
    tokenizer: Literal["13a", "intl"] = "13a"


CUSTOMARY = Scoring()


def corpus_bleu(
    hypotheses: Sequence[str], references: Sequence[str], scoring: Scoring = CUSTOMARY
) -> tuple[float, str]:
    """BLEU, from 0 to 100, with exponential smoothing, and the signature that says how.

    Source: Post 2018, "A Call for Clarity in Reporting BLEU Scores" (arXiv 1804.08771). The
    defaults are sacreBLEU's own.
    """
    metrics = require_sacrebleu().metrics
    metric = metrics.BLEU(lowercase=not scoring.is_cased, tokenize=scoring.tokenizer)
    score = metric.corpus_score(list(hypotheses), [list(references)])
    return float(score.score), str(metric.get_signature())


def require_sacrebleu() -> Any:
    """Load sacreBLEU; a run calls it early, so that one without it ends before it has trained."""
    try:
        import sacrebleu
    except ImportError:
        raise ConfigError(f"BLEU needs sacreBLEU: {install('text')}") from None
    return sacrebleu
