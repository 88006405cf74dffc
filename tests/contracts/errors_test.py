"""Errors of one line."""

import pytest

from dawnjax.errors import ConfigError, RunError
from dawnjax.input_pipeline.reading.dataset import DataError


@pytest.mark.parametrize("kind", [ConfigError, RunError, DataError])
def test_a_word_of_thousands_of_digits_is_cut_in_the_line_of_an_error(kind):
    assert str(kind("--seed=" + "9" * 5000 + ": too large")).endswith("9: too large")
    assert len(str(kind("--seed=" + "9" * 5000 + ": too large"))) < 250
    assert str(kind("a " + "b" * 299)) == "a " + "b" * 299
