#!/usr/bin/env python3
"""Ports for servers under test. As a program it prints one.

The kernel gives the ports of its own range (32768 and up) to whoever connects anywhere, so a port of that range that was free a moment
ago may be taken when a server wants it, and always may be while a killed server is about to come back. These are below that range, and
a name in the kernel keeps two processes of tests from choosing the same one for as long as both live.
"""

from __future__ import annotations

import random
import socket

#: Kept open: they are what holds the ports.
_held: list[socket.socket] = []


def free_port() -> int:
    while True:
        port = random.SystemRandom().randrange(20_000, 32_000)
        name = socket.socket(socket.AF_UNIX)
        try:
            name.bind(f"\0hotdesk-test-port-{port}")
            with socket.socket() as one:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                one.bind(("127.0.0.1", port))
        except OSError:
            name.close()
            continue
        _held.append(name)
        return port


if __name__ == "__main__":
    print(free_port())
