"""A server of the Google Cloud Storage JSON API on this machine, with its objects in memory.

It answers what gcsfs and TensorStore ask for a small run: objects written whole, read whole and in
ranges, listed and deleted, with preconditions on their generation. Buckets are given at the start;
one can be set to refuse.

Source: Cloud Storage, "JSON API reference": Objects, Buckets; "Request preconditions".
"""

import base64
import contextlib
import hashlib
import http.server
import itertools
import json
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit


@dataclass(frozen=True)
class Stored:
    """An object: its bytes, and the number of the write that made it."""

    data: bytes
    generation: int
    content_type: str
    written: float = field(default_factory=time.time)


class RefusalError(Exception):
    """A request is answered with a status and a reason."""

    def __init__(self, status: int, reason: str):
        super().__init__(reason)
        self.status, self.reason = status, reason


@dataclass
class ObjectStore:
    """Buckets and their objects.

    Attributes:
      buckets: By name, each with its objects by name.
      refuses: Buckets whose requests are answered with this status instead.
      url: Where the server listens, while it does.
    """

    buckets: dict[str, dict[str, Stored]]
    refuses: dict[str, int] = field(default_factory=dict)
    url: str = ""

    def __post_init__(self) -> None:
        self._lock = threading.RLock()
        self._generations = itertools.count(int(time.time() * 1e6))
        self._uploads: dict[str, dict[str, Any]] = {}

    def environment(self) -> dict[str, str]:
        """The variables that send gcsfs, google-cloud-storage and TensorStore here."""
        return {
            "STORAGE_EMULATOR_HOST": self.url,
            "TENSORSTORE_GCS_HTTP_URL": self.url,
            "NO_PROXY": "127.0.0.1",
            # Without credentials, and with no look for those of a cloud machine.
            "NO_GCE_CHECK": "true",
            "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",
        }

    @contextlib.contextmanager
    def serving(self) -> Iterator["ObjectStore"]:
        """Listens on a free port of the loopback interface until the block ends."""
        handler = type("Handler", (_Handler,), {"store": self})
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        self.url = f"http://127.0.0.1:{server.server_address[1]}"
        try:
            yield self
        finally:
            server.shutdown()
            server.server_close()
            thread.join()

    def answer(self, method: str, target: str, headers: Any, body: bytes) -> "Answer":
        """The answer to one request; raises RefusalError for one that is not granted."""
        parts = urlsplit(target)
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        path = re.sub("^/(upload/|download/)?", "/", parts.path)
        with self._lock:
            pieces = path.removeprefix("/storage/v1/b").strip("/").split("/")
            if not path.startswith("/storage/v1/b/") or not pieces[0]:
                raise RefusalError(404, f"Not Found: {method} {path}")
            bucket, rest = unquote(pieces[0]), [unquote(piece) for piece in pieces[1:]]
            if status := self.refuses.get(bucket):
                raise RefusalError(status, f"the caller has no access to the bucket {bucket}")
            if bucket not in self.buckets:
                raise RefusalError(404, "The specified bucket does not exist.")
            if parts.path.startswith("/upload/"):
                return self._upload(bucket, query, headers, body)
            if not rest:
                return json_answer({"kind": "storage#bucket", "name": bucket, "id": bucket})
            if rest == ["o"]:
                return json_answer(self._list(bucket, query))
            if rest[0] == "o" and len(rest) == 2:
                return self._object(method, bucket, rest[1], query, headers)
            raise RefusalError(404, f"Not Found: {method} {path}")

    def _object(
        self, method: str, bucket: str, name: str, query: dict[str, str], headers: Any
    ) -> "Answer":
        stored = self.buckets[bucket].get(name)
        self._check_generation(stored, query)
        if stored is None:
            raise RefusalError(404, f"No such object: {bucket}/{name}")
        if method == "DELETE":
            del self.buckets[bucket][name]
            return Answer(204)
        if method in ("GET", "HEAD") and query.get("alt") == "media":
            return _media(stored, headers.get("Range", ""))
        return json_answer(_description(bucket, name, stored))

    def _check_generation(self, stored: Stored | None, query: dict[str, str]) -> None:
        """Holds a request to its preconditions; generation 0 is that of an absent object."""
        generation = stored.generation if stored else 0
        if int(query.get("ifGenerationMatch", generation)) != generation:
            raise RefusalError(
                412, "At least one of the pre-conditions you specified did not hold."
            )
        if int(query.get("ifGenerationNotMatch", -1)) == generation:
            raise RefusalError(304, "Not Modified")

    def _list(self, bucket: str, query: dict[str, str]) -> dict[str, Any]:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        first, last = query.get("startOffset", ""), query.get("endOffset", "")
        entries: dict[str, Any] = {}
        for name, stored in sorted(self.buckets[bucket].items()):
            if not name.startswith(prefix) or name < first or (last and name >= last):
                continue
            head, found, tail = name[len(prefix) :].partition(delimiter or "\0")
            if delimiter and found and not (query.get("includeTrailingDelimiter") and not tail):
                entries[prefix + head + found] = None
            else:
                entries[name] = _description(bucket, name, stored)
        return {
            "kind": "storage#objects",
            "items": [entry for entry in entries.values() if entry],
            "prefixes": [name for name, entry in entries.items() if not entry],
        }

    def _upload(self, bucket: str, query: dict[str, str], headers: Any, body: bytes) -> "Answer":
        about: dict[str, Any] = {"contentType": headers.get("Content-Type", "")}
        if query.get("uploadType") == "resumable" and "upload_id" not in query:
            # Its whole content comes next, to the address that this answer gives.
            upload = str(next(self._generations))
            self._uploads[upload] = {**query, **json.loads(body or b"{}")}
            location = f"{self.url}/upload/storage/v1/b/{bucket}/o?upload_id={upload}"
            return Answer(200, headers={"Location": location})
        if "upload_id" in query:
            about = self._uploads.pop(query["upload_id"])
        return self._write(bucket, {"name": "", **query, **about}, body)

    def _write(self, bucket: str, about: dict[str, Any], data: bytes) -> "Answer":
        name = str(about["name"])
        self._check_generation(self.buckets[bucket].get(name), about)
        kind = str(about.get("contentType") or "application/octet-stream")
        stored = Stored(data, next(self._generations), kind)
        self.buckets[bucket][name] = stored
        return json_answer(_description(bucket, name, stored))


