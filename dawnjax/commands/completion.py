"""`dawnjax completion`: what completes commands, experiments and fields in bash."""

import importlib
import re
from collections.abc import Sequence

from absl import flags

from dawnjax.config import command_line
from dawnjax.errors import ConfigError, ExitStatus

_TAKES_EXPERIMENTS = ("train", "record", "study", "plan", "list")

_SCRIPT = r"""
_dawnjax_known() {
  # An answer imports JAX for an experiment's fields: it is kept while this shell lives.
  local key="_dawnjax_after_${1//[^A-Za-z0-9]/_}"
  if ! eval "[ \${$key+x} ]"; then
    eval "$key=\$(dawnjax completion --of=\"\$1\" 2>/dev/null)"
  fi
  eval "_dawnjax_words=\$$key"
}
_dawnjax() {
  local line="${COMP_LINE:0:COMP_POINT}" word asked=""
  word="${line##*[[:space:]]}"
  local -a before
  read -r -a before <<< "${line%"$word"}"
  case "${#before[@]}" in
    0) return ;;
    1) ;;
    *)
      asked="${before[1]}"
      local given
      for given in "${before[@]:2}"; do
        case "$given" in
          --experiment=*) asked="$asked ${given#--experiment=}" ;;
          -*) ;;
          *) [ "$asked" = "${before[1]}" ] && asked="$asked $given" ;;
        esac
      done ;;
  esac
  _dawnjax_known "$asked"
  local IFS=$'\n'
  COMPREPLY=($(compgen -W "$_dawnjax_words" -- "$word"))
  [ "${#COMPREPLY[@]}" = 1 ] && [ "${COMPREPLY[0]%=}" != "${COMPREPLY[0]}" ] && compopt -o nospace
  # The shell takes `=` for the end of a word, and completes what follows it.
  case "$word" in *=*) COMPREPLY=("${COMPREPLY[@]#"${word%"${word##*=}"}"}") ;; esac
}
complete -o default -F _dawnjax dawnjax
"""


def main(argv: list[str]) -> int:
    flag_values = flags.FlagValues()
    flags.DEFINE_string(
        "of", None, "Print the words that can follow these, one a line, instead of the script.",
        flag_values=flag_values,
    )  # fmt: skip
    shells = command_line.parse(
        "completion",
        flag_values,
        argv,
        "dawnjax completion bash",
        'Prints the script for bash. Put this line into ~/.bashrc:\n\n    eval "'
        '$(dawnjax completion bash)"',
    )
    asked = flag_values["of"].value
    if asked is None and shells != ["bash"]:
        raise ConfigError("name the shell, bash alone: dawnjax completion bash")
    print(_SCRIPT.strip() if asked is None else "\n".join(words_after(asked.split())))
    return ExitStatus.DONE


def words_after(given: Sequence[str]) -> list[str]:
    """Words that can follow a command and its experiment; none for a command that is none."""
    from dawnjax.__main__ import COMMANDS  # imported here because that module runs this one

    if not given:
        return [*COMMANDS, "--help", "--version"]
    command, *others = given
    if command not in COMMANDS:
        return []
    if command not in _TAKES_EXPERIMENTS:
        return flags_of(command, ())
    from dawnjax.config.experiment_modules import experiment_names

    names = experiment_names()
    # A file of the user's is not executed for a completion.
    experiment = [other for other in others if other in names][:1]
    words = flags_of(command, experiment)
    if not others:
        words = [*names, *(f"--experiment={name}" for name in names), *words]
    return words


def flags_of(command: str, arguments: Sequence[str]) -> list[str]:
    """Flags of a command as its `--help` lists them, each with `=` or with one of its values."""
    from dawnjax.__main__ import COMMANDS

    module = importlib.import_module(f"dawnjax.commands.{COMMANDS[command][0]}")
    try:
        module.main([*arguments, "--help"])
    except command_line.HelpRequested as help_requested:
        listed = re.findall(r"^  --(\S+)  <([^>]*)>", str(help_requested), re.MULTILINE)
    else:
        listed = []  # `launch` prints the help of what it starts
    words = []
    for name, kind in listed:
        values = kind.split("|") if "|" in kind else []
        is_switch = kind == "bool"
        words += [f"--{name}={value}" for value in values] or [f"--{name}" + "=" * (not is_switch)]
    return [*words, "--help"]
