"""Hostile text in a page of the report, opened in a real browser: none of it runs or is fetched."""

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest
from browser import opened
from made_reports import some_entries
from made_runs import write_run

from dawnjax.report import contents, inputs

RAN = "document.documentElement.dataset.ran=1"
# A table lets names break behind a dot before a small letter: a payload of such would be broken.
RUN = "ran()"
AWAY = "http://hostile.INVALID"

PAYLOADS = [
    line.replace("RUN", RUN).replace("AWAY", AWAY).replace("\\0", "\0")
    for line in Path(__file__).with_name("payloads.txt").read_text().splitlines()
]
"""One that asks for a picture first: the short run has the first of each kind."""

NO_TEXT = {"suite", "kind", "date", "direction", "processor_class", "division"}
NO_TEXT |= {"status", "platform"}
"""Fields that hold one of a few words, or a day."""


def filled(value: Any, payload: str, name: str = "") -> Any:
    """A record with the payload in each text of it."""
    if isinstance(value, str):
        return value if name in NO_TEXT else payload
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return dataclasses.replace(
            value, **{key: filled(item, payload, key) for key, item in fields.items()}
        )
    if isinstance(value, dict):
        return {key: filled(item, payload, name) for key, item in value.items()} | (
            {payload: payload} if name in ("reasons", "overrides", "versions") else {}
        )
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        texts = (payload,) if name == "warnings" else ()
        return tuple(filled(item, payload, name) for item in value) + texts
    return value


def hostile_page(payload: str, run: Any) -> str:
    """A report in which every text of an entry and of a run is a payload."""
    entries = [
        dataclasses.replace(filled(entry, payload), source=f"{payload}/{number}")
        for number, entry in enumerate(some_entries())
    ]
    texts = dict.fromkeys(("name", "model", "example_unit"), payload)
    names = ("experiment", "overrides", "versions", "reasons", "warnings")
    texts |= {name: filled(getattr(run, name), payload, name) for name in names}
    hostile = inputs.Inputs(
        entries=tuple(entries), runs=(dataclasses.replace(run, **texts),), problems=(payload,)
    )
    return contents.make(hostile, title=payload).html


WATCHED = (
    '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data:; '
    "script-src 'unsafe-inline'; style-src 'unsafe-inline'\">"
    f"<script>function {RUN} {{ {RAN} }}\n"
    'document.addEventListener("securitypolicyviolation", ran)</script>'
)
"""In place of the page's policy: all text may run, and each fetch is seen."""

PROBE = """<script>addEventListener("load", () => {
  for (const item of document.querySelectorAll("button, summary")) item.click();
  for (const item of document.querySelectorAll("[tabindex], a, input")) item.focus();
  for (const item of document.querySelectorAll("input")) {
    item.value = "2018-01-01"; item.dispatchEvent(new Event("input"));
  }
});</script>"""


@pytest.mark.processes
@pytest.mark.parametrize("count", [3, pytest.param(len(PAYLOADS), marks=pytest.mark.long)])
def test_no_text_of_a_result_runs_in_a_browser(count, tmp_path, campaign):
    """Every text of entries and runs is a payload. Escaping alone must hold, and the policy alone.

    Raw in a page that is watched, one must run and another be fetched: else nothing is seen.
    """
    (run,) = inputs.read([write_run(tmp_path / "run")]).runs
    policy = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')

    def shown(name: str, html: str) -> tuple[bool, bool]:
        """Whether a page's text ran, and whether the browser still shows the page."""
        file = tmp_path / f"{name}.html"
        file.write_bytes((html + PROBE).encode())
        document = opened(file, tmp_path / f"profile_{name}")
        return "data-ran" in document[:200], "<h1" in document

    for name, payload in (("runs", f"<script>{RAN}</script>"), ("fetched", f"<img src={AWAY}>")):
        raw = hostile_page("", run).replace("<main", f"{payload}<main")
        [tag] = policy.findall(raw)
        assert "default-src &#39;none&#39;" in tag
        assert shown(f"{name}_watched", policy.sub(WATCHED, raw)) == (True, True)
        assert shown(name, raw) == (False, True)
    texts = campaign(
        "browser",
        "text that would run or be fetched, in every field of entries and runs of a report that "
        "Chromium opens",
        "nothing runs, is fetched or leads away, also without the page's policy",
    )
    for number, payload in enumerate(PAYLOADS[:count]):
        html = hostile_page(payload, run)
        assert html.count(AWAY) + html.count(RUN) >= 50
        found = shown(str(number), policy.sub(WATCHED, html))
        texts.tried(payload[:60], held=found == (False, True), why=str(found))
    texts.finish()
