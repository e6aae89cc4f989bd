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
from dataclasses import dataclass
from typing import Any, Callable
from urllib.parse import urlsplit

from ._requests import CONNECT_S, FIRST_PAUSE_S, LONGEST_PAUSE_S, RETRY_FOR_S
from .errors import ConnectionFailed, Problem, problem_from
from .settings import Settings
from .tls import tls_context

#: One read of a socket.
CHUNK = 256 * 1024
#: What may wait for a slow reader before the writer has to wait too.
BUFFER = 1024 * 1024
#: Headers that are longer are no headers.
LONGEST_HEAD = 64 * 1024
#: How often a closed forwarder is noticed.
TICK_S = 0.5


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

    def _exchange(self, client: socket.socket, reader: "Reader", request: "Head", desk: socket.socket, desk_reader: "Reader") -> bool:
        """One request and its answer; False if the connection ends with it."""
        try:
            desk.sendall(self._rewritten(request))
            if request.wants("expect", "100-continue"):
                # whoever waits for a go-ahead gets it here: the gateway's own comes before its answer and is passed over
                client.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
            reader.body(request, desk.sendall, of_request=True)
        except (BrokenPipeError, ConnectionResetError):
            pass  # refused before the body was whole: the answer says why
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
        client.sendall(answer.raw)
        ended = desk_reader.body(answer, client.sendall, of_request=False, method=request.method)
        return not ended and not request.closes and not answer.closes

    def _rewritten(self, request: "Head") -> bytes:
        target = request.target
        if "://" in target.split("?", 1)[0]:
            parts = urlsplit(target)
            target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        if not target.startswith("/"):
            raise BadHttp(f"can't carry {target!r}")
        lines = [f"{request.method} {self._prefix}{target} {request.version}", f"Host: {self._gateway.authority}"]
        lines += [f"{name}: {value}" for name, value in request.headers if name.lower() not in ("host", "authorization", "expect")]
        return "\r\n".join(lines).encode("latin-1") + b"\r\n" + self._gateway.authorization() + b"\r\n"


# ── HTTP/1.1, as much as is needed to know where a message ends ──────────────


class _NoAnswer(ConnectionResetError):
    """A request was sent and the connection ended without a word."""


class BadHttp(Exception):
    """Not HTTP/1.1 as we know it."""


@dataclass
class Head:
    """The first line and the headers of a request or an answer."""

    raw: bytes
    first: str
    headers: list[tuple[str, str]]

    @property
    def method(self) -> str:
        return self.first.split(" ", 2)[0]

    @property
    def target(self) -> str:
        return self.first.split(" ", 2)[1]

    @property
    def version(self) -> str:
        return "HTTP/1.0" if self.first.endswith("HTTP/1.0") else "HTTP/1.1"

    @property
    def status(self) -> int:
        return int(self.first.split(" ", 2)[1])

    def values(self, name: str) -> list[str]:
        return [v for n, v in self.headers if n.lower() == name]

    def wants(self, name: str, word: str) -> bool:
        return any(word in [w.strip().lower() for w in value.split(",")] for value in self.values(name))

    @property
    def chunked(self) -> bool:
        return self.wants("transfer-encoding", "chunked")

    @property
    def length(self) -> int | None:
        values = self.values("content-length")
        if not values:
            return None
        if len(set(values)) != 1 or not values[0].isdecimal():
            raise BadHttp(f"content-length {values}")
        return int(values[0])

    @property
    def closes(self) -> bool:
        old = "HTTP/1.0" in self.first
        return self.wants("connection", "close") or (old and not self.wants("connection", "keep-alive"))


