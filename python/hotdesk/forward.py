"""Forwarders: ports of this machine that lead into a desk, through the fleet's gateway.

`TcpForwarder` carries bytes to a port of the desk. `HttpForwarder` carries HTTP requests to a path of the gateway and puts the key on
them, so that a client that knows neither keys nor paths (OSWorld's) reaches a desk's own server. One thread per connection, blocking:
a few dozen connections at most, and no event loop that a caller would have to run.
"""

from __future__ import annotations

import json
import os
import random
import selectors
import socket
import ssl
import threading
import time
from typing import Any
from urllib.parse import urlsplit

from ._http1 import CHUNK, LONGEST_HEAD, BadHttp, Head, Reader
from ._pump import pump
from ._requests import CONNECT_S, FIRST_PAUSE_S, LONGEST_PAUSE_S, RETRY_FOR_S
from .errors import ConnectionFailed, Problem, problem_from
from .settings import Settings
from .tls import tls_context

#: How often a closed forwarder is noticed.
TICK_S = 0.5
#: Where the status ends in the first line of an answer.
STATUS_END = len("HTTP/1.1 200")
#: How long a client that was answered early may go on sending what nobody reads.
LINGER_S = 5.0


class Gateway:
    """How to reach the fleet on a plain socket."""

    def __init__(self, settings: Settings, verify: Any = True) -> None:
        parts = urlsplit(settings.url)
        self.settings = settings
        self.host = parts.hostname or "127.0.0.1"
        self.port = parts.port or (443 if parts.scheme == "https" else 80)
        self.authority = parts.netloc.rpartition("@")[2]
        self.path = parts.path.rstrip("/")
        self._tls = tls_context(verify) if parts.scheme == "https" else None

    def connect(self, patience: float = RETRY_FOR_S) -> socket.socket:
        """A connection. A fleet that refuses is asked again for a while, because nothing was sent yet and it may be starting."""
        end = time.monotonic() + patience
        pause = FIRST_PAUSE_S
        while True:
            try:
                if self.settings.socket:
                    local = socket.socket(socket.AF_UNIX)
                    local.settimeout(CONNECT_S)
                    local.connect(self.settings.socket)
                    return local
                plain = socket.create_connection((self.host, self.port), timeout=CONNECT_S)
                plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return self._tls.wrap_socket(plain, server_hostname=self.host) if self._tls else plain
            except ssl.SSLCertVerificationError as e:
                raise ConnectionFailed(f"{self.settings.url} is not trusted: {e}") from e
            except OSError as e:
                if time.monotonic() > end:
                    raise ConnectionFailed(f"{self.settings.url} can't be reached: {e}") from e
            time.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(pause * 2, LONGEST_PAUSE_S)

    def authorization(self) -> bytes:
        return f"Authorization: Bearer {self.settings.key}\r\n".encode() if self.settings.key else b""

    def tunnel(self, path: str, timeout: float | None = 30.0) -> socket.socket:
        """A connection that has been upgraded to plain TCP."""
        connection = self.connect()
        try:
            connection.settimeout(timeout)
            request = f"GET {self.path}{path} HTTP/1.1\r\nHost: {self.authority}\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n"
            connection.sendall(request.encode() + self.authorization() + b"\r\n")
            # byte by byte: what follows the head belongs to the port (a server that greets first, such as VNC's)
            reader = Reader(connection, piece=1)
            head = reader.head()
            if head is None:
                raise ConnectionFailed(f"{self.settings.url} closed the connection instead of opening {path}")
            if head.status != 101:
                body = b"" if head.length is None else reader.exactly(min(head.length, LONGEST_HEAD))
                raise problem_from(head.status, {k.lower(): v for k, v in head.headers}, body)
            connection.settimeout(timeout)
            return connection
        except BaseException as e:
            connection.close()
            if isinstance(e, OSError):
                raise ConnectionFailed(f"the tunnel to {path} could not be opened: {e}") from e
            raise


