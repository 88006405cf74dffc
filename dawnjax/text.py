"""Text from elsewhere, made safe: control characters shown, formulas disarmed, secrets left out.

And the one form of an interval's ends, for statistics and pages alike.
"""

import json
import re
import textwrap
import unicodedata
from collections.abc import Callable
from typing import Any

_NOT_PLAIN = re.compile(r"[^\n\t\x20-\x7e]")

_FORMULA_STARTS = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""Letters that a spreadsheet takes for the start of a formula, also in full-width forms."""

SECRET = "[secret left out]"

_TOKENS = re.compile(
    r"(?<![A-Za-z0-9])(?:hf_[A-Za-z0-9]{16,}"  # Hugging Face
    r"|(?:AKIA|ASIA)[A-Z0-9]{16}"  # AWS
    r"|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}"
    r"|sk-[\w-]{20,}|xox[abeoprs]-[\w-]{10,}"
    r"|AIza[\w-]{30,}|ya29\.[\w.-]{20,}"  # Google
    r"|eyJ[\w-]{8,4000}\.eyJ[\w-]{8,}(?:\.[\w-]*)?)"  # JSON Web Token
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----(?s:.*?-----END [A-Z ]*PRIVATE KEY-----|.*)"
)

_USER = re.compile(
    r"(?<=://)(?:[^\s/?#\"'<>]{0,256}|[^\s/:@\"'<>]{1,64}:(?!\d+[/?#])[^\s@\"'<>]{0,256})@"
)
"""The user in `https://user:password@host`."""

_WORDS = (
    r"(?:pass(?:word|wd|phrase)|pwd|secret|api[_-]?key|access[_-]?key(?:[_-]?id)?"
    r"|private[_-]?key|credentials?)"
)
_VALUE = r"(?!\[secret)(\"[^\"]*\"|'[^']*'|[\"']?[^\s\"']+)"
_NAMED = [
    re.compile(
        rf"(?i)(?<![A-Za-z0-9])([\w.-]{{0,64}}(?:{_WORDS}|token)(?:=|[\"']\s*:\s*)){_VALUE}"
    ),
    re.compile(rf"(?i)(?<!\S)(--?[\w.-]{{0,64}}(?:{_WORDS}|token)\s+)(?!-){_VALUE}"),
    re.compile(rf"(?i)(?<![A-Za-z0-9])({_WORDS}:\s+|bearer\s+(?=\S*\d)(?=\S{{8}})){_VALUE}"),
    re.compile(r"(?i)([?&][\w.-]{0,64}(?:key|sig|signature)=)(?!\[secret)([^\s&#\"']+)"),
]
_NAME = re.compile(rf"(?i)(?:{_WORDS}|(?<![A-Za-z0-9])token)$")
_NO_SECRET = re.compile(r"(?i)[\"']?(?:[+-]?[\d.]+(?:e[+-]?\d+)?|none|null|true|false)?[\"']?,?")


def escaped(text: str) -> str:
    r"""Show control characters, so that a text cannot steer a terminal or turn a line around.

    Line breaks, tabs and blanks stay. All else that is not printable becomes its escape in JSON:
    ESC is `\u001b`, the right-to-left override `\u202e`.
    """
    return _NOT_PLAIN.sub(_escaped_letter, text)


def _escaped_letter(match: re.Match[str]) -> str:
    letter = match[0]
    if letter.isprintable() or unicodedata.category(letter) == "Zs":
        return letter
    return json.dumps(letter)[1:-1]


_WHOLE = re.compile(r"(?<!`)\bdawnjax \w|\s--\w|\x1b")
"""A line that stays as it is: a command, to be copied, or colours, which have no width."""


def in_columns(text: str, columns: int) -> str:
    """Cut long lines between words, for a terminal; those of `_WHOLE` stay."""
    lines = []
    for line in text.split("\n"):
        if len(line) <= columns or _WHOLE.search(line):
            lines.append(line)
            continue
        indent = " " * (2 + len(line) - len(line.lstrip()))
        lines += textwrap.wrap(
            line,
            columns,
            subsequent_indent=indent,
            break_long_words=False,
            break_on_hyphens=False,
        )
    return "\n".join(lines)


def spreadsheet_cell(text: str) -> str:
    """Prefix with `'` a text that a spreadsheet would take for a formula, and escape the rest."""
    text = escaped(text)
    is_formula = text.startswith(("\t", "\n")) or text.lstrip().startswith(_FORMULA_STARTS)
    return "'" + text if is_formula else text


def without_secrets(value: Any, name: str = "") -> Any:
    """Leave passwords and access tokens out of what is written to a log or a result.

    A text under a name such as `api_key` is left out whole. Others lose tokens of known form, the
    user of an address and what follows `password=`. Tuples become lists; a second pass changes
    nothing.
    """
    if isinstance(value, str):
        if _NAME.search(name) and not _NO_SECRET.fullmatch(value):
            return SECRET
        value = _TOKENS.sub(SECRET, value)
        # Most texts hold no address: skip the longest search.
        if "://" in value:
            value = _USER.sub(f"{SECRET}@", value)
        for pattern in _NAMED:
            value = pattern.sub(_left_out, value)
        return value
    if isinstance(value, dict):
        return {key: without_secrets(item, str(key)) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_secrets(item, name) for item in value]
    return value


def _left_out(match: re.Match[str]) -> str:
    return match[0] if _NO_SECRET.fullmatch(match[2]) else match[1] + SECRET


def ends_text(
    low: float | None,
    high: float | None,
    ends: str | None,
    text: Callable[[float], str],
    known: str = "95 %",
) -> str:
    """Ends of an interval behind their kind, which is left out where it is `known`."""
    if low is None or high is None:
        return ""
    kind = f"{ends}: " if ends and ends != known else ""
    return f"{kind}{text(low)} to {text(high)}"
