"""Copies of the store: made while the fleet is served, put back, and nothing is lost by it that was made since."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import served
from chaos import SMALL
from waiting import eventually

import hotdesk

#: Longer than anything without a record was ever left alone.
LONG_S = 45


def store(fleet: served.Serve, *arguments: str, check: bool = True):
    """A command that looks at the data directory itself."""
    return fleet.hotdesk(*arguments, "--data", fleet.data, check=check)


def orphans(fleet: served.Serve) -> dict[str, dict]:
    return {one["id"]: one for one in json.loads(fleet.hotdesk("orphan", "ls", "--json").stdout)}


def test_an_older_copy_deletes_nothing(tmp_path):
    with served.fleet() as fleet:
        client = fleet.client()
        old = client.desks.create(served.TEMPLATE, name="old", resources=SMALL)
        copy = tmp_path / "copy.db"
        store(fleet, "backup", str(copy))
        assert copy.stat().st_mode & 0o777 == 0o600
        assert store(fleet, "backup", str(copy), check=False).returncode != 0, "a copy is never overwritten"

        precious = client.desks.create(served.TEMPLATE, name="precious", resources=SMALL)
        precious.files.write("~/work", b"of many hours")
        snapshot = precious.snapshot(memory=False)
        served_now = store(fleet, "restore", str(copy), check=False)
        assert served_now.returncode != 0 and "another hotdesk" in served_now.stderr, served_now.stderr
        fleet.stop()
        store(fleet, "restore", str(copy))
        fleet.start()

        client = fleet.client()
        assert client.desks.get("old").refresh().id == old.id
        assert any("older copy" in warning for warning in fleet.get("/ready").json()["warnings"])
        eventually(lambda: set(orphans(fleet)) == {precious.id, snapshot.id}, "both are told", limit=60)
        time.sleep(LONG_S)
        assert all(one["removed_at"] is None for one in orphans(fleet).values())
        assert Path(fleet.data, "local", "desks", precious.id).is_dir(), "a desk that the copy does not know is gone"
        kept = os.listdir(Path(fleet.data, "local", "snapshots"))
        assert any(name.startswith(snapshot.id) for name in kept), "a snapshot that the copy does not know is gone"

        fleet.hotdesk("adopt", precious.id, "--name", "precious", "--template", served.TEMPLATE)
        fleet.hotdesk("adopt", snapshot.id, "--name", "saved", "--template", served.TEMPLATE)
        again = client.desks.get("precious")
        again.start()
        assert again.files.read("~/work") == b"of many hours"
        fork = client.desks.create(snapshot=snapshot.id, resources=SMALL)
        assert fork.files.read("~/work") == b"of many hours"
        fleet.hotdesk("orphan", "settle")
        assert orphans(fleet) == {} and "warnings" not in fleet.get("/ready").json()
        fork.delete(timeout=60)
        again.delete(timeout=60)
        fleet.hotdesk("snapshots", "rm", snapshot.id)


def test_a_store_that_is_gone_deletes_nothing():
    """Moved away as a whole: everything is an orphan, and nothing is touched."""
    with served.fleet() as fleet:
        desk = fleet.client().desks.create(served.TEMPLATE, resources=SMALL)
        desk.files.write("~/work", b"x")
        fleet.stop()
        for path in Path(fleet.data).glob("fleet.db*"):
            path.unlink()
        fleet.start()
        eventually(lambda: desk.id in orphans(fleet), "it is told", limit=60)
        fleet.hotdesk("adopt", desk.id, "--template", served.TEMPLATE)
        again = fleet.client().desks.get(desk.id)
        assert again.state is hotdesk.State.STOPPED
        again.start()
        assert again.files.read("~/work") == b"x"


def test_of_another_fleet_or_damaged(tmp_path):
    with served.fleet() as fleet:
        other = tmp_path / "other.db"
        with served.fleet() as another:
            store(another, "backup", str(other))
        fleet.stop()
        told = store(fleet, "restore", str(other), check=False)
        assert told.returncode != 0 and "of the fleet" in told.stderr, told.stderr
        other.write_bytes(b"no database " * 1000)
        assert store(fleet, "restore", str(other), check=False).returncode != 0
        fleet.start()
