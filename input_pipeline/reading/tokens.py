"""Tokens of a text: a number with its separators, a run of letters, an English ending after an
apostrophe, or one other sign. So most tokens are words that published vectors know.
"""

import re

_TOKEN = re.compile(
    r"\d+(?:[.,]\d+)*"  # 1,000.5
    r"|[^\W\d_]+?(?=n['\u2019]t\b)|n['\u2019]t\b"  # do n't
    r"|['\u2019](?:s|re|ve|ll|d|m)\b"  # 's
    r"|[^\W\d_]+"  # letters
    r"|\S",
    re.IGNORECASE,
)


def spans_of(text: str) -> list[tuple[int, int]]:
    """First character and the one after the last of each token, white space left out."""
    return [match.span() for match in _TOKEN.finditer(text)]


def covering(spans: list[tuple[int, int]], start: int, end: int) -> tuple[int, int] | None:
    """First and last of the spans with characters `start` to `end` - 1; None for white space."""
    inside = [n for n, (first, after) in enumerate(spans) if after > start and first < end]
    return (inside[0], inside[-1]) if inside else None
