"""Ports of a desk: where the gateway offers them, and a way to them from this machine."""

from __future__ import annotations

import socket
from typing import Any
from urllib.parse import quote

from .forward import Gateway, TcpForwarder
from .settings import Settings


class Port:
    """A port inside a desk, such as 9222 for a browser's DevTools."""

    def __init__(self, settings: Settings, desk: str, number: int, verify: Any = True) -> None:
        if not 0 < number < 65536:
            raise ValueError(f"{number} is not a port: they go from 1 to 65535")
        self.number = number
        self._settings = settings
        self._path = f"/v1/desks/{quote(desk, safe='')}/ports/{number}"
        self._gateway = Gateway(settings, verify)

    @property
    def url(self) -> str:
        """HTTP and WebSocket to the port; requests carry the key as a header."""
        return self._settings.url + self._path

    @property
    def url_with_key(self) -> str:
        """The same for clients that can't set a header, such as a browser: the key is a part of the address."""
        key = f"/k/{quote(self._settings.key, safe='')}" if self._settings.key else ""
        return self._settings.url + key + self._path

    def connect(self, timeout: float | None = 30.0) -> socket.socket:
        """A raw connection to the port."""
        return self._gateway.tunnel(self._path, timeout)

    def forward(self, port: int = 0, *, host: str = "127.0.0.1") -> TcpForwarder:
        """Listens on this machine (on a free port unless one is named) and carries every connection to the desk's port."""
        return TcpForwarder(self._gateway, self._path, host=host, port=port)
