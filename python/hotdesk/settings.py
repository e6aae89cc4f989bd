"""Which fleet to talk to, and with which key: what was said, else the environment, else the fleet of this machine."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from .errors import SettingsError

DEFAULT_URL = "http://127.0.0.1:7700"
_LOOPBACK = {"localhost", "127.0.0.1", "::1"}


@dataclass(frozen=True)
class Settings:
    url: str
    key: str | None
    #: A Unix socket that the fleet listens on, instead of the host and port in `url`.
    socket: str | None = None

    def __repr__(self) -> str:  # a key never ends up in a log
        return f"Settings(url={self.url!r}, key={'…' if self.key else None})"


def find(url: str | None = None, key: str | None = None) -> Settings:
    """`url` and `key`, else `HOTDESK_URL` and `HOTDESK_KEY`, else what a fleet of this machine wrote into its data directory.

    The key of this machine's fleet is sent to this machine's fleet alone, never to an address that somebody put into the environment.
    """
    url = url or os.environ.get("HOTDESK_URL") or None
    key = key or os.environ.get("HOTDESK_KEY") or None
    for data in data_directories():
        local = _address(data / "serve.json")
        if local is None or (url is not None and not _same(url, local)):
            continue
        url = url or local
        key = key or _text(data / "admin.key")
        break
    url = (url or DEFAULT_URL).rstrip("/")
    if url.startswith("unix:"):
        return Settings("http://localhost", key, url.removeprefix("unix:"))
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise SettingsError(f"{url!r} is not the address of a fleet: it should look like {DEFAULT_URL} or unix:PATH")
    return Settings(url, key)


def trust() -> str | bool:
    """What a fleet's certificate is checked against: the file that `HOTDESK_CA` names, else what the system trusts."""
    return os.environ.get("HOTDESK_CA") or True


def data_directories() -> list[Path]:
    """Where fleets of this machine keep their things, the likeliest first."""
    said = os.environ.get("HOTDESK_DATA")
    if said:
        return [Path(said)]
    system = Path("/var/lib/hotdesk")
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        return [system]
    home = os.environ.get("XDG_DATA_HOME") or os.path.join(os.path.expanduser("~"), ".local", "share")
    return [Path(home) / "hotdesk", system]


def _address(path: Path) -> str | None:
    """The address in a `serve.json`, if the fleet that wrote it still runs."""
    text = _text(path)
    try:
        written = json.loads(text) if text else None
    except ValueError:
        return None
    if not isinstance(written, dict) or not isinstance(written.get("url"), str):
        return None
    process = written.get("pid")
    if isinstance(process, int) and os.path.isdir("/proc/self") and not os.path.exists(f"/proc/{process}"):
        return None
    url: str = written["url"]
    return url.rstrip("/") or None


def _text(path: Path) -> str | None:
    try:
        return path.read_text("utf-8").strip() or None
    except OSError:
        return None


def _same(one: str, other: str) -> bool:
    if one.startswith("unix:"):
        return one == other
    a, b = urlsplit(one), urlsplit(other)
    host = a.hostname == b.hostname or (a.hostname in _LOOPBACK and b.hostname in _LOOPBACK)
    return a.scheme == b.scheme and host and a.port == b.port
