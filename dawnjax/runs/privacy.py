"""Removal of names of machines and people, paths, addresses and secrets from what a page shows."""

import dataclasses
import ipaddress
import re
from collections.abc import Iterable
from typing import Any

from dawnjax.text import without_secrets

_E_MAIL = re.compile(r"[\w.+%-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63})+")

_IN_PATH = r"[\w.@+~/=%#$!&-]"
_IN_WINDOWS = r"(?:[^\s\"'<>|]|[ ](?=[^\s\"'<>|]*\\))"  # a blank, if a backslash follows its word

# A path has at least two names after a slash at the start of a word: `/home/ann`, but not `1/2` or
# `/s`. The name after `://` is that of a public address and stays, unless it is a file's.
_PATH = re.compile(
    r"(?i:file:/+)[^\s\"'<>|]*"
    rf"|(?<![\w.:/)\]])//[\w.-]+/{_IN_PATH}+"  # //server/share
    rf"|(?<![\w./)\]])(?:~(?:[A-Za-z_][\w-]*)?|/[\w.@+~-]+)/{_IN_PATH}+"
    rf"|(?<![/])/(?:home|Users)/{_IN_PATH}+"  # also behind a word, as in `-I/home/ann`
    rf"|\b[A-Za-z]:(?:\\|/(?!/)){_IN_WINDOWS}+"
    rf"|(?<![\w\\])\\\\(?:\\\\)?[A-Za-z0-9?.]{_IN_WINDOWS}*"  # \\server\share
)

_HOST_WORD = re.compile(
    r"\b(?:[a-z0-9-]{1,63}\.){1,9}(?:internal|local|lan|localdomain|intranet|corp)\b"
    r"|\bip-\d+-\d+-\d+-\d+\b",
    re.IGNORECASE,
)

_BYTE = r"(?:25[0-5]|2[0-4]\d|1?\d?\d)"
_IPV4 = re.compile(rf"(?<![\w.])(?!0\.){_BYTE}(?:\.{_BYTE}){{3}}(?!\.?\w)")
_VERSION = re.compile(
    r"(?i)(?:[<=>~]=|\b(?:v|ver|version|release|driver|firmware|kernel|cu(?:da|dnn|blas|fft|rand)"
    r"|nccl|tensorrt|libtpu|rocm|mkl|dali|ofed|nvidia)[\w-]*[\s:=/_\"'-]{1,5}|\bv"
    r"|(?<![\d.])\d+\.\d+-)$"
)
"""Text before a number such as `cuDNN 8.0.1.13`, which is no address."""

_COLONS = re.compile(r"(?<![\w:.])[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){2,7}(?:%\w+)?(?![\w:])")
"""Candidates for IPv6 and MAC addresses; `12:30:45` is one too."""

LEFT_OUT_E_MAIL = "[e-mail left out]"
LEFT_OUT_PATH = "[path left out]"
LEFT_OUT_HOST = "[host left out]"

_USER = re.compile(rf"[\w.+-]{{1,64}}@{re.escape(LEFT_OUT_HOST)}")


class Redactor:
    """Removes what names a machine or a person, in any nesting of plain values."""

    def __init__(self, host_names: Iterable[str] = (), *, keep: bool = False):
        """Args:
        host_names: Hosts of the runs, removed as words in any case, with or without their domain.
        keep: Remove secrets alone.
        """
        self._keep = keep
        names = {name for name in host_names if len(name) > 1 and name != "localhost"}
        # `node17.example.org` is also known as `node17`; the first number of an address is not a
        # name.
        firsts = (name.partition(".")[0] for name in names)
        names |= {name for name in firsts if len(name) > 1 and not name.isdigit()}
        ordered = sorted(names, key=lambda name: (-len(name), name))
        pattern = "|".join(map(re.escape, ordered))
        self._hosts = (
            re.compile(rf"(?<![^\W_])(?:{pattern})(?:\.[a-z][\w-]*)*(?![^\W_])", re.IGNORECASE)
            if names
            else None
        )

    def text(self, text: str) -> str:
        """Remove secrets, e-mail addresses, absolute paths, addresses and names of hosts."""
        text = without_secrets(text)
        if self._keep:
            return text
        text = _E_MAIL.sub(LEFT_OUT_E_MAIL, text)
        text = _PATH.sub(LEFT_OUT_PATH, text)
        text = _HOST_WORD.sub(LEFT_OUT_HOST, text)
        text = _IPV4.sub(_ipv4_left_out, text)
        text = _COLONS.sub(_colons_left_out, text)
        text = self._hosts.sub(LEFT_OUT_HOST, text) if self._hosts else text
        return _USER.sub(LEFT_OUT_HOST, text)

    def value(self, value: Any) -> Any:
        """Redact every text in dataclasses, dicts, tuples and lists."""
        if isinstance(value, str):
            return self.text(value)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = {
                field.name: self.value(getattr(value, field.name))
                for field in dataclasses.fields(value)
            }
            return dataclasses.replace(value, **fields)
        if isinstance(value, dict):
            return {self.value(key): self.value(part) for key, part in value.items()}
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*(self.value(part) for part in value))
        if isinstance(value, tuple | list):
            return type(value)(self.value(part) for part in value)
        return value


def _ipv4_left_out(match: re.Match[str]) -> str:
    before = match.string[max(0, match.start() - 40) : match.start()]
    return match[0] if _VERSION.search(before) else LEFT_OUT_HOST


def _colons_left_out(match: re.Match[str]) -> str:
    text = match[0].partition("%")[0]
    groups = [group for group in text.split(":") if group]
    is_mac = len(groups) == 6 and all(len(group) == 2 for group in groups) and "::" not in text
    if not is_mac:
        try:
            ipaddress.IPv6Address(text)
        except ValueError:
            return match[0]
        if len(groups) < 2 or not any(letter.isdigit() for letter in text):
            return match[0]
    return LEFT_OUT_HOST
