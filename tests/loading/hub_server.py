"""A local hub with one model, which has the protocol and the failures of the real one."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tiny_llm.loading import LoadError, load

COMMIT = "0123456789abcdef0123456789abcdef01234567"
NAME = "Someone/Small"


ORDER = [
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "model.safetensors",
]


class Hub:
    """Serves `files`; the other attributes set failures."""

    def __init__(self, files: dict[str, bytes]):
        self.files = files
        self.requests: list[str] = []
        self.refusal: tuple[int, str] | None = None  # status and error code for each file
        self.cuts: list[int] = []  # after how many bytes to drop a connection that sends weights
        self.refusal_after_cut: tuple[int, str] | None = None
        self.trouble = False  # an error of the server for the first question
        self.spoiled: dict[str, bytes] = {}  # sent in place of as many bytes of a file
        self.announced: dict[str, int] = {}  # wrong sizes
        self.together: threading.Barrier | None = None  # for the weights that are sent, once each
        self.files_listed = True  # else the question for all files of a commit is refused

    def listing(self) -> dict:
        return {
            "id": NAME,
            "modelId": NAME,
            "sha": COMMIT,
            "siblings": [self._sibling(name, data) for name, data in self.files.items()],
        }

    def tree(self) -> list[dict]:
        """The same in the format of another request."""
        return [
            {"type": "file", "path": file["rfilename"], "size": file["size"], "oid": file["blobId"]}
            | ({"lfs": {**file["lfs"], "oid": file["lfs"]["sha256"]}} if "lfs" in file else {})
            for file in self.listing()["siblings"]
        ]

    def _sibling(self, name: str, data: bytes) -> dict:
        blob = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
        entry = {"rfilename": name, "size": self.size(name), "blobId": blob}
        if is_large(name):
            digest = hashlib.sha256(data).hexdigest()
            entry["lfs"] = {"sha256": digest, "size": self.size(name), "pointerSize": 134}
        return entry

    def size(self, name: str) -> int:
        return self.announced.get(name, len(self.files[name]))

    def etag(self, name: str) -> str:
        sibling = self._sibling(name, self.files[name])
        return sibling["lfs"]["sha256"] if is_large(name) else sibling["blobId"]

    def downloads(self, name: str) -> int:
        return sum(line.startswith("GET") and line.endswith(f"/{name}") for line in self.requests)


def is_large(name: str) -> bool:
    return name.endswith(".safetensors")


class Handler(BaseHTTPRequestHandler):
    """/api/models/NAME lists; /NAME/resolve/COMMIT/FILE sends small files, redirects large ones to /cdn."""

    protocol_version = "HTTP/1.1"
    hub: Hub

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def log_message(self, *args: object) -> None:
        pass

    def _answer(self, body: bool) -> None:
        path = self.path.partition("?")[0]
        self.hub.requests.append(f"{self.command} {path}")
        if self.hub.trouble:
            return self._send(500, b"", {}, body)
        if path in (f"/api/models/{NAME}", f"/api/models/{NAME}/revision/main"):
            return self._send(200, json.dumps(self.hub.listing()).encode(), {}, body)
        if path == f"/api/models/{NAME}/tree/{COMMIT}" and not self.hub.files_listed:
            return self._send(403, b"", {}, body)
        if path == f"/api/models/{NAME}/tree/{COMMIT}":
            return self._send(200, json.dumps(self.hub.tree()).encode(), {}, body)
        prefixes = (f"/{NAME}/resolve/{COMMIT}/", "/cdn/")
        name = next((path.removeprefix(prefix) for prefix in prefixes if path.startswith(prefix)), None)
        if name not in self.hub.files:
            return self._send(404, b"", {"X-Error-Code": "RepoNotFound"}, body)
        if self.hub.refusal is not None:
            status, code = self.hub.refusal
            return self._send(status, b"", {"X-Error-Code": code} if code else {}, body)
        if is_large(name) and not path.startswith("/cdn/"):
            linked = {"X-Linked-Size": str(self.hub.size(name)), "X-Linked-Etag": f'"{self.hub.etag(name)}"'}
            port = self.server.server_address[1]
            location = {"Location": f"http://localhost:{port}/cdn/{name}"}  # another host than 127.0.0.1
            return self._send(302, b"", self._facts(name) | linked | location, body)
        return self._send_file(name, body)

    def _facts(self, name: str) -> dict[str, str]:
        return {"ETag": f'"{self.hub.etag(name)}"', "X-Repo-Commit": COMMIT, "Accept-Ranges": "bytes"}

    def _send_file(self, name: str, body: bool) -> None:
        if self.hub.together is not None and is_large(name) and body:
            with suppress(threading.BrokenBarrierError):
                self.hub.together.wait(timeout=5)  # a client that waits for 10 s asks again
        spoiled = self.hub.spoiled.get(name, b"")
        data = spoiled + self.hub.files[name][len(spoiled) :]
        wanted = self.headers.get("Range")
        if wanted is None:
            return self._send(200, data, self._facts(name), body, cut=body and is_large(name))
        start = int(wanted.removeprefix("bytes=").partition("-")[0])
        span = {"Content-Range": f"bytes {start}-{len(data) - 1}/{len(data)}"}
        return self._send(206, data[start:], self._facts(name) | span, body, cut=body and is_large(name))

    def _send(self, status: int, data: bytes, headers: dict[str, str], body: bool, cut: bool = False) -> None:
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if cut and self.hub.cuts:
            data = data[: self.hub.cuts.pop(0)]
            self.hub.refusal = self.hub.refusal_after_cut
            self.close_connection = True
        if body:
            self.wfile.write(data)


@contextmanager
def serving(hub: Hub) -> Iterator[str]:
    """The address of the hub, which serves until the block ends."""
    handler = type("HandlerOfOneHub", (Handler,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def left_behind(cache: Path) -> set[str]:
    """The files of all snapshots, and partial files."""
    files = {path.name for path in cache.rglob("*") if "snapshots" in path.parts and not path.is_dir()}
    return files | {path.name for path in cache.rglob("*.incomplete")}


def assert_refused(sentence: str, **options) -> None:
    with pytest.raises(LoadError, match=f"^{NAME}: .*{sentence}") as refusal:
        load(NAME, **options)
    assert str(refusal.value).isprintable()
