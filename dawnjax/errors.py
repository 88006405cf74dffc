"""Exit statuses of commands, and the errors that are one line for the user."""

import enum
import re


class ExitStatus(enum.IntEnum):
    """The exit status of every command.

    Attributes:
      DONE: The target was reached, or what was asked for is done.
      FAILED: Failed; one line says why.
      WRONG_USE: Wrong use, or a path or data that are not there; nothing was started.
      BUDGET_SPENT: The budget is spent, the target not reached.
      DIVERGED: The loss was not finite.
      INTERRUPTED: Interrupted; the same command resumes.
      SLOWER: Of `compare --fail_if_slower_by` and `race verify`: slower; of `--fail_if_worse_by`:
        worse.
      UNDECIDED: Of the gates of `compare`: undecided, more trials are needed. Of `race verify`: a
        tie, or not judged here.
    """

    DONE = 0
    FAILED = 1
    WRONG_USE = 2
    BUDGET_SPENT = 3
    DIVERGED = 4
    INTERRUPTED = 5
    SLOWER = 6
    UNDECIDED = 7


class OneLineError(Exception):
    """An error for the user, in one line.

    What it repeats may be a stranger's: thousands of digits, or a name with line breaks.
    """

    def __str__(self) -> str:
        text = super().__str__()
        if len(text) > 4 * LONGEST_LINE:
            text = f"{text[: 2 * LONGEST_LINE]}...{text[-2 * LONGEST_LINE :]}"
        text = _LONG_WORD.sub(lambda word: f"{word[0][:150]}...{word[0][-50:]}", text)
        text = _LINE_BREAK.sub(" ", text)
        if len(text) > LONGEST_LINE:
            text = f"{text[: LONGEST_LINE - 500]} ... {text[-490:]}"
        return text


LONGEST_LINE = 2000
_LONG_WORD = re.compile(r"\S{300,}")
_LINE_BREAK = re.compile(r"[ \t]*[\r\n]\s*")


class ConfigError(OneLineError):
    """A wrong flag, field or combination; found before anything is compiled or written."""


class RunError(OneLineError):
    """A run that cannot continue, for an outside reason; files written so far stay valid."""


class CheckpointError(RunError):
    """Checkpoints that cannot be used."""


GUIDE = "docs/extending.md shows how"
"""End of a line about a class of a user's own file."""


def install(extras: str) -> str:
    """The command that adds extras, given with commas, to the DawnJAX that is installed.

    pip takes a clone's editable install for `dawnjax` too, so one form serves every user.
    """
    return f'pip install "dawnjax[{extras}]"'
