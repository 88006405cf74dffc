"""`dawnjax watch`: a page that follows the log, read only, for this machine alone."""

import contextlib
import http.client
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

from made_runs import write_run

from dawnjax.__main__ import main
from dawnjax.commands import watch


@contextlib.contextmanager
def served(*sources: Path) -> Iterator[int]:
    """The port of a server, which ends with the block."""
    server = watch.server_of([*sources], 0, 7)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


def answer(port: int, path: str = "/", host: str = "", method: str = "GET") -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request(method, path, headers={"Host": host or f"localhost:{port}"})
    response = connection.getresponse()
    text = response.read().decode()
    connection.close()
    return response.status, text


def test_the_page_follows_the_log_and_renews_itself(tmp_path):
    run = write_run(tmp_path / "run", seconds=None, status=None, price=36.0)
    log = run / "log.jsonl"
    lines = log.read_text().splitlines(keepends=True)
    places = [n for n, line in enumerate(lines) if json.loads(line)["event"] == "evaluation"]
    log.write_text("".join(lines[: places[3] + 1]))
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    with served(tmp_path) as port:
        status, early = answer(port)
        assert status == 200 and '<meta http-equiv="refresh" content="7">' in early
        # Two hosts of 36 USD an hour, 28 s after the start of the program.
        assert "run trains: step 40, 28 s on 2 hosts, 0.56 USD so far" in early
        assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
        log.write_text("".join(lines))
        later = answer(port)[1]
        assert later != early
        status, table = answer(port, "/tables/runs.csv")
        assert status == 200 and table.startswith("run,")


def test_nothing_else_is_answered_and_an_idle_connection_keeps_nobody_waiting(tmp_path):
    write_run(tmp_path / "run")
    with served(tmp_path) as port, socket.create_connection(("127.0.0.1", port)):
        assert answer(port)[0] == 200
        for path in ("/nothing", "/../experiment.json"):
            assert answer(port, path)[0] == 404
        assert answer(port, host="evil.example")[0] == 403
        assert answer(port, method="POST")[0] == 501


def test_a_folder_without_a_run_says_so_until_there_is_one(tmp_path):
    with served(tmp_path) as port:
        status, text = answer(port)
        assert status == 200 and str(tmp_path) in text and "refresh" in text
        write_run(tmp_path / "run")
        assert "Your run" in answer(port)[1]


def test_ctrl_c_ends_it_and_tells_how_often_it_was_asked(tmp_path, monkeypatch, capsys):
    write_run(tmp_path / "run")

    def asked_and_ended(server: watch.Server) -> None:
        thread = threading.Thread(target=answer, args=(server.server_port,))
        thread.start()
        server.handle_request()
        thread.join()
        raise KeyboardInterrupt

    monkeypatch.setattr(watch.Server, "serve_forever", asked_and_ended)
    assert main(["watch", str(tmp_path), "--port=0", "--json"]) == 0
    shown = capsys.readouterr()
    result = json.loads(shown.out)["result"]
    assert result["pages"] == 1 and result["url"] in shown.err
