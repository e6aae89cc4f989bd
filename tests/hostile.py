"""Clients without sense or with bad intent: raw connections, and what the fleet holds before and after them.

`tests/with-fleet` says in HOTDESK_PID which process is looked at. Desks are found by their control group.
"""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import struct
import time
from contextlib import contextmanager
from urllib.parse import urlsplit

#: Kept connections to desks, the store's own files: they come and go.
SPARE_DESCRIPTORS = 24
#: What an allocator keeps of what was used and given back.
SPARE_MIB = 96
#: How long the last traces of a client that left may stay.
SETTLED_S = 90
#: For each answer that must come.
PATIENCE = 120


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def memory_mib(pid: int) -> float:
    """What the process has of its own; files that it maps are not counted."""
    with open(f"/proc/{pid}/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon:")) / 1024


def servers(desk: str) -> list[int]:
    """The processes of `hotdesk` that serve a desk."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/comm") as name, open(f"/proc/{pid}/cgroup") as groups:
                if name.read().strip() == "hotdesk" and desk in groups.read():
                    found.append(int(pid))
        except OSError:
            continue
    assert found, f"no process serves the desk {desk}"
    return found


@contextmanager
def nothing_stays(desk: str):
    """Whatever happens in the block: afterwards the fleet and the desk hold what they held before, and no desk has died of it."""
    watched = [int(os.environ["HOTDESK_PID"]), *servers(desk)]
    held = {pid: (descriptors(pid), memory_mib(pid)) for pid in watched}
    yield
    end = time.monotonic() + SETTLED_S
    while True:
        now = {pid: (descriptors(pid), memory_mib(pid)) for pid in watched}
        over = [pid for pid in watched if now[pid][0] > held[pid][0] + SPARE_DESCRIPTORS or now[pid][1] > held[pid][1] + SPARE_MIB]
        if not over:
            return
        assert time.monotonic() < end, f"descriptors and MiB before {[held[p] for p in over]}, and {SETTLED_S} s after {[now[p] for p in over]}"
        time.sleep(0.25)


def connection(url: str) -> socket.socket:
    parts = urlsplit(url)
    return socket.create_connection((parts.hostname, parts.port), timeout=PATIENCE)


def head(method: str, url: str, headers: dict[str, str]) -> bytes:
    parts = urlsplit(url)
    lines = [f"{method} {parts.path}{'?' + parts.query if parts.query else ''} HTTP/1.1", f"Host: {parts.netloc}"]
    return "\r\n".join([*lines, *(f"{name}: {value}" for name, value in headers.items()), "", ""]).encode()


def status(one: socket.socket) -> int:
    """Of the answer that comes; 0 if the connection is closed instead, which is an answer too."""
    said = b""
    try:
        while b"\r\n" not in said:
            piece = one.recv(1)
            if not piece:
                return 0
            said += piece
    except ConnectionError:
        return 0
    return int(said.split(b" ")[1])


def upgraded(url: str, headers: dict[str, str]) -> socket.socket:
    """A WebSocket by hand."""
    one = connection(url)
    more = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "MDEyMzQ1Njc4OWFiY2RlZg=="}
    one.sendall(head("GET", url, headers | more))
    said = b""
    while b"\r\n\r\n" not in said:
        piece = one.recv(1)
        assert piece, said
        said += piece
    assert b" 101 " in said.split(b"\r\n")[0], said
    return one


def closes(one: socket.socket) -> bool:
    """Whether the other side ends the connection; what it says before is read."""
    try:
        while one.recv(65536):
            pass
    except ConnectionError:
        pass
    return True


def reset(one: socket.socket) -> None:
    """Leaves without a word, as a machine that is switched off."""
    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    one.close()


def at_once(count: int, request) -> list[tuple[int, bytes]]:
    """Sends `request(n)` on a connection of its own for each n, all of them before the first answer is read."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 4 * count)), hard))

    async def one(n: int, ready: asyncio.Barrier) -> tuple[int, bytes]:
        url, data = request(n)
        parts = urlsplit(url)
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        writer.write(data)
        await writer.drain()
        await ready.wait()
        first = await reader.readuntil(b"\r\n\r\n")
        body = await reader.read()
        writer.close()
        return int(first.split(b" ")[1]), body

    async def work():
        ready = asyncio.Barrier(count)
        async with asyncio.timeout(5 * PATIENCE):
            return await asyncio.gather(*(one(n, ready) for n in range(count)))

    return asyncio.run(work())
