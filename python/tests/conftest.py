"""A server that answers as it is told, for what a fleet does only when something goes wrong."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Callable

import pytest


class Scripted:
    """Answers requests by a list of steps: (status, body, headers), or a function of the handler."""

    def __init__(self) -> None:
        self.steps: list[Any] = []
        self.seen: list[tuple[str, str, dict[str, str], bytes]] = []
        script = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: Any) -> None:
                pass

            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                script.seen.append((self.command, self.path, {k.lower(): v for k, v in self.headers.items()}, body))
                step = script.steps.pop(0)
                if callable(step):
                    step(self)
                    return
                status, content, headers = (*step, {})[:3]
                data = content if isinstance(content, bytes) else json.dumps(content).encode()
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def then(self, *steps: Any) -> "Scripted":
        self.steps += steps
        return self


def hang_up(handler: BaseHTTPRequestHandler) -> None:
    """Ends the connection instead of answering."""
    handler.close_connection = True
    handler.connection.close()


@pytest.fixture
def scripted() -> Iterator[Scripted]:
    one = Scripted()
    yield one
    one.server.shutdown()
    one.server.server_close()


@pytest.fixture
def broken() -> Callable[[BaseHTTPRequestHandler], None]:
    return hang_up


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    for name in ("HOTDESK_URL", "HOTDESK_KEY", "HOTDESK_CA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOTDESK_DATA", str(tmp_path / "no-fleet"))
