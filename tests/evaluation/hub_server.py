"""A hub: the part of the Hugging Face hub's HTTP interface that its own library asks when it loads a data set."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

REVISION = "0123456789abcdef0123456789abcdef01234567"
Files = Mapping[str, bytes]  # by path in the data set


@contextmanager
def hub(data_sets: Mapping[str, Files]) -> Iterator[str]:
    """Serve data sets by `owner/name` and give the hub's address."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            parts = unquote(urlsplit(self.path).path).strip("/").split("/")
            match parts:
                case ["api", "datasets", owner, name, *rest] if (files := data_sets.get(f"{owner}/{name}")) is not None:
                    self._describe(f"{owner}/{name}", files, rest)
                case ["datasets", owner, name, "resolve", _revision, *path]:
                    content = data_sets.get(f"{owner}/{name}", {}).get("/".join(path))
                    self._send(content, "application/octet-stream", "EntryNotFound")
                case _:
                    self._send(None, "application/json", "RepoNotFound")

        def do_POST(self) -> None:
            asked = self.rfile.read(int(self.headers["Content-Length"])).decode()
            parts = urlsplit(self.path).path.strip("/").split("/")
            if parts[:2] != ["api", "datasets"] or parts[4:5] != ["paths-info"]:
                self._send(None, "application/json", "RepoNotFound")
                return
            files = data_sets.get("/".join(parts[2:4]), {})
            paths = json.loads(asked)["paths"] if asked.startswith("{") else []
            self._json([_entry(path, files[path]) for path in paths if path in files])

        def _describe(self, data_set: str, files: Files, rest: list[str]) -> None:
            match rest:
                case [] | ["revision", _]:
                    siblings = [{"rfilename": path} for path in files]
                    self._json({"id": data_set, "sha": REVISION, "siblings": siblings, "private": False, "tags": []})
                case ["tree", _revision, *folder]:
                    prefix = "".join(f"{part}/" for part in folder)
                    self._json([_entry(path, files[path]) for path in files if path.startswith(prefix)])
                case _:
                    self._send(None, "application/json", "EntryNotFound")

        def _json(self, answer: object) -> None:
            self._send(json.dumps(answer).encode(), "application/json", "")

        def _send(self, content: bytes | None, kind: str, missing: str) -> None:
            self.send_response(HTTPStatus.NOT_FOUND if content is None else HTTPStatus.OK)
            body = content or b""
            if content is None:
                self.send_header("X-Error-Code", missing)
            else:
                self.send_header("ETag", f'"{hashlib.sha1(body).hexdigest()}"')
                self.send_header("X-Repo-Commit", REVISION)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _entry(path: str, content: bytes) -> dict[str, object]:
    return {"type": "file", "path": path, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}
