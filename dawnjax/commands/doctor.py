"""`dawnjax doctor`: what is on this machine, does it work, and how fast."""

import dataclasses

from absl import flags

from dawnjax.commands.answer import Answer
from dawnjax.config import command_line
from dawnjax.doctor import Finding, findings
from dawnjax.errors import ConfigError, ExitStatus
from dawnjax.text import escaped

_USAGE = "dawnjax doctor"
_DESCRIPTION = """Tests everything that a run needs on a new machine, in five minutes at most: the
devices, a large matrix product and a large copy against the data sheet, a small sharded run on all
devices, its profile, a save and a restore. Each line is right, WRONG, or unknown if there is
nothing to compare with, as on a CPU. On several hosts, start it on all of them.

Exit status: 0, or 1 if a line is wrong."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """What each part showed."""

    parts: tuple[Finding, ...]


RESULT = Result


def main(argv: list[str]) -> Answer:
    flag_values = flags.FlagValues()
    if paths := command_line.parse("doctor", flag_values, argv, _USAGE, _DESCRIPTION):
        raise ConfigError(f"{paths[0]!r}: doctor takes no path")
    parts = []
    for found in findings():
        state = found.state.upper() if found.state == "wrong" else found.state
        print(escaped(f"{found.part:17} {state:8} {found.text}"), flush=True)
        parts.append(found)
    wrong = [f"{one.part}: {one.text}" for one in parts if one.state == "wrong"]
    return Answer(
        result=Result(parts=tuple(parts)),
        status=ExitStatus.FAILED if wrong else ExitStatus.DONE,
        reasons=wrong,
    )
