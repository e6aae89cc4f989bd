"""Whatever goes wrong between us and Google: no second instance, no orphan, no desk that is lost."""

from __future__ import annotations

import threading
import time

import compute
import hotdesk
import pytest
import seeds
from conftest import fleet_at
from test_life import WAIT_S, until


@pytest.fixture(scope="module")
def place(account):
    """One stand-in and one fleet for all tests here."""
    from conftest import standing_in

    with standing_in(account) as google, fleet_at(google, account) as fleet:
        yield google, fleet


@pytest.mark.parametrize("kind", compute.PASSING)
def test_an_answer_that_did_not_come(place, kind):
    """Each kind of fault at each step of making and removing a desk."""
    google, fleet = place
    google.made.clear()
    for method in ("instances.aggregatedList", "images.getFromFamily", "instances.insert", "zoneOperations.wait", "instances.get"):
        google.fail(method, kind)
    desk = fleet.client().desks.create(timeout=WAIT_S)
    assert google.made == [(f"hotdesk-{fleet.name}-{desk.id}", "us-central1-a")]
    google.fail("instances.delete", kind)
    desk.delete()
    assert google.of_desk(desk.id) == [] and google.disks == {}
    assert not [one for one in google.faults if one[0] in ("instances.insert", "instances.delete")], "the fault was never met"
    google.faults.clear()


def test_lost_replies_of_the_rest(place):
    """Stopping, starting, saving: the answer is lost, then Google is out of order, then in a hurry; and all is done once."""
    google, fleet = place
    client = fleet.client()
    desk = client.desks.create(timeout=WAIT_S)
    for method in ("instances.stop", "instances.start", "disks.createSnapshot", "snapshots.delete"):
        google.fail(method, "lost", "500", "rate")
    desk.stop()
    desk.start()
    saved = desk.snapshot(memory=False)
    assert len(google.snapshots) == 1
    client.snapshots.delete(saved.id)
    assert google.snapshots == {} and google.of_desk(desk.id)[0]["status"] == "RUNNING"
    desk.delete()
    # a lost answer is asked for once more, and that may be all
    google.faults.clear()


def test_an_operation_that_ends_in_an_error(place):
    """Google says that it failed: the desk is in error with the reason, and nothing is left."""
    google, fleet = place
    google.end_with("instances.insert", *["INTERNAL_ERROR"] * 20)
    with pytest.raises(hotdesk.HotdeskError, match="INTERNAL_ERROR"):
        fleet.client().desks.create(timeout=WAIT_S)
    google.endings.clear()
    assert google.instances == {}


def test_no_rights(place):
    """Refused is not full, and not broken: the reason says what is missing."""
    google, fleet = place
    google.fail("instances.insert", *["forbidden"] * 20)
    with pytest.raises(hotdesk.HotdeskError, match="compute.instances.create"):
        fleet.client().desks.create(timeout=WAIT_S)
    google.faults.clear()


def test_chance(place):
    """Several desks at a time while one answer in eight goes wrong somehow."""
    google, fleet = place
    google.made.clear()
    google.chance = (seeds.rng(), 1 / 8)
    failed: list[str] = []

    def live(number: int) -> None:
        try:
            client = fleet.client()
            desk = client.desks.create(name=f"chance-{number}", timeout=120)
            desk.stop(timeout=120)
            desk.start(timeout=120)
            desk.delete(timeout=120)
        except hotdesk.HotdeskError as e:
            failed.append(f"{number}: {e}")

    threads = [threading.Thread(target=live, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    google.chance = None
    assert failed == []
    names = [name for name, _ in google.made]
    assert len(names) == len(set(names)) == 3, google.made
    assert google.instances == {} and google.disks == {}


@pytest.mark.parametrize("step", ["insert", "delete"])
def test_killed_in_the_midst(google, account, step):
    """`kill -9` while Google is at it: the next one takes it up, and there is one instance or none."""
    with fleet_at(google, account) as fleet:
        client = fleet.client()
        desk = client.desks.create(timeout=WAIT_S) if step == "delete" else None
        google.latency_s = 1.5
        work = threading.Thread(target=lambda: quietly(desk.delete if desk else lambda: client.desks.create(name="mine", timeout=30)))
        work.start()
        until("Google is at it", lambda: f"instances.{step}" in google.asked)
        fleet.kill()
        work.join()
        google.latency_s = 0.0
        time.sleep(0.2)
        fleet.start()
        client = fleet.client()
        if desk:
            until("it is gone", lambda: google.of_desk(desk.id) == [])
        else:
            mine = client.desks.get("mine")
            until("it runs", lambda: mine.refresh().state == hotdesk.State.RUNNING)
            assert mine.picture().size == (640, 480)
            assert len(google.made) == 1 and len(google.of_desk(mine.id)) == 1


def quietly(work) -> None:
    try:
        work()
    except Exception:
        pass
