"""Bytes carried between two sockets, both ways."""

from __future__ import annotations

import selectors
import socket
import ssl

#: One read of a socket.
CHUNK = 256 * 1024
#: What may wait for a slow reader before the writer has to wait too.
BUFFER = 1024 * 1024


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
