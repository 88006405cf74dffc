"""Flags, help and wrong use, the same for every command."""

import contextlib
import re
from collections.abc import Sequence

from absl import flags

from dawnjax.errors import ConfigError


class HelpRequested(Exception):
    """The user asked for help; the argument is its text, and nothing else is to be done."""


def parse(
    command: str,
    flag_values: flags.FlagValues,
    argv: list[str],
    usage: str,
    description: str,
    *,
    known_only: bool = False,
) -> list[str]:
    """Fill `flag_values` and return the positional arguments; HelpRequested for `--help`.

    With `known_only` other flags are returned too. `--json` shows in the help; `run_command` has
    taken it.
    """
    define_json(flag_values)
    options = argv[: argv.index("--")] if "--" in argv else argv
    if "--help" in options or "-h" in options:
        raise HelpRequested(_help_text(usage, description, flag_values))
    # absl's own message spans two lines and names a Python type; say it in one, in ours.
    try:
        return flag_values([command, *argv], known_only=known_only)[1:]
    except flags.UnrecognizedFlagError as error:
        near = closest(error.flagname, list(flag_values))
        hint = f"; did you mean --{near}?" if near else "; --help lists the flags"
        raise ConfigError(f"unknown flag --{error.flagname}{hint}") from None
    except flags.Error as error:
        text = " ".join(str(error).split())
        boolean = re.match(r"flag (--\S+): \('Non-boolean argument", text)
        raise ConfigError(f"{boolean[1]} must be true or false" if boolean else text) from None


def one(arguments: Sequence[str], what: str) -> str:
    """The positional argument of a command that takes exactly one."""
    if len(arguments) != 1:
        raise ConfigError(f"one {what} is needed; {len(arguments)} were given")
    return arguments[0]


def define_json(flag_values: flags.FlagValues) -> None:
    """Define the flag that every command has."""
    text = "Print one JSON object; everything else goes to standard error."
    flags.DEFINE_boolean("json", False, text, flag_values=flag_values)


def known(flag_values: flags.FlagValues, argv: Sequence[str]) -> list[str]:
    """Fill the flags that are defined so far, and return all other arguments in order.

    A value that a flag does not take is left for `parse` to refuse.
    """
    with contextlib.suppress(flags.Error):
        return flag_values(["", *argv], known_only=True)[1:]
    return list(argv)


def value_in(argv: Sequence[str], name: str) -> str | None:
    """The last value of a flag on a command line, before the other flags are known."""
    values = flags.FlagValues()
    flags.DEFINE_string(name, None, "", flag_values=values)
    known(values, argv)
    return values[name].value


def with_experiment_flag(argv: list[str]) -> list[str]:
    """Arguments, with a first one that is not a flag taken as the experiment: `train digits`."""
    has_flag = any(re.match(r"--?experiment(=|$)", argument) for argument in argv)
    if not argv or argv[0].startswith("-") or has_flag:
        return argv
    return [f"--experiment={argv[0]}", *argv[1:]]


def closest(name: str, candidates: list[str]) -> str | None:
    """The candidate most similar to `name`, or None if none is that similar."""
    import difflib  # imported here because a command that parses cleanly never needs it

    matches = difflib.get_close_matches(name, candidates, n=1)
    if matches:
        return matches[0]
    # `--learning_rate` for `--optimizer.base_learning_rate`: the last part alone may match.
    endings = {candidate.rsplit(".", 1)[-1]: candidate for candidate in candidates}
    matches = difflib.get_close_matches(name.rsplit(".", 1)[-1], list(endings), n=1)
    return endings[matches[0]] if matches else None


def _help_text(usage: str, description: str, flag_values: flags.FlagValues) -> str:
    lines = [f"usage: {usage}", "", description.strip(), ""]
    plain = sorted((name for name in flag_values if "." not in name), key=str)
    dotted = [name for name in flag_values if "." in name]
    lines.append("flags:")
    lines += [_flag_line(flag_values, name) for name in plain]
    for group in dict.fromkeys(name.split(".", 1)[0] for name in dotted):
        lines += ["", f"{group}:"]
        lines += [_flag_line(flag_values, name) for name in dotted if name.startswith(group + ".")]
    return "\n".join(lines)


def _flag_line(flag_values: flags.FlagValues, name: str) -> str:
    flag = flag_values[name]
    default = "" if flag.default is None else f" (default: {flag.default_as_str})"
    kind = flag.flag_type()
    if isinstance(flag, flags.EnumFlag):
        kind = "|".join(flag.parser.enum_values)
    text = " ".join(str(flag.help).split()).removeprefix(f"<{kind}>: ")
    return f"  --{name}  <{kind}>{default}\n      {text}"
