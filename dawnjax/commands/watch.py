"""`dawnjax watch`: the report of runs as a self-reloading page on localhost."""

import contextlib
import dataclasses
import functools
import html
import http.server
import itertools
import mimetypes
import re
from http import HTTPStatus
from pathlib import Path

from absl import flags

from dawnjax import records
from dawnjax.commands.answer import Answer
from dawnjax.commands.runs import read_folder
from dawnjax.config import command_line
from dawnjax.errors import ConfigError, RunError
from dawnjax.page import words

USAGE = "dawnjax watch RUN_DIR|FOLDER... [--port=8000] [--every_seconds=5]"

DESCRIPTION = """
Shows runs while they train, on the page of `dawnjax report`: curves, phases, hosts, costs. Each
request reads the logs anew, and the page reloads itself. Nothing is written, and only this machine
can connect: from elsewhere, forward the port with `ssh -L 8000:localhost:8000 HOST`. Ctrl-C ends
the page; the runs continue.
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """What was shown, until Ctrl-C.

    Attributes:
      pages: Number of requests for the page or its tables.
    """

    url: str
    sources: tuple[str, ...]
    pages: int


RESULT = Result


def main(argv: list[str]) -> Answer:
    values = flags.FlagValues()
    number = functools.partial(flags.DEFINE_integer, flag_values=values)
    number("port", 8000, "The port on this machine; 0 chooses a free one.", 0, 65535)
    number("every_seconds", 5, "Seconds between reloads of the page.", 1, 3600)
    sources = command_line.parse("watch", values, argv, USAGE, DESCRIPTION)
    if not sources:
        raise ConfigError("no run given; name a run directory or a folder of runs")
    for source in sources:
        if not records.path_of(source).is_dir():
            raise ConfigError(f"there is no folder {source}")
    port, every = (int(values[name].value or 0) for name in ("port", "every_seconds"))
    try:
        server = server_of([records.path_of(source) for source in sources], port, every)
    except OSError as error:
        raise ConfigError(f"--port={port}: {error.strerror}; choose another") from None
    with server:
        url = f"http://localhost:{server.server_port}/"
        print(f"{url} refreshes every {every} s; Ctrl-C ends it", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()
    return Answer(result=Result(url=url, sources=tuple(sources), pages=server.pages))


class Server(http.server.ThreadingHTTPServer):
    """A server of one page, for this machine only."""

    pages = 0
    sources: list[Path]
    every_seconds: int


def server_of(sources: list[Path], port: int, every_seconds: int) -> Server:
    server = Server(("127.0.0.1", port), _Handler)
    server.sources, server.every_seconds = sources, every_seconds
    return server


def files_of(sources: list[Path], every_seconds: int) -> dict[str, str]:
    """The report's files from the current logs; a page with one line if there is nothing yet."""
    # Imported here so that --help does without them.
    from dawnjax.report import contents, inputs, writing

    try:
        report = contents.make(inputs.read(sources, include_hosts=True))
        files = dict(writing.files_of(report))
        lines = running(sources)
    except (ConfigError, RunError, OSError) as error:
        line = html.escape(str(error))
        page = f"<!DOCTYPE html><html><head></head><body><p>{line}</p></body></html>"
        files, lines = {"index.html": page}, []
    # The browser keeps its place in the page, and no script is needed.
    renews = f'<head><meta http-equiv="refresh" content="{every_seconds}">'
    page = files["index.html"].replace("<head>", renews, 1)
    said = "".join(f"<p>{html.escape(line)}</p>" for line in lines)
    return {**files, "index.html": page.replace("</h1>", f"</h1>{said}", 1)}


def running(sources: list[Path]) -> list[str]:
    """A line on each run that trains now, with its cost so far."""
    lines = []
    for one in itertools.chain(*(read_folder(source)[0] for source in sources)):
        if one.state != "running":
            continue
        run = one.run
        hosts = words.count(run.num_hosts, "host")
        said = [f"step {run.steps:,}", f"{words.duration(run.total_seconds)} on {hosts}"]
        if run.allocated_cost_usd is not None:
            said.append(f"{run.allocated_cost_usd:.2f} USD so far")
        lines.append(f"{one.path} trains: {', '.join(said)}")
    return lines


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Server  # pyright: ignore[reportIncompatibleVariableOverride]
    timeout = 30  # pyright: ignore[reportIncompatibleUnannotatedOverride]

    def handle(self) -> None:
        # A browser that is closed, or goes to another page, takes no answer any more.
        with contextlib.suppress(ConnectionError):
            super().handle()

    def do_GET(self) -> None:
        # A page elsewhere could make its own name lead here, and read what this machine shows.
        host = re.fullmatch(r"(localhost|127\.0\.0\.1)(:\d+)?", self.headers.get("Host", ""))
        if not host:
            self.send_error(HTTPStatus.FORBIDDEN, "this page is only for localhost")
            return
        name = self.path.removeprefix("/") or "index.html"
        text = None
        if name == "index.html" or name.startswith("tables/"):
            text = files_of(self.server.sources, self.server.every_seconds).get(name)
        if text is None:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        content, kind = text.encode(), mimetypes.guess_type(name)[0]
        self.server.pages += 1
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Log no requests."""
