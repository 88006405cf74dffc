"""Errors of one line."""

import jax
import pytest

from dawnjax.__main__ import run_command
from dawnjax.commands import record
from dawnjax.errors import ConfigError, ExitStatus, RunError
from dawnjax.input_pipeline.reading.dataset import DataError


@pytest.mark.parametrize("kind", [ConfigError, RunError, DataError])
def test_a_word_of_thousands_of_digits_is_cut_in_the_line_of_an_error(kind):
    assert str(kind("--seed=" + "9" * 5000 + ": too large")).endswith("9: too large")
    assert len(str(kind("--seed=" + "9" * 5000 + ": too large"))) < 250
    assert str(kind("a " + "b" * 299)) == "a " + "b" * 299


@pytest.mark.parametrize(
    "message, flags, advice",
    [
        (
            "UNKNOWN: CUDNN_STATUS_EXECUTION_FAILED\nin cuda_dnn.cc",
            "--xla_a=1",
            "XLA_FLAGS=--xla_a=1",
        ),
        ("RESOURCE_EXHAUSTED: Out of memory", "--xla_a=1", "take a smaller batch"),
        ("INTERNAL: it fell off the bus", "", "fell off the bus"),
    ],
)
def test_a_device_that_fails_is_one_line(message, flags, advice, monkeypatch, capsys):
    def fail(_: list[str]) -> int:
        raise jax.errors.JaxRuntimeError(message)

    monkeypatch.setenv("XLA_FLAGS", flags)
    monkeypatch.setattr(record, "main", fail)
    assert run_command("record", []) == ExitStatus.FAILED
    line = capsys.readouterr().err
    assert line.startswith("dawnjax record: the device failed: ") and line.count("\n") == 1
    assert message.split()[1] in line and advice in line
