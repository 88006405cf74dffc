"""Removal of host names, absolute paths and e-mail addresses from what a page shows."""

import dataclasses
import re
from collections.abc import Iterable
from typing import Any

_E_MAIL = re.compile(r"[\w.+%-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63})+")

# At least two names after a slash at the start of a word: `/home/ann/run`, but not `1/2` or `/s`.
# The name after `://` is an address and stays.
_PATH = re.compile(r"(?<![\w.:/)\]])(?:~|/[\w.@+~-]+)/[\w.@+~/-]+|\b[A-Za-z]:\\[^\s\"'<>|]+")

_HOST_WORD = re.compile(
    r"\b(?:[a-z0-9-]+\.)+(?:internal|local|lan|localdomain|intranet|corp)\b", re.IGNORECASE
)

LEFT_OUT_E_MAIL = "[e-mail left out]"
LEFT_OUT_PATH = "[path left out]"
LEFT_OUT_HOST = "[host left out]"


class Redactor:
    """Leaves out what names a machine or a person, in any nesting of plain values."""

    def __init__(self, host_names: Iterable[str] = (), *, keep: bool = False):
        """Makes a redactor.

        Args:
          host_names: Host names that the runs recorded, left out wherever they stand as a word.
          keep: Whether to leave everything as it is.
        """
        self._keep = keep
        names = sorted({name for name in host_names if len(name) > 1}, key=lambda n: (-len(n), n))
        pattern = "|".join(rf"(?<![\w-]){re.escape(name)}(?![\w-])" for name in names)
        self._hosts = re.compile(pattern) if names else None

    def text(self, text: str) -> str:
        """Removes e-mail addresses, absolute paths and host names from a text."""
        if self._keep:
            return text
        text = _E_MAIL.sub(LEFT_OUT_E_MAIL, text)
        text = _PATH.sub(LEFT_OUT_PATH, text)
        text = _HOST_WORD.sub(LEFT_OUT_HOST, text)
        return self._hosts.sub(LEFT_OUT_HOST, text) if self._hosts else text

    def value(self, value: Any) -> Any:
        """Redacts every text in dataclasses, dicts, tuples and lists."""
        if isinstance(value, str):
            return self.text(value)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = {
                field.name: self.value(getattr(value, field.name))
                for field in dataclasses.fields(value)
            }
            return dataclasses.replace(value, **fields)
        if isinstance(value, dict):
            return {key: self.value(part) for key, part in value.items()}
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*(self.value(part) for part in value))
        if isinstance(value, tuple | list):
            return type(value)(self.value(part) for part in value)
        return value
