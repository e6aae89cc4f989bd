"""A desk's life at a vendor, from outside: through the gateway, the vendor's edge and its preview link to a real desk."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import httpx
import pytest
from waiting import eventually
from websockets.sync.client import connect

import hotdesk
from hotdesk import State


def test_a_whole_life(vendor, fleet, client):
    desk = client.desks.create("bare", name="far", env={"WORD": "it's grüße"}, screen=(1024, 768), timeout=120)
    assert desk.state is State.RUNNING and desk.info.provider == vendor.name
    assert len(vendor.of_desk(desk.id)) == 1
    assert desk.exec("echo $WORD").stdout == "it's grüße\n"
    assert desk.picture().size == (1024, 768)
    assert "HOTDESK_TOKEN=" not in desk.exec("env").stdout, "the token is not for programs"
    desk.files.write("~/kept", "x" * 300_000)

    # A WebSocket, and a port of the desk's loopback, through everything.
    url = f"{fleet.url.replace('http', 'ws')}/v1/desks/{desk.id}/view?key={fleet.key}"
    with connect(url, open_timeout=20) as stream:
        assert stream.recv(20).startswith(b"RFB ")
    desk.exec("cd / && (python3 -m http.server --bind 127.0.0.1 18999 >/dev/null 2>&1 &)")
    served_at = f"/v1/desks/{desk.id}/ports/18999/etc/hostname"
    answer = eventually_found(fleet, served_at)
    assert answer.text == Path("/etc/hostname").read_text()
    desk.exec("pkill -f 'http.server --bind 127.0.0.1 18999'")

    assert desk.usage().memory_bytes == 1 << 20
    assert desk.console(50)
    assert desk.stop().state is State.STOPPED
    assert desk.start(timeout=120).state is State.RUNNING
    assert len(desk.files.read("~/kept")) == 300_000, "files outlive a stop"

    saved = desk.snapshot(memory=False)
    copy = client.desks.create(snapshot=saved.id, timeout=120)
    assert len(copy.files.read("~/kept")) == 300_000
    assert copy.id != desk.id and len(vendor.alive()) == 2
    copy.delete()
    client.snapshots.delete(saved.id)

    assert desk.reset(timeout=120).state is State.RUNNING
    with pytest.raises(hotdesk.NotFound):
        desk.files.read("~/kept")
    assert client.costs().total >= 0
    desk.delete()
    assert vendor.alive() == []


def eventually_found(fleet, path: str) -> httpx.Response:
    return eventually(lambda: (answer := fleet.request("GET", path)).status_code == 200 and answer, "the port answers", limit=20)


def test_the_key_is_nowhere(vendor, fleet, client):
    client.desks.create("bare", timeout=120).delete()
    log = fleet.tail(10_000_000)
    assert vendor.key not in log
    for file in Path(fleet.data).rglob("*"):
        if file.is_file():
            assert vendor.key.encode() not in file.read_bytes(), file
    with sqlite3.connect(Path(fleet.data, "fleet.db")) as store:
        assert vendor.key not in "".join(store.iterdump())


def test_what_a_vendor_can_not_do_is_refused_before_it_costs(vendor, fleet, client):
    desk = client.desks.create("bare", timeout=120)
    before = len(vendor.calls)
    with pytest.raises(hotdesk.HotdeskError, match="memory|can't|not possible"):
        desk.snapshot(memory=True)
    with pytest.raises(hotdesk.HotdeskError, match="archive"):
        desk.archive()
    made = [call for call in vendor.calls[before:] if call.startswith("POST") and not call.endswith("/timeout")]
    assert made == [], made
    with pytest.raises(hotdesk.HotdeskError, match="has no image"):
        client.desks.create("base", timeout=60)
