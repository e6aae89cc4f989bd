"""The life of desks at Google: made, used through the gateway, stopped, started, saved, forked, reset, deleted; taken back; adopted."""

from __future__ import annotations

import time

import compute
import hotdesk
import httpx
import pytest
from conftest import fleet_at

WAIT_S = 60


def until(what: str, look, limit: float = WAIT_S):
    end = time.monotonic() + limit
    while not (found := look()):
        assert time.monotonic() < end, f"not within {limit} s: {what}"
        time.sleep(0.1)
    return found


def write(desk, text: str) -> None:
    desk.exec(["sh", "-c", f"echo {text} > $HOME/note"])


def note(desk) -> str:
    return desk.exec(["sh", "-c", "cat $HOME/note 2>/dev/null || true"]).stdout.strip()


def test_a_whole_life(google, fleet):
    client = fleet.client()
    desk = client.desks.create(env={"COLOUR": "blue"}, labels={"Team": "A/b"}, timeout=WAIT_S)
    [instance] = google.of_desk(desk.id)

    # as it was asked for
    assert instance["name"] == f"hotdesk-{fleet.name}-{desk.id}" and instance["zone"].endswith("/us-central1-a")
    assert instance["labels"] == {"hotdesk-fleet": fleet.name, "hotdesk-desk": desk.id, "hotdesk-template": "bare", "team": "a-b"}
    assert "accessConfigs" not in instance["networkInterfaces"][0], "an address on the internet"
    assert instance["machineType"].endswith("/e2-custom-2-4096") and instance["tags"]["items"] == ["hotdesk-desk"]

    # through the gateway
    assert desk.picture().size == (640, 480)
    assert desk.exec(["sh", "-c", "echo $COLOUR"]).stdout.strip() == "blue"
    address = instance["networkInterfaces"][0]["networkIP"]
    assert httpx.get(f"http://{address}:5000/v1/windows").status_code == 401, "the desk asks for its secret"
    assert "hotdesk" in desk.console() or desk.console() != ""
    assert client.desks.get(desk.id).info.cost >= 0

    # files stay over a stop
    write(desk, "kept")
    desk.stop()
    assert instance["status"] == "TERMINATED"
    desk.start()
    assert note(desk) == "kept"

    # a snapshot, a fork of it, and back to the template
    saved = desk.snapshot(memory=False)
    assert saved.size_bytes > 0 and len(google.snapshots) == 1
    fork = desk.fork(memory=False, timeout=WAIT_S)
    assert note(fork) == "kept"
    desk.reset()
    assert note(desk) == "" and len(google.of_desk(desk.id)) == 1
    with pytest.raises(hotdesk.HotdeskError, match="memory"):
        desk.snapshot(memory=True)

    # nothing stays
    for one in (desk, fork):
        one.delete()
        assert google.of_desk(one.id) == []
    client.snapshots.delete(saved.id)


def test_the_machines_own_account(google, account):
    """Without a key file, the metadata server says who we are."""
    credentials = {"GCE_METADATA_HOST": google.url.removeprefix("http://"), "HOME": "/nonexistent"}
    with fleet_at(google, account, credentials=credentials) as fleet:
        fleet.client().desks.create(timeout=WAIT_S).delete()


def test_a_zone_without_room(google, fleet):
    client = fleet.client()
    google.end_with("instances.insert", "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS")
    desk = client.desks.create(timeout=WAIT_S)
    assert [zone for _, zone in google.made] == ["us-central1-b"]
    desk.delete()
    google.end_with("instances.insert", *["ZONE_RESOURCE_POOL_EXHAUSTED"] * len(compute.ZONES))
    with pytest.raises(hotdesk.HotdeskError, match="no such machine left"):
        client.desks.create(timeout=WAIT_S)


def test_a_quota_is_no_fault(google, fleet):
    """The rest of the region is not tried, another region is; and nothing is asked again in vain."""
    client = fleet.client()
    google.fail("instances.insert", "quota")
    desk = client.desks.create(timeout=WAIT_S)
    assert [zone for _, zone in google.made] == ["europe-west4-a"]
    desk.delete()
    google.asked.clear()
    google.fail("instances.insert", "quota")
    google.end_with("instances.insert", "QUOTA_EXCEEDED")
    with pytest.raises(hotdesk.HotdeskError, match="no room.*quota"):
        client.desks.create(timeout=WAIT_S)
    assert google.asked.count("instances.insert") == 2


def test_no_image(google, fleet):
    google.images.clear()
    with pytest.raises(hotdesk.HotdeskError, match="hotdesk image publish"):
        fleet.client().desks.create(timeout=WAIT_S)