class Reader:
    """Reads messages from a socket."""

    def __init__(self, source: socket.socket, piece: int = CHUNK) -> None:
        self._source = source
        self._piece = piece
        self._buffer = bytearray()

    def head(self) -> Head | None:
        """The next head, or None at the end of the stream."""
        while (end := self._buffer.find(b"\r\n\r\n")) < 0:
            if len(self._buffer) > LONGEST_HEAD:
                raise BadHttp(f"a head of more than {LONGEST_HEAD} bytes")
            if not self._more():
                if self._buffer.strip():
                    raise BadHttp("the connection ended within a head")
                return None
        raw = bytes(self._buffer[: end + 4])
        del self._buffer[: end + 4]
        lines = raw.lstrip(b"\r\n").decode("latin-1").split("\r\n")
        if len(lines[0].split(" ", 2)) < 2:
            raise BadHttp(f"a first line like {lines[0][:40]!r}")
        headers = []
        for line in lines[1:]:
            if line:
                name, colon, value = line.partition(":")
                if not colon:
                    raise BadHttp(f"a header like {line[:40]!r}")
                headers.append((name.strip(), value.strip()))
        return Head(raw, lines[0], headers)

    def body(self, head: Head, to: Callable[[bytes], Any], *, of_request: bool, method: str = "") -> bool:
        """Passes the message's body on; True if it was ended by the end of the connection."""
        if not of_request and (method == "HEAD" or head.status in (204, 304)):
            return False
        if head.chunked:
            self._chunks(to)
            return False
        length = head.length
        if length is None:
            if of_request:
                return False
            to(self.rest())
            while piece := self._source.recv(CHUNK):
                to(piece)
            return True
        while length > 0:
            if not self._buffer and not self._more():
                raise BadHttp("the connection ended within a body")
            piece = bytes(self._buffer[:length])
            del self._buffer[: len(piece)]
            length -= len(piece)
            to(piece)
        return False

    def exactly(self, length: int) -> bytes:
        while len(self._buffer) < length and self._more():
            pass
        return bytes(self._buffer[:length])

    def rest(self) -> bytes:
        """What was read and not used."""
        rest = bytes(self._buffer)
        self._buffer.clear()
        return rest

    def _chunks(self, to: Callable[[bytes], Any]) -> None:
        while True:
            line = self._line()
            try:
                size = int(line.split(b";", 1)[0].strip(), 16)
            except ValueError:
                raise BadHttp(f"a chunk's size like {line[:20]!r}") from None
            to(line)
            if size == 0:
                break
            left = size + 2
            while left:
                if not self._buffer and not self._more():
                    raise BadHttp("the connection ended within a chunk")
                piece = bytes(self._buffer[:left])
                del self._buffer[: len(piece)]
                left -= len(piece)
                to(piece)
        while True:  # trailers, up to an empty line
            line = self._line()
            to(line)
            if line == b"\r\n":
                return

    def _line(self) -> bytes:
        while (end := self._buffer.find(b"\r\n")) < 0:
            if len(self._buffer) > LONGEST_HEAD or not self._more():
                raise BadHttp("a line without an end")
        line = bytes(self._buffer[: end + 2])
        del self._buffer[: end + 2]
        return line

    def _more(self) -> bool:
        piece = self._source.recv(self._piece)
        self._buffer += piece
        return bool(piece)


# ── bytes ────────────────────────────────────────────────────────────────────


def pump(one: socket.socket, other: socket.socket, early: bytes = b"") -> None:
    """Carries bytes both ways until both ends are done; `early` was read from `one` already.

    One thread with a selector, because a TLS connection must not be read and written by two threads at once.
    """
    lanes = [_Lane(one, other, bytearray(early)), _Lane(other, one, bytearray())]
    with selectors.DefaultSelector() as selector:
        for end in (one, other):
            end.setblocking(False)
            selector.register(end, selectors.EVENT_READ)
        try:
            while not all(lane.done for lane in lanes):
                for lane in lanes:
                    lane.step()
                if any(lane.done and lane.source_ended and isinstance(lane.target, ssl.SSLSocket) for lane in lanes):
                    return  # TLS knows no half-closed connection
                wanted = {one: 0, other: 0}
                for lane in lanes:
                    if lane.data:
                        wanted[lane.target] |= selectors.EVENT_WRITE
                    if not lane.source_ended and len(lane.data) < BUFFER:
                        wanted[lane.source] |= selectors.EVENT_READ
                for end, events in wanted.items():
                    if end in selector.get_map():
                        selector.unregister(end)
                    if events:
                        selector.register(end, events)
                if not selector.get_map():
                    return
                if not any(lane.pending() for lane in lanes):
                    selector.select()
        except OSError:
            return


class _Lane:
    """One direction."""

    def __init__(self, source: socket.socket, target: socket.socket, data: bytearray) -> None:
        self.source, self.target, self.data = source, target, data
        self.source_ended = False
        self.done = False

    def pending(self) -> bool:
        return isinstance(self.source, ssl.SSLSocket) and len(self.data) < BUFFER and self.source.pending() > 0

    def step(self) -> None:
        if self.done:
            return
        if not self.source_ended and len(self.data) < BUFFER:
            try:
                piece = self.source.recv(CHUNK)
                self.source_ended = not piece
                self.data += piece
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                pass
        while self.data:
            try:
                sent = self.target.send(self.data)
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return
            del self.data[:sent]
        if self.source_ended:
            self.done = True
            try:
                self.target.shutdown(socket.SHUT_WR)
            except OSError:
                pass


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


def _unreachable(why: str) -> bytes:
    body = json.dumps({"status": "error", "message": why}).encode()
    return (
        b"HTTP/1.1 502 Bad Gateway\r\nContent-Type: application/json\r\nConnection: close\r\n"
        + f"Content-Length: {len(body)}\r\n\r\n".encode()
        + body
    )
