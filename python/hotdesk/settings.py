"""Which fleet to talk to, and with which key: what was said, else the environment, else the fleet of this machine."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from .errors import SettingsError

DEFAULT_URL = "http://127.0.0.1:7700"


@dataclass(frozen=True)
class Settings:
    url: str
    key: str | None

    def __repr__(self) -> str:  # a key never ends up in a log
        return f"Settings(url={self.url!r}, key={'…' if self.key else None})"


def find(url: str | None = None, key: str | None = None) -> Settings:
    """`url` and `key`, else `HOTDESK_URL` and `HOTDESK_KEY`, else what a fleet on this machine wrote into its data directory."""
    url = url or os.environ.get("HOTDESK_URL") or None
    key = key or os.environ.get("HOTDESK_KEY") or None
    if url is None or key is None:
        for data in data_directories():
            written = _address(data / "serve.json")
            if url is not None and written is not None and not _same(url, written):
                continue  # another fleet than the one that was asked for: its key is not meant for it
            found = _text(data / "admin.key")
            if found is None and written is None:
                continue
            url = url or written
            key = key or found
            break
    url = (url or DEFAULT_URL).rstrip("/")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise SettingsError(f"{url!r} is not the address of a fleet: it should look like {DEFAULT_URL}")
    return Settings(url, key)


def data_directories() -> list[Path]:
    """Where fleets of this machine keep their things, the likeliest first."""
    said = os.environ.get("HOTDESK_DATA")
    if said:
        return [Path(said)]
    home = os.environ.get("XDG_DATA_HOME") or os.path.join(os.path.expanduser("~"), ".local", "share")
    own, system = Path(home) / "hotdesk", Path("/var/lib/hotdesk")
    return [system, own] if hasattr(os, "geteuid") and os.geteuid() == 0 else [own, system]


def _address(path: Path) -> str | None:
    text = _text(path)
    if text is None:
        return None
    try:
        written = json.loads(text)
    except ValueError:
        return None
    url = written.get("url") if isinstance(written, dict) else None
    return url.rstrip("/") if isinstance(url, str) and url else None


def _text(path: Path) -> str | None:
    try:
        return path.read_text("utf-8").strip() or None
    except OSError:
        return None


def _same(one: str, other: str) -> bool:
    a, b = urlsplit(one), urlsplit(other)
    loopback = {"localhost", "127.0.0.1", "::1"}
    host = a.hostname == b.hostname or {a.hostname, b.hostname} <= loopback
    return host and (a.port or 80) == (b.port or 80)