def test_taken_back_and_started_again(google, account):
    with fleet_at(google, account, spot=True) as fleet:
        desk = fleet.client().desks.create(timeout=WAIT_S)
        assert google.of_desk(desk.id)[0]["scheduling"]["provisioningModel"] == "SPOT"
        write(desk, "kept")
        # found at once by a fleet that starts
        fleet.kill()
        google.preempt(desk.id)
        fleet.start()
        desk = fleet.client().desks.get(desk.id)
        until("it runs again", lambda: google.of_desk(desk.id)[0]["status"] == "RUNNING" and desk.refresh().state == hotdesk.State.RUNNING)
        assert note(desk) == "kept"


def test_taken_back_and_made_anew_elsewhere(google, account):
    with fleet_at(google, account, spot=True, preempted="recreate") as fleet:
        desk = fleet.client().desks.create(timeout=WAIT_S)
        fleet.kill()
        google.preempt(desk.id)
        google.end_with("instances.start", "ZONE_RESOURCE_POOL_EXHAUSTED")
        google.end_with("instances.insert", "ZONE_RESOURCE_POOL_EXHAUSTED")
        fleet.start()
        desk = fleet.client().desks.get(desk.id)
        until("it runs in another zone", lambda: any(one["zone"].endswith("-b") for one in google.of_desk(desk.id)))
        until("it is ready", lambda: desk.refresh().state == hotdesk.State.RUNNING)


def test_taken_back_and_said_so(google, account):
    with fleet_at(google, account, spot=True, preempted="error") as fleet:
        desk = fleet.client().desks.create(timeout=WAIT_S)
        fleet.kill()
        google.preempt(desk.id)
        fleet.start()
        desk = fleet.client().desks.get(desk.id)
        until("it is in error", lambda: desk.refresh().state == hotdesk.State.ERROR)
        assert "took its spot instance back" in desk.info.reason
        assert desk.start().state == hotdesk.State.RUNNING, "who starts it gets it"


def test_what_is_nobodys_is_removed(google, account):
    """A second instance of a desk goes at once; one without a record is kept until somebody decides; others' stay."""
    with fleet_at(google, account) as fleet:
        desk = fleet.client().desks.create(timeout=WAIT_S)
        fleet.kill()
        [own] = google.of_desk(desk.id)
        foreign = {"name": "other", "labels": {"hotdesk-fleet": "other000", "hotdesk-desk": "d-other"}}
        orphan = {"name": f"hotdesk-{fleet.name}-d-orphan", "labels": own["labels"] | {"hotdesk-desk": "d-orphan"}}
        second = {"creationTimestamp": compute.now()}
        for zone, changes in (("us-central1-b", second), ("us-central1-b", orphan), ("europe-west4-a", foreign)):
            plant(google, own, zone, changes)
        fleet.start()
        until("the second instance is gone", lambda: len(google.of_desk(desk.id)) == 1)
        assert google.of_desk(desk.id) == [own]
        until("the orphan is told", lambda: [one["id"] for one in fleet.request("GET", "/v1/orphans").json()["orphans"]] == ["d-orphan"], 90)
        assert len(google.of_desk("d-orphan")) == 1, "it may be somebody's"
        assert fleet.request("DELETE", "/v1/orphans/d-orphan").status_code == 204
        until("the orphan is gone", lambda: google.of_desk("d-orphan") == [], 90)
        assert len(google.of_desk("d-other")) == 1
        key = ("europe-west4-a", "other")
        google.machines.pop(key).remove()
        del google.instances[key], google.disks[key]


def plant(google, own, zone, changes):
    """Puts an instance there that nobody asked for."""
    one = {**own, "zone": google.link(f"zones/{zone}"), "id": str(next(google.numbers)), **changes}
    key = (zone, one["name"])
    folder = google.folder / f"planted-{zone}-{one['name']}"
    folder.mkdir()
    with google.lock:
        google.instances[key] = one
        google.machines[key] = compute.Machine(folder, "127.0.0.1", {})
        google.disks[key] = {"kind": "compute#disk", "name": one["name"], "zone": one["zone"], "labels": one["labels"], "users": ["x"], "creationTimestamp": compute.now()}


def test_a_zone_that_does_not_answer_loses_nothing(google, account):
    with fleet_at(google, account) as fleet:
        desk = fleet.client().desks.create(timeout=WAIT_S)
        fleet.kill()
        google.unreachable = ["us-central1-a"]
        fleet.start(wait=False)
        until("it is known to be away", lambda: fleet.tail().find("does not answer") >= 0)
        assert google.of_desk(desk.id) and "instances.delete" not in google.asked and "instances.start" not in google.asked
        google.unreachable = []
        fleet.wait_ready()
        desk = fleet.client().desks.get(desk.id)
        until("it runs", lambda: desk.refresh().state == hotdesk.State.RUNNING)
        assert desk.picture().size == (640, 480)
