"""Large JSON objects, read member by member, as `json` reads them whole."""

import json
import math

import pytest

from dawnjax import records
from dawnjax.records import members

OBJECT = {
    "info": {"year": 2017, "of": [[1, 2], {"a": None}]},
    "images": [{"id": 1, "name": "é\n\U0001f600"}, {"id": -12.5e-3}],
    "none": [],
    "mixed": [1, 2.5e10, -3, "", "\\", True, None, [], {}, "x" * 100],
    "number": 12345.75,
    "last": "]}",
}


def read(text: str | bytes):
    found: dict = {}
    data = text.encode() if isinstance(text, str) else text
    for name, place, value in records.json_members(data):
        if place is None:
            found[name] = value
        else:
            found.setdefault(name, []).append(value)
            assert place == len(found[name]) - 1
    return found


@pytest.mark.parametrize("part_bytes", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize("indent", [None, 1])
def test_members_are_those_of_the_whole_text(part_bytes, indent, monkeypatch):
    monkeypatch.setattr(members, "PART_BYTES", part_bytes)
    for is_ascii in (True, False):
        assert read(json.dumps(OBJECT, indent=indent, ensure_ascii=is_ascii)) == OBJECT
    assert read(" {}\n") == {}
    assert math.isnan(read('{"a": [NaN, -Infinity]}')["a"][0])


@pytest.mark.parametrize("part_bytes", [1, 5, 1000])
@pytest.mark.parametrize(
    "text",
    [
        '{\n"a": [1,\n2,]}',
        '{"a": 1,}',
        '{"a"\n 1}',
        '{"a": [1\n 2]}',
        '{"a": "\n',
        '{"a": tru',
        '{"a": 1}\n{',
        '{\n"a": [{"b": \\}]}',
        "{\na: 1}",
        "{",
    ],
)
def test_a_fault_is_named_with_its_line(text, part_bytes, monkeypatch):
    monkeypatch.setattr(members, "PART_BYTES", part_bytes)
    with pytest.raises(json.JSONDecodeError) as wanted:
        json.loads(text)
    with pytest.raises(json.JSONDecodeError) as found:
        read(text)
    assert found.value.lineno == wanted.value.lineno


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("[1]", records.FieldError, r"it is \[1\]; it must be an object"),
        ('{"a": 1, "a": 2}', records.FieldError, "'a' is there twice"),
        ('{"a": ' + "[" * 100 + "]" * 100 + "}", records.BoundError, "more than 60 deep"),
        ('{"a": ' + "[" * 10**5, records.BoundError, "more than 60 deep"),
        ('{"a": [' + "1" * 5000 + "]}", records.BoundError, "whole number of 5,000 digits"),
        (b'{"a": "\xff"}', UnicodeDecodeError, "invalid start byte"),
        (b'{"a": 1}\xe2', UnicodeDecodeError, "unexpected end"),
    ],
)
def test_what_is_no_object_is_refused(text, kind, message):
    with pytest.raises(kind, match=message):
        read(text)
