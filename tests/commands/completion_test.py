"""Completion in a shell: the words, and the script as bash runs it."""

import shutil
import subprocess

import pytest

from dawnjax.__main__ import COMMANDS, main
from dawnjax.commands.completion import words_after

FAKE = """
dawnjax() {
  echo "$2" >> asked
  case "$2" in
    --of=) printf 'train\\ntrial\\nlist\\n' ;;
    --of=train) printf 'digits\\ndigits_big\\n--seed=\\n--help\\n' ;;
    "--of=train digits") printf -- '--data=digits\\n--data=cifar10\\n--seed=\\n' ;;
  esac
}
complete_line() {
  COMP_LINE="$1" COMP_POINT="${#1}" COMPREPLY=()
  _dawnjax
  echo "${COMPREPLY[*]}"
}
compopt() { :; }
"""
"""Words that a test knows, in place of those of the program."""


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_offers_its_flags(command):
    words = words_after([command])
    assert words[-1] == "--help"
    assert not [word for word in words if " " in word]


def test_words_are_those_of_the_place(capsys):
    assert words_after([])[:2] == ["train", "record"]
    assert "digits" in words_after(["train"]) and "--experiment=digits" in words_after(["train"])
    of_digits = words_after(["train", "digits"])
    assert "--data=digits" in of_digits and "--optimizer.base_learning_rate=" in of_digits
    assert "digits" not in of_digits
    assert words_after(["nothing"]) == []


def test_a_file_of_the_users_is_not_executed(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    assert "--seed=" in words_after(["train", str(file)])
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("dawnjax tr", "train trial"),
        ("dawnjax li", "list"),
        ("dawnjax train dig", "digits digits_big"),
        ("dawnjax train --se", "--seed="),
        ("dawnjax train digits --da", "--data=digits --data=cifar10"),
        ("dawnjax train --experiment=digits --data=c", "cifar10"),
        ("dawnjax train --seed=2 digits --data=", "digits cifar10"),
    ],
)
def test_the_script_completes_a_line(line, offered, tmp_path, capsys):
    assert main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    body = f'{script}\n{FAKE}\ncomplete_line "{line}"\ncomplete_line "{line}"\n'
    bash = shutil.which("bash")
    assert bash is not None
    done = subprocess.run([bash, "-c", body], capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout == f"{offered}\n{offered}\n" and done.stderr == ""
    assert (tmp_path / "asked").read_text().count("\n") == 1  # the second time from memory


@pytest.mark.parametrize("shell", ["fish", "zsh"])
def test_another_shell_than_bash_is_refused(shell, capsys):
    assert main(["completion", shell]) == 2
    assert "bash alone" in capsys.readouterr().err
