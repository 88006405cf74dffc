"""Printed plans, kept: the same command is answered again without JAX.

To import JAX and Flax takes longer than all that a plan computes from kept programs. An answer says
what made it, and is given again only where all of that is the same: the arguments, the code, the
versions, the settings, and the files of the data. It is what the command prints on standard output.
"""

import dataclasses
import itertools
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

MOST_FILES = 5000
"""Of the data; a plan on a folder with more is made anew each time."""

_PACKAGES = (*compiled.PACKAGES, "numpy", "scipy", "scikit-learn")

_SETTINGS = ("JAX_", "XLA_", "LIBTPU_", "TPU_", "FLAX_", "DAWNJAX_", "PYTHON", "CUDA_")
"""Beginnings of the variables of the environment that may change a plan."""

_OTHER_FLAGS = re.compile(
    r"--?(flagfile|epochs_from|calibrate|out|validate|help|helpfull|helpshort)(=|$)"
)
"""Flags of files that are read or written, and of what plans nothing."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Answer:
    made_of: dict[str, str]
    text: str


@dataclasses.dataclass(frozen=True)
class Question:
    """All that the answer to a command line is made of, its arguments among it."""

    made_of: dict[str, str]

    def answer(self) -> str:
        """What the same command printed before; empty if nothing is kept."""
        try:
            kept = records.read_json(self._file(), _Answer, compiled.MOST_BYTES)
            if not all(line.isprintable() for line in kept.text.split("\n")):
                raise records.FieldError("a screen would obey it")
            return kept.text if kept.made_of == self.made_of else ""
        except (*compiled.NOT_THERE, RunError):  # RunError: no home directory
            return ""
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else error
            print(f"{self._file()} is damaged ({reason}): the plan is made again", file=sys.stderr)
            return ""

    def keep(self, text: str, request: "Request") -> None:
        """Keep the answer, unless the user's own code or files may have taken part in it."""
        values = request.overrides.values()
        if request.experiment_file or not all(isinstance(v, int | float | None) for v in values):
            return  # text may name a file or a class
        try:
            answer = {"made_of": self.made_of, "text": text}
            records.write_json(self._file(), answer, indent=None)
        except RunError as error:
            print(f"the plan is not kept: {error}", file=sys.stderr)

    def _file(self) -> Path:
        """File of these arguments: a new answer takes the place of the old one."""
        name = f"{compiled.hash_of(self.made_of['arguments'])[:32]}.json"
        return records.in_home(compiled.CACHE_DIR) / "answers" / name


def question(argv: Sequence[str]) -> Question | None:
    """The question that a command line asks; None where no answer is kept or given.

    A process that has loaded JAX may have changed our code, and gains little.
    """
    if "jax" in sys.modules or any(map(_OTHER_FLAGS.match, argv)):
        return None
    data = Path(os.environ.get("DAWNJAX_DATA") or "data").absolute()
    try:
        files = sorted(itertools.islice(_files(data), MOST_FILES + 1))
    except OSError:
        return None
    if len(files) > MOST_FILES:
        return None
    settings = {name: value for name, value in os.environ.items() if name.startswith(_SETTINGS)}
    return Question(
        {
            "arguments": json.dumps(list(argv)),
            "code": compiled.hash_of_sources(lambda path: True),
            "versions": json.dumps([sys.version, sys.prefix, compiled.versions(_PACKAGES)]),
            "settings": compiled.hash_of(settings),
            "data": compiled.hash_of([str(data), files]),
        }
    )


def _files(folder: Path) -> Iterator[tuple[str, int, int, int]]:
    """Path, size, time of change and inode of all that lies in a folder, if that is there."""
    folders = [folder] if folder.is_dir() else []
    seen = set[tuple[int, int]]()  # a link may lead back
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                status = entry.stat()
                yield entry.path, status.st_size, status.st_mtime_ns, status.st_ino
                place = status.st_dev, status.st_ino
                if entry.is_dir() and place not in seen:
                    seen.add(place)
                    folders.append(Path(entry.path))
