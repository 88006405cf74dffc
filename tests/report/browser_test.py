"""Hostile text in a page of the report, opened in a real browser: none of it runs or is fetched."""

import dataclasses
import http.server
import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import opened
from made_reports import some_entries
from made_runs import write_run

from dawnjax.report import contents, inputs

RUN = "document.documentElement.dataset.ran=1"
AWAY = "http://hostile.invalid"

PAYLOADS = [
    line.replace("RUN", RUN).replace("AWAY", AWAY).replace("\\0", "\0")
    for line in Path(__file__).with_name("payloads.txt").read_text().splitlines()
]
"""One that asks for a picture first: the short run has the first of each kind."""

NO_TEXT = {"suite", "kind", "date", "direction", "processor_class", "division"}
NO_TEXT |= {"status", "platform"}
"""Fields that hold one of a few words, or a day."""


@pytest.fixture
def asked() -> Iterator[tuple[list[str], str]]:
    """Requests to the browser's proxy, and the proxy's address; nothing leaves the machine."""
    addresses: list[str] = []

    class Refuses(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            addresses.append(self.path)
            self.send_error(404)

        do_CONNECT = do_POST = do_HEAD = do_GET

        def log_message(self, format: str, *args: Any) -> None:
            del format, args

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Refuses)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield addresses, f"127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


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


PROBE = """<meta charset="utf-8"><pre id="told"></pre>%s<script>
addEventListener("load", () => setTimeout(() => {
  const told = [...document.querySelectorAll("iframe")].map(frame => {
    try {
      const inside = frame.contentDocument;
      for (const item of inside.querySelectorAll("button, summary")) item.click();
      for (const item of inside.querySelectorAll("[tabindex], a, input")) item.focus();
      for (const item of inside.querySelectorAll("input")) {
        item.value = "2018-01-01"; item.dispatchEvent(new Event("input"));
      }
      return [inside.documentElement.dataset.ran === undefined, !!inside.querySelector("h1"),
              frame.contentWindow.location.href];
    } catch (error) { return [false, false, String(error)]; }
  });
  setTimeout(() => {
    document.querySelectorAll("iframe").forEach((frame, number) => {
      const inside = frame.contentDocument;
      told[number][0] &&= inside !== null && inside.documentElement.dataset.ran === undefined;
    });
    document.getElementById("told").textContent = JSON.stringify(told);
  }, 500);
}, 500));
</script>"""


@pytest.mark.processes
@pytest.mark.parametrize("count", [3, pytest.param(len(PAYLOADS), marks=pytest.mark.long)])
def test_no_text_of_a_result_runs_in_a_browser(count, tmp_path, campaign, asked):
    """Every text of entries and runs is a payload. Escaping alone must hold, and the policy alone.

    One payload, raw in a copy without the policy, must run and be fetched: else nothing is seen.
    """
    addresses, proxy = asked
    (run,) = inputs.read([write_run(tmp_path / "run")]).runs
    policy = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')
    files, pages = {}, tmp_path / "pages"
    pages.mkdir()
    for number, payload in enumerate(PAYLOADS[:count]):
        html = hostile_page(payload, run)
        assert html.count("hostile.invalid") + html.count("dataset.ran") >= 50
        files[pages / f"{number}.html"] = payload
        (pages / f"{number}.html").write_bytes(policy.sub("", html).encode())
    # The first payload, raw.
    raw = hostile_page("", run).replace("<main", f"{PAYLOADS[0].replace('/img', '/raw')}<main")
    assert len(policy.findall(raw)) == 1
    (pages / "policy.html").write_text(raw)
    (pages / "control.html").write_text(policy.sub("", raw).replace("/raw", "/control"))
    names = [*(file.name for file in files), "policy.html", "control.html"]
    told: dict[str, list[Any]] = {}
    for start in range(0, len(names), 12):
        part = names[start : start + 12]
        frames = "".join(f'<iframe src="{name}" width=900 height=600></iframe>' for name in part)
        probe = pages / f"probe{start}.html"
        probe.write_text(PROBE % frames)
        shown = opened(probe, tmp_path / f"profile{start}", f"--proxy-server={proxy}")
        answer = re.search(r'<pre id="told">(.*?)</pre>', shown, re.S)
        assert answer, shown[-500:]
        told |= dict(zip(part, json.loads(answer[1].replace("&amp;", "&")), strict=True))
    hostile = [address for address in addresses if "hostile.invalid" in address]
    # The control shows that a payload that runs, and one that is fetched, would be seen.
    assert told["control.html"][0] is False and any("/control" in address for address in hostile)
    assert told["policy.html"][:2] == [True, True]
    fetched = {address for address in hostile if "/control" not in address}
    texts = campaign(
        "browser",
        "text that would run or be fetched, in every field of entries and runs of a report that "
        "Chromium opens",
        "nothing runs, is fetched or leads away, also without the page's policy",
    )
    for file, payload in files.items():
        still, whole, address = told[file.name]
        stays = whole and address == f"file://{file}"
        texts.tried(payload[:60], held=still and stays, why=str(told[file.name]))
    texts.tried("all", held=not fetched, why=f"asked for {sorted(fetched)}")
    texts.finish()
