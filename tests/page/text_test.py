"""Text from elsewhere as shown and written: escapes, cells, secrets, names of machines."""

import csv
import dataclasses
import io
import json
import re
from pathlib import Path

import pytest
from made_reports import some_entries
from made_runs import write_run

from dawnjax.__main__ import run_command
from dawnjax.config.config_json import to_json
from dawnjax.config.experiment_flags import parse_request
from dawnjax.report import contents, inputs, writing
from dawnjax.runs.clock import RunClock
from dawnjax.runs.log import RunLog
from dawnjax.runs.privacy import Redactor
from dawnjax.text import escaped, in_columns, spreadsheet_cell, without_secrets

LEFT_OUT = json.loads(Path(__file__).with_name("left_out.json").read_text())
"""Texts with secrets and with names of machines and people, as they are written; null: as it is."""

SECRET = "[secret left out]"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2J\x1b]0;x\x07", r"\u001b[2J\u001b]0;x\u0007"),
        ("a\0b\x7f\x9b31m", r"a\u0000b\u007f\u009b31m"),
        ("abc\u202e4pm.\u2066x\u200f\u061c", r"abc\u202e4pm.\u2066x\u200f\u061c"),
        ("\ud800 \u2028 \ufeff \U000e0041", r"\ud800 \u2028 \ufeff \udb40\udc41"),
        ("two\nlines\tand a\u00a0µs, é, 中, \U0001f600", None),
        (r"C:\new and \u202e", None),
    ],
)
def test_control_characters_are_shown(text, shown):
    assert escaped(text) == (text if shown is None else shown)


def test_no_cell_is_a_formula():
    for start in ("", "\n", "\t", "\u3000 ", "\0", "\ufeff"):
        for sign in ("=", "+", "-", "@", "\uff1d", "\uff20"):
            cell = spreadsheet_cell(f"{start}{sign}HYPERLINK(1)")
            assert cell.startswith(("'", "\\")) and "HYPERLINK" in cell
        assert spreadsheet_cell(f"{start}7") == escaped(f"{start}7") or start in ("\n", "\t")


HUGGING_FACE = "hf_" + "aBcD1234" * 4


@pytest.mark.parametrize(
    ("text", "written"),
    [*LEFT_OUT["secrets"].items(), (f"--x={HUGGING_FACE} --y=1", f"--x={SECRET} --y=1")],
)
def test_secrets_are_not_written(text, written):
    assert without_secrets(text) == (text if written is None else written)
    assert without_secrets(without_secrets(text)) == without_secrets(text)


def test_a_text_under_a_secret_name_is_not_written():
    value = {"data.api_key": "x", "nested": {"Password": ["y", 3]}, "token": "7", "tokens": "z"}
    assert without_secrets(value) == {
        "data.api_key": SECRET,
        "nested": {"Password": [SECRET, 3]},
        "token": "7",
        "tokens": "z",
    }
    assert without_secrets({"bleu_signature": "nrefs:1|case:mixed"})["bleu_signature"][0] == "n"


@pytest.mark.parametrize(("text", "shown"), LEFT_OUT["names"].items())
def test_names_of_machines_and_people_are_left_out(text, shown):
    redactor = Redactor(["node17.example.org", "localhost"])
    assert redactor.text(text) == (text if shown is None else shown)
    assert redactor.text(redactor.text(text)) == redactor.text(text)
    kept = Redactor(["node17"], keep=True).text(text)
    assert kept == without_secrets(text)


STEERING = "\x1b[2J\0\u202e\x9b\u2066"
HOSTILE = f"{STEERING}<img src=x onerror=y>\"'"


def test_nothing_that_is_shown_steers_its_reader(tmp_path, capsys):
    entries = [
        dataclasses.replace(
            entry,
            submitter=HOSTILE,
            system=HOSTILE,
            model=f"\n=1+{STEERING}",
            hardware=HOSTILE,
            warnings=(HOSTILE,),
            reasons={"cost_per_hour_usd": HOSTILE},
            benchmark=HOSTILE,
            target=dataclasses.replace(entry.target, metric=HOSTILE),
        )
        for entry in some_entries()
    ]
    report = contents.make(inputs.Inputs(tuple(entries), problems=(STEERING,)), title=STEERING)
    files = writing.write(report, tmp_path / "out")
    assert "<img" not in report.html and "onerror=y&gt;" in report.html
    run = write_run(tmp_path / f"run{STEERING[-1]}")
    (run / "log.jsonl").write_text(STEERING)
    assert run_command("check", [str(run)]) == 1
    assert run_command("report", [f"{STEERING[:4]}.jsonl", f"--out={tmp_path / 'o'}"]) == 2
    printed = capsys.readouterr()
    shown = [file.read_bytes().decode() for file in files] + [printed.out, printed.err]
    for text in shown:
        assert not re.search("[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", text)
    assert all(re.search(r"\\u(001b|2066)", text) for text in shown[-3:])
    texts = [file.read_bytes().decode() for file in files if file.suffix == ".csv"]
    cells = [
        cell for text in texts for row in csv.reader(io.StringIO(text, newline="")) for cell in row
    ]
    assert any("=1+" in cell for cell in cells)
    assert not [cell for cell in cells if cell.lstrip().startswith("=")]


def test_secrets_of_flags_are_in_no_log_and_no_record(tmp_path):
    secrets = (HUGGING_FACE, "hunter2", "t0psecret")
    request, _ = parse_request(
        "train",
        [
            "--experiment=cifar10_record",
            f"--data.data_dir=https://ann:{secrets[1]}@example.org/{HUGGING_FACE}",
            f"--xla_options=xla_a={HUGGING_FACE}",
            f"--run_dir=runs/token={secrets[2]}",
        ],
    )
    log = RunLog(tmp_path / "log.jsonl", RunClock())
    log.append("warning", message=f"resume with: train --password {secrets[1]} {HUGGING_FACE}")
    log.append("warning", message="a", data={"api_key": secrets[2], "loss": float("nan")})
    log.close()
    written = (tmp_path / "log.jsonl").read_text() + json.dumps(
        [request.overrides, to_json(request.experiment), to_json(request.options)]
    )
    assert not [secret for secret in secrets if secret in written]
    assert written.count(SECRET) >= 8 and '"NaN"' in written
    assert HUGGING_FACE in request.experiment.xla_options[0]  # the run itself has them


def test_a_terminal_cuts_sentences_between_words_and_no_command():
    rows = "system  step\nv5e:8   1 ms"
    long = "  caution: the sides were not trained alike, as their machines say"
    command = "next: dawnjax compare studies/first studies/second --margin=0.05"
    assert in_columns("\n".join([rows, long, command]), 40) == "\n".join(
        [
            rows,
            "  caution: the sides were not trained",
            "    alike, as their machines say",
            command,
        ]
    )
