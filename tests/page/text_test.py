"""Text from elsewhere as shown and written: escapes, cells, secrets, names of machines."""

import csv
import dataclasses
import io
import json
import re
import time

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

SECRET, PATH, HOST = "[secret left out]", "[path left out]", "[host left out]"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2J\x1b]0;x\x07", r"\u001b[2J\u001b]0;x\u0007"),
        ("a\0b\x7f\x9b31m", r"a\u0000b\u007f\u009b31m"),
        ("abc\u202e4pm.\u2066x\u200f\u061c", r"abc\u202e4pm.\u2066x\u200f\u061c"),
        ("over\rwritten\b", r"over\rwritten\b"),
        ("\ud800 \u2028 \ufeff \U000e0041", r"\ud800 \u2028 \ufeff \udb40\udc41"),
        ("two\nlines\tand a\u00a0µs, é, 中, \U0001f600", None),
        (r"C:\new and \u202e", None),
    ],
)
def test_control_characters_are_shown(text, shown):
    assert escaped(text) == (text if shown is None else shown)


@pytest.mark.parametrize(
    "start",
    ["", "\n", "\r", "\r\n", " ", "\t", "\u00a0", "\u3000 ", "\0", "\x1b", "\ufeff", "\x0b"],
)
@pytest.mark.parametrize("sign", ["=", "+", "-", "@", "\uff1d", "\uff20"])
def test_no_cell_is_a_formula(start, sign):
    cell = spreadsheet_cell(f"{start}{sign}HYPERLINK(1)")
    assert cell.startswith(("'", "\\")) and "HYPERLINK" in cell
    assert spreadsheet_cell(f"{start}7") == escaped(f"{start}7") or start in ("\n", "\t")


HUGGING_FACE = "hf_" + "aBcD1234" * 4


@pytest.mark.parametrize(
    ("text", "written"),
    [
        (f"dawnjax train --x={HUGGING_FACE} --seed=1", f"dawnjax train --x={SECRET} --seed=1"),
        ("AKIAIOSFODNN7EXAMPLE", SECRET),
        ("key ghp_" + "a1" * 18 + "!", f"key {SECRET}!"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abc-_", SECRET),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----.", f"{SECRET}."),
        ("https://user:pw@example.org/a", f"https://{SECRET}@example.org/a"),
        ("https://u:p/w@example.org:80/a", f"https://{SECRET}@example.org:80/a"),
        ("s3://key@bucket/x", f"s3://{SECRET}@bucket/x"),
        ("https://host:80/a@b and gs://bucket/a", None),
        ("https://a/b?token=abc&x=1 end", f"https://a/b?token={SECRET} end"),
        ("https://a/b?X-Goog-Signature=ff00&x=1", f"https://a/b?X-Goog-Signature={SECRET}&x=1"),
        ("--data.hub_token=abc", f"--data.hub_token={SECRET}"),
        ("--password hunter2 --seed 1", f"--password {SECRET} --seed 1"),
        ("PGPASSWORD='a b' x", f"PGPASSWORD={SECRET} x"),
        ('{"api_key": "q w", "n": 1}', f'{{"api_key": {SECRET}, "n": 1}}'),
        ("Authorization: Bearer abcdef123456", f"Authorization: Bearer {SECRET}"),
        ("password: hunter2", f"password: {SECRET}"),
        ('secret="unclosed', f"secret={SECRET}"),
        # What is not a secret.
        ("token=5 end_token=2, max_tokens=512 token=None", None),
        ("4,096 target tokens a step, the token: x, nats a target token", None),
        ("hf_transformer sk-learn a bearer of something", None),
        ("loss=0.5 model=resnet key=3 at 12:30:45", None),
    ],
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


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("ann@example.org ran /home/ann/a on node17", f"[e-mail left out] ran {PATH} on {HOST}"),
        ("x:/home/ann", PATH),
        ("log:/data/ann/log, next", f"log:{PATH}, next"),
        ("file:///home/ann and FILE://srv/x", f"{PATH} and {PATH}"),
        ("file:///etc", PATH),
        ("C:/Users/ann d:\\data\\x", f"{PATH}"),
        (r"in C:\Users\ann smith\x now", f"in {PATH} now"),
        (r"\\server\share\ann and \\server", f"{PATH} and {PATH}"),
        ("//server/share/x", PATH),
        ("cc -I/home/ann/include ~/x ~ann/y", f"cc -I{PATH} {PATH} {PATH}"),
        ("/home/ann/lr=0.1,b=2", f"{PATH},b=2"),
        ("/data/Jörg/é", PATH),
        ("--data_dir='/mnt/ann/a'(/mnt/ann/b)", f"--data_dir='{PATH}'({PATH})"),
        ("at 10.0.0.5:8476 and 192.168.1.20.", f"at {HOST}:8476 and {HOST}."),
        ("tcp://172.16.0.9:80 8.8.8.8-8.8.8.9", f"tcp://{HOST}:80 {HOST}-{HOST}"),
        ("fe80::1%eth0 [2001:db8::7]:80", f"{HOST} [{HOST}]:80"),
        ("2001:0db8:85a3:0000:0000:8a2e:0370:7334", HOST),
        ("mac 52:54:00:12:34:56", f"mac {HOST}"),
        ("NODE17 Node17.Example.org node17_a run-node17", f"{HOST} {HOST} {HOST}_a run-{HOST}"),
        ("ann@node17:x ann@10.0.0.5", f"{HOST}:x [e-mail left out]"),
        ("ip-10-0-0-5 gpu3.cluster.LOCAL", f"{HOST} {HOST}"),
        ("https://user:pw@example.org/a/b", f"https://{SECRET}@example.org/a/b"),
        # What names nobody.
        ("version 0.10.2 of 12.4.127, jax 0.0.42.1, 1.2.3", None),
        ("cuDNN 8.0.1.13, nvidia-cublas-cu12==12.8.4.1, driver 535.1.2.3, v1.2.3.4", None),
        ("cuBLAS 10.2.1.243; CUDA 10.1.2.3; release_20.6.1.2; 4.3-1.0.1.0", None),
        ('"CuDNN version": "7.4.1.5", "TensorRT":"5.1.2.2"', None),
        ("at 12:30:45, 2018-12-10T12:30:45, 1:2, 10:20:30:40", None),
        ("1/2 a/b 3/4/5 ~1/2 google/vit meta/llama/7b and/or images/s MB/s 8 P100 / 512 GB", None),
        ("v0.5.0/nvidia/submission/results not node171 std::vector x[::2] a :: b", None),
        ("https://example.org/a/b gs://bucket/run/1 top-5 (f)/g/h", None),
        ("localhost 99.15 % of 1,797: 5; ratio 2:1; 0.0.0.0", None),
        (r"line\nbreak \d+ C: drive", None),
    ],
)
def test_names_of_machines_and_people_are_left_out(text, shown):
    redactor = Redactor(["node17.example.org", "localhost"])
    assert redactor.text(text) == (text if shown is None else shown)
    assert redactor.text(redactor.text(text)) == redactor.text(text)
    kept = Redactor(["node17"], keep=True).text(text)
    assert kept == without_secrets(text)


@pytest.mark.parametrize(
    "part",
    [
        "a.",
        "._",
        "://a:b",
        "-eyJ",
        "/@",
        "1.2.3.4 ",
        "a:",
        "&a",
        "C:\\ ",
        "password=",
        "\\\\a ",
        "@",
    ],
)
def test_no_text_takes_long(part):
    start = time.process_time()
    Redactor(["node17"]).text(part * (20_000 // len(part)))
    assert time.process_time() - start < 2.0


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
