"""Printed plans, kept: the same command is answered again without JAX.

To import JAX and Flax takes longer than all that a plan computes from kept programs. An answer says
what made it, and is given again only where all of that is the same: the arguments, the code, the
versions, the settings, and the files of the data.
"""

import dataclasses
import functools
import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dawnjax import records
from dawnjax.errors import RunError
from dawnjax.plan import compiled

if TYPE_CHECKING:
    from dawnjax.config.experiment_flags import Request

MOST_FILES = 20_000
"""Of the data; a plan on a folder with more is made anew each time."""

_SETTINGS = ("JAX_", "XLA_", "LIBTPU_", "TPU_", "DAWNJAX_", "PYTHON", "CUDA_")
"""Beginnings of the variables of the environment that may change a plan."""

_NAMES_FILES = re.compile(r"--?(flagfile|epochs_from|calibrate|out)(=|$)")
"""Flags of files that are read or written."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Answer:
    made_of: dict[str, str]
    text: str


@dataclasses.dataclass(frozen=True)
class Question:
    """Arguments of `dawnjax plan`, and all else that its answer is made of."""

    made_of: dict[str, str]

    def answer(self) -> str:
        """What the same command printed before; empty if nothing is kept."""
        try:
            kept = records.read_json(self._file, _Answer, compiled.MOST_BYTES)
            if kept.made_of != self.made_of:
                reason = "it is another command's"
            elif not all(line.isprintable() for line in kept.text.split("\n")):
                reason = "a screen would obey it"
            else:
                return kept.text
        except (FileNotFoundError, RunError):  # RunError: no home directory
            return ""
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        print(f"{self._file} is damaged ({reason}): the plan is made again", file=sys.stderr)
        return ""

    def keep(self, text: str, request: "Request") -> None:
        """Keep the answer, unless the user's own code or files took part in it."""
        values = request.overrides.values()
        if request.experiment_file or any(isinstance(value, str) for value in values):
            return  # text may name a file or a class
        try:
            answer = {"made_of": self.made_of, "text": text}
            records.write_json(self._file, answer, indent=None)
        except RunError as error:
            print(f"the plan is not kept: {error}", file=sys.stderr)

    @functools.cached_property
    def _file(self) -> Path:
        name = f"{compiled.hash_of(self.made_of)[:32]}.json"
        return records.in_home(compiled.CACHE_DIR) / "answers" / name


def question(argv: Sequence[str]) -> Question | None:
    """The question that a command line asks; None where no answer is kept or given.

    A process that has loaded JAX may have changed our code, and gains little.
    """
    if "jax" in sys.modules or any(map(_NAMES_FILES.match, argv)):
        return None
    data = Path(os.environ.get("DAWNJAX_DATA") or "data").absolute()
    try:
        files = list(_files(data))
    except OSError:
        return None
    if len(files) > MOST_FILES:
        return None
    settings = {name: value for name, value in os.environ.items() if name.startswith(_SETTINGS)}
    return Question(
        {
            "arguments": json.dumps(list(argv)),
            "code": compiled.hash_of_sources(lambda path: True),
            "versions": json.dumps([sys.version, sys.prefix, compiled.versions()]),
            "settings": compiled.hash_of(settings),
            "data": compiled.hash_of([str(data), files]),
        }
    )


def _files(folder: Path, depth: int = 2) -> Iterator[tuple[str, int, int, int]]:
    """Path, size, time of change and inode of all that lies in a folder, two folders deep.

    A folder that is not there has none. A new file in a deeper folder changes that folder's time.
    """
    if not folder.is_dir():
        return
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        status = entry.stat()
        yield entry.path, status.st_size, status.st_mtime_ns, status.st_ino
        if depth > 1 and entry.is_dir():
            yield from _files(Path(entry.path), depth - 1)
