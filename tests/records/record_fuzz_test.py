"""Each record that is read, with edits: a sound value, or one line that names the file."""

import importlib.util

import fuzzed_records
import pytest
from fuzzed import Edits, fuzz_record

NEEDED = {
    "safetensors": ("weights",),
    "tokenizers": ("tokenizer",),
    "sentencepiece": ("vocabulary",),
    "hotcoco": ("annotations",),
}
"""Extras, and the records that are not read without them."""

ABSENT = {
    name
    for extra, names in NEEDED.items()
    if importlib.util.find_spec(extra) is None
    for name in names
}
RECORDS = {name: it for name, it in fuzzed_records.RECORDS.items() if name not in ABSENT}
KEPT: dict[str, list[Edits]] = {
    "study": [[("value", 0.5071517274869819, "controls")]],
    "entries": [
        [("replaced", b'"reached": true', b'"reached": false')],
        [("value", 0.5188661005465749, "controls")],
    ],
    "experiment": [
        [("replaced", b'"num_classes": 10', b'"num_classes": []')],
        [("replaced", b'"num_classes": 10', b'"num_classes": 1')],
        [("replaced", b'"image_channels": 1', b'"image_channels": 2147483648')],
    ],
    "measurement": [
        [("replaced", b'"mean": 0.002', b'"mean": -0.002')],
        [("replaced", b'"mean": 0.002', b'"mean": 1e308')],
    ],
    "program": [
        [("replaced", b"HloModule", b"Module")],
        [("replaced", b"ENTRY ", b"")],
        [("replaced", b"%x = f32", b"%x = " + b"a" * 100_000)],
        [("replaced", b"%x = f32", b"%x = " + b"f[" * 50_000)],
        [("replaced", b'"2","4","8","8"', b'"2","4","99999999999","8"')],
        [("replaced", b"[1,2]<=[2]", b"[99999999,99999999]<=[9999999800000001]")],
        [("replaced", b"constant(4)", b"copy(%four)")],
        [("replaced", b"lhs_contracting_dims={1}", b"lhs_contracting_dims={9}")],
        [("replaced", b"body=%body", b"body=%main")],
        [("replaced", b"f32[8,32]{1,0}", b"f32[%b]{1,0}" % (b"9" * 400))],
    ],
    "table of ops": [[("replaced", b"0.25", b"1e308"), ("replaced", b"1e-3", b"1e308")]],
    "peaks": [[("replaced", b"1000000000000.0", b"0.0")]],
    "prices": [[("replaced", b",8,400", b",%b,400" % (b"9" * 400))]],
    "annotations": [
        [("replaced", b"001.png", b"0\\n1.png"), ("replaced", b'"height": 20', b'"height": 0')],
    ],
    "game": [[("replaced", b"SZ[9]", b"SZ[1\n9]")]],
}
"""Edits that a reader failed on once, by record."""


@pytest.mark.parametrize("count", [1, pytest.param(3000, marks=pytest.mark.long)])
def test_an_edited_record_is_sound_or_refused_in_a_line(count, tmp_path, campaign):
    fuzz = campaign(
        "records",
        f"honest records with edits of bytes, values and structure, {len(RECORDS)} readers",
        "a result with finite numbers, or one line that names the file, within 10 s",
    )
    for name, record in RECORDS.items():
        fuzz_record(fuzz, count, name, record, tmp_path / name, KEPT.get(name, ()))
    fuzz.finish()