class Forwarder:
    """Listens on this machine; each connection is carried by a thread of its own."""

    def __init__(self, gateway: Gateway, *, host: str = "127.0.0.1", port: int = 0) -> None:
        self._gateway = gateway
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server((host, port), backlog=128)
        self._listener.settimeout(TICK_S)
        self.host, self.port = self._listener.getsockname()[:2]
        self._process = os.getpid()
        threading.Thread(target=self._listen, name=f"hotdesk-forward-{self.port}", daemon=True).start()

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    def close(self) -> None:
        """Ends the listening and every connection."""
        if self._closed.is_set() or self._process != os.getpid():
            return
        self._closed.set()
        _shut(self._listener)  # a thread that waits for a connection would keep the port open for a moment
        self._listener.close()
        with self._lock:
            still = list(self._open)
        for one in still:
            _shut(one)

    def __enter__(self) -> "Forwarder":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _listen(self) -> None:
        while not self._closed.is_set():
            try:
                client, _ = self._listener.accept()
            except TimeoutError:
                continue
            except OSError:
                if self._closed.is_set():
                    return
                time.sleep(TICK_S)  # out of descriptors: some will be free soon
                continue
            client.settimeout(None)
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._run, args=(client,), name=f"hotdesk-forward-{self.port}-connection", daemon=True).start()

    def _run(self, client: socket.socket) -> None:
        self._note(client)
        try:
            self._carry(client)
        except (OSError, ConnectionFailed, BadHttp):
            pass  # one side is gone, and the other learns it by the end of its connection
        finally:
            self._drop(client)

    def _note(self, one: socket.socket) -> None:
        with self._lock:
            self._open.add(one)
        if self._closed.is_set():
            _shut(one)

    def _drop(self, one: socket.socket) -> None:
        with self._lock:
            self._open.discard(one)
        one.close()

    def _carry(self, client: socket.socket) -> None:
        raise NotImplementedError


class TcpForwarder(Forwarder):
    """Carries bytes to a port of the desk."""

    def __init__(self, gateway: Gateway, path: str, *, host: str = "127.0.0.1", port: int = 0) -> None:
        self._path = path
        super().__init__(gateway, host=host, port=port)

    def _carry(self, client: socket.socket) -> None:
        try:
            desk = self._gateway.tunnel(self._path)
        except Problem:
            return
        self._note(desk)
        try:
            pump(client, desk)
        finally:
            self._drop(desk)


