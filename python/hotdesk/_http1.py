"""HTTP/1.1, as much as is needed to know where a message ends."""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass
from typing import Any, Callable

#: One read of a socket.
CHUNK = 256 * 1024
#: Headers that are longer are no headers.
LONGEST_HEAD = 64 * 1024


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
        #: Called before every read that may have to wait.
        self.before: Callable[[], None] | None = None

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

    def arriving(self) -> bytes | None:
        """What has come so far and is not used, without waiting for more; None at the end of the stream."""
        waits = self._source.gettimeout()
        self._source.setblocking(False)
        try:
            piece = self._source.recv(self._piece)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return bytes(self._buffer)
        except OSError:
            return None  # the next read says what is wrong
        finally:
            self._source.settimeout(waits)
        self._buffer += piece
        return bytes(self._buffer) if piece else None

    def _more(self) -> bool:
        if self.before is not None:
            self.before()
        piece = self._source.recv(self._piece)
        self._buffer += piece
        return bool(piece)
