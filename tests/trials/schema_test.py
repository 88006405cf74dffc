"""The schema of `result.json` is a committed file: a change of its fields shows in a review."""

import json
from pathlib import Path

import pytest
from made_logs import interrupted_run, one_attempt

from dawnjax.trials.from_log import trial_of
from dawnjax.trials.trial import schema

FILE = Path(__file__).parents[2] / "docs" / "schemas" / "result.json"


def test_the_schema_is_the_committed_file():
    text = json.dumps(schema(), indent=1) + "\n"
    assert FILE.read_text() == text, (
        f"the fields of result.json changed: raise SCHEMA_VERSION in dawnjax/trials/trial.py where "
        f"a reader must know, and write schema() to {FILE}"
    )


def test_a_result_has_the_fields_of_the_schema_and_no_others():
    jsonschema = pytest.importorskip("jsonschema")
    for log in (one_attempt(36.0), interrupted_run()):
        result = json.loads(json.dumps(trial_of(log.events).to_json()))
        jsonschema.validate(result, schema())
        assert result.keys() == schema()["$defs"]["Trial"]["properties"].keys()