class HttpForwarder(Forwarder):
    """Carries HTTP to a path of the gateway: `GET /screenshot` becomes `GET PREFIX/screenshot` with the key on it."""

    def __init__(self, gateway: Gateway, prefix: str, *, host: str = "127.0.0.1", port: int = 0) -> None:
        self._prefix = gateway.path + prefix.rstrip("/")
        super().__init__(gateway, host=host, port=port)

    def _carry(self, client: socket.socket) -> None:
        reader, desk, desk_reader = Reader(client), None, None
        try:
            while True:
                request = reader.head()
                if request is None:
                    return
                if desk is not None and _ended(desk):
                    self._drop(desk)
                    desk = None
                fresh = desk is None
                while True:
                    if desk is None:
                        try:
                            desk = self._gateway.connect()
                        except ConnectionFailed as e:
                            client.sendall(_unreachable(str(e)))
                            return
                        desk.settimeout(None)
                        self._note(desk)
                        desk_reader = Reader(desk)
                    assert desk_reader is not None
                    try:
                        if not self._exchange(client, reader, request, desk, desk_reader):
                            return
                        break
                    except _NoAnswer:
                        # a kept connection was closed just when it was used: reading again does no harm, acting again could
                        if fresh or request.method not in ("GET", "HEAD"):
                            raise
                        self._drop(desk)
                        desk, fresh = None, True
        finally:
            if desk is not None:
                self._drop(desk)

    def _exchange(self, client: socket.socket, reader: Reader, request: Head, desk: socket.socket, desk_reader: Reader) -> bool:
        """One request and its answer; False if the connection ends with it."""
        whole = True
        try:
            desk.sendall(self._rewritten(request))
            if request.wants("expect", "100-continue"):
                # whoever waits for a go-ahead gets it here: the gateway's own comes before its answer and is passed over
                client.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
            self._send_body(client, reader, request, desk, desk_reader)
        except (BrokenPipeError, ConnectionResetError, _Answered):
            whole = False  # refused before the body was whole: the answer says why
        while True:
            try:
                answer = desk_reader.head()
            except ConnectionResetError as e:
                raise _NoAnswer(str(e)) from e
            if answer is None:
                raise _NoAnswer("the gateway closed the connection without an answer")
            if answer.status == 101:
                client.sendall(answer.raw + desk_reader.rest())
                pump(client, desk, reader.rest())
                return False
            if answer.status >= 200:
                break
        client.sendall(answer.raw if whole or answer.closes else answer.raw[:-2] + b"Connection: close\r\n\r\n")
        ended = desk_reader.body(answer, client.sendall, of_request=False, method=request.method)
        if not whole:
            _linger(client)
        return whole and not ended and not request.closes and not answer.closes

    def _send_body(self, client: socket.socket, reader: Reader, request: Head, desk: socket.socket, desk_reader: Reader) -> None:
        """Passes the request's body on; `_Answered` if it is refused before it is whole, whoever is waited for just then."""
        listening = True

        def until(one: socket.socket, event: int) -> None:
            nonlocal listening
            while True:
                if listening and _refuses(said := desk_reader.arriving()):
                    raise _Answered
                if listening and said and len(said) >= STATUS_END:
                    listening = False  # it answers while it goes on reading
                wanted = {desk: selectors.EVENT_READ if listening else 0}
                wanted[one] = wanted.get(one, 0) | event
                with selectors.DefaultSelector() as selector:
                    for end, events in wanted.items():
                        if events:
                            selector.register(end, events)
                    if any(key.fileobj is one and ready & event for key, ready in selector.select()):
                        return

        def send(piece: bytes) -> None:
            left = memoryview(piece)
            while left:
                desk.setblocking(False)
                try:
                    left = left[desk.send(left) :]
                except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                    until(desk, selectors.EVENT_WRITE)
                finally:
                    desk.settimeout(None)

        reader.before = lambda: until(client, selectors.EVENT_READ)
        try:
            reader.body(request, send, of_request=True)
        finally:
            reader.before = None

    def _rewritten(self, request: Head) -> bytes:
        target = request.target
        if "://" in target.split("?", 1)[0]:
            parts = urlsplit(target)
            target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        if not target.startswith("/"):
            raise BadHttp(f"can't carry {target!r}")
        lines = [f"{request.method} {self._prefix}{target} {request.version}", f"Host: {self._gateway.authority}"]
        lines += [f"{name}: {value}" for name, value in request.headers if name.lower() not in ("host", "authorization", "expect")]
        return "\r\n".join(lines).encode("latin-1") + b"\r\n" + self._gateway.authorization() + b"\r\n"


class _NoAnswer(ConnectionResetError):
    """A request was sent and the connection ended without a word."""


class _Answered(Exception):
    """The gateway has answered a request that is not whole yet."""


def _refuses(said: bytes | None) -> bool:
    """Whether what was said so far is a refusal, or the end."""
    return said is None or said[STATUS_END - 3 : STATUS_END - 2] in (b"4", b"5")


def _ended(one: socket.socket) -> bool:
    """Whether an idle connection was closed by the other side."""
    with selectors.DefaultSelector() as selector:
        selector.register(one, selectors.EVENT_READ)
        return bool(selector.select(0))


def _shut(one: socket.socket) -> None:
    try:
        one.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass


def _linger(one: socket.socket) -> None:
    """Lets the other side read its answer: a connection that is closed while it still sends would be reset."""
    try:
        one.shutdown(socket.SHUT_WR)
        end = time.monotonic() + LINGER_S
        while (left := end - time.monotonic()) > 0:
            one.settimeout(left)
            if not one.recv(CHUNK):
                return
    except OSError:
        pass


def _unreachable(why: str) -> bytes:
    body = json.dumps({"status": "error", "message": why}).encode()
    return (
        b"HTTP/1.1 502 Bad Gateway\r\nContent-Type: application/json\r\nConnection: close\r\n"
        + f"Content-Length: {len(body)}\r\n\r\n".encode()
        + body
    )
