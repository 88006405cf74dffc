"""`dawnjax doctor`: what is on this machine, does it work, and how fast."""

from absl import flags

from dawnjax import records
from dawnjax.config import command_line
from dawnjax.doctor import findings
from dawnjax.errors import ConfigError, ExitStatus
from dawnjax.text import escaped

_USAGE = "dawnjax doctor [--json]"
_DESCRIPTION = """Tries what a run needs on a new machine, in five minutes at most: the devices, a
large matrix product and a large copy beside the data sheet, a small sharded run on all devices, its
profile, a save and a restore. Each line is right, WRONG, or unknown where there is nothing to
compare with, as on a CPU. On several hosts, start it on all of them.

Exit status: 0, or 1 if a line is wrong."""


def main(argv: list[str]) -> int:
    flag_values = flags.FlagValues()
    flags.DEFINE_boolean("json", False, "Print JSON, one object a line.", flag_values=flag_values)
    if paths := command_line.parse("doctor", flag_values, argv, _USAGE, _DESCRIPTION):
        raise ConfigError(f"{paths[0]!r}: doctor takes no path")
    status = ExitStatus.DONE
    for found in findings():
        if flag_values["json"].value:
            print(records.json_text(records.plain(found)), flush=True)
        else:
            state = found.state.upper() if found.state == "wrong" else found.state
            print(escaped(f"{found.part:17} {state:8} {found.text}"), flush=True)
        if found.state == "wrong":
            status = ExitStatus.FAILED
    return status