@dataclass(frozen=True)
class Answer:
    """HTTP answer of the server."""

    status: int
    body: bytes = b""
    content_type: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)


def json_answer(content: Any, status: int = 200) -> Answer:
    return Answer(status, json.dumps(content).encode())


def _refusal(error: RefusalError) -> Answer:
    content = {"code": error.status, "message": error.reason, "errors": [{"message": error.reason}]}
    return json_answer({"error": content}, error.status)


def _media(stored: Stored, span: str) -> Answer:
    headers = {
        "x-goog-generation": str(stored.generation),
        "x-goog-metageneration": "1",
        "x-goog-stored-content-length": str(len(stored.data)),
        "ETag": str(stored.generation),
    }
    size = len(stored.data)
    if not (asked := re.fullmatch(r"bytes=(\d*)-(\d*)", span)):
        return Answer(200, stored.data, stored.content_type, headers)
    first = int(asked[1]) if asked[1] else max(0, size - int(asked[2]))
    end = min(size, int(asked[2]) + 1) if asked[1] and asked[2] else size
    if first >= size:
        raise RefusalError(416, "Requested range not satisfiable")
    headers["Content-Range"] = f"bytes {first}-{end - 1}/{size}"
    return Answer(206, stored.data[first:end], stored.content_type, headers)


def _description(bucket: str, name: str, stored: Stored) -> dict[str, Any]:
    moment = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(stored.written))
    return {
        "kind": "storage#object",
        "id": f"{bucket}/{name}/{stored.generation}",
        "name": name,
        "bucket": bucket,
        "generation": str(stored.generation),
        "metageneration": "1",
        "contentType": stored.content_type,
        "size": str(len(stored.data)),
        "md5Hash": base64.b64encode(hashlib.md5(stored.data).digest()).decode(),
        "timeCreated": moment,
        "updated": moment,
        "etag": str(stored.generation),
    }


class _Handler(http.server.BaseHTTPRequestHandler):
    """One connection; its store answers."""

    store: ObjectStore
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def handle(self) -> None:
        """Serves a connection until it ends, in order or not."""
        with contextlib.suppress(ConnectionError):
            super().handle()

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            answer = self.store.answer(self.command, self.path, self.headers, body)
        except RefusalError as error:
            answer = _refusal(error)
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(len(answer.body)))
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD" and answer.status not in (204, 304):
            self.wfile.write(answer.body)

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = do_PATCH = _handle

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing."""
