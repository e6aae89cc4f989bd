"""Vendors that stumble: no desk is lost, none is there twice, nothing is left that somebody pays for."""

from __future__ import annotations

import threading
import time

import e2b
import pytest
import seeds
from conftest import opened, renting
from vendor import FAULTS
from waiting import eventually

import hotdesk
from hotdesk import State


@pytest.mark.parametrize("fault", FAULTS)
def test_a_create_that_stumbles_makes_one_sandbox(vendor, fleet, client, fault):
    client.desks.create("bare", timeout=120).delete()
    vendor.made = 0
    vendor.fail(vendor.create_call, fault, times=2)
    desk = client.desks.create("bare", timeout=120)
    assert desk.state is State.RUNNING
    assert vendor.made == 1 and len(vendor.of_desk(desk.id)) == 1
    desk.delete()


def test_a_lost_reply_of_a_server_without_idempotency_makes_one_sandbox():
    with opened(e2b.E2b(old=True)) as vendor, renting(vendor) as fleet:
        vendor.fail("POST /sandboxes", "lost", times=2)
        desk = fleet.client().desks.create("bare", timeout=120)
        assert desk.state is State.RUNNING and vendor.made == 1
        assert desk.exec("echo on").stdout == "on\n"
        desk.delete()
        assert vendor.alive() == []


def test_everything_stumbles_and_nothing_is_lost(vendor, fleet, client):
    client.desks.create("bare", timeout=120).delete()
    vendor.chaos = (seeds.rng(), 0.2)
    twice: list[str] = []

    def watch():
        while vendor.chaos:
            desks = [s.body.get("labels", s.body.get("metadata", {})) for s in vendor.alive()]
            names = [d.get("hotdesk.desk") or d.get("hotdesk_desk") for d in desks]
            twice.extend({n for n in names if names.count(n) > 1})
            time.sleep(0.05)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        desks = [client.desks.create("bare", timeout=0) for _ in range(2)]
        for desk in desks:
            desk.wait(State.RUNNING, timeout=180)
            desk.files.write("~/kept", desk.id)
        desks[0].stop(timeout=180)
        desks[0].start(timeout=180)
        assert {d.id: d.files.read("~/kept").decode() for d in desks} == {d.id: d.id for d in desks}
        for desk in desks:
            desk.delete(timeout=180)
    finally:
        vendor.chaos = None
        watcher.join()
    assert not twice, f"two sandboxes for {set(twice)}"
    eventually(lambda: vendor.alive() == [], "all is removed", limit=30)


def test_a_quota_is_no_fault(vendor, fleet, client):
    first = client.desks.create("bare", timeout=120)
    vendor.quota = 1
    before = len([call for call in vendor.calls if call.startswith(vendor.create_call)])
    with pytest.raises(hotdesk.HotdeskError, match="no room"):
        client.desks.create("bare", timeout=60)
    after = len([call for call in vendor.calls if call.startswith(vendor.create_call)])
    assert after - before <= 2, "a quota does not come back by asking"
    assert first.refresh().state is State.RUNNING
    info = client.info()
    assert next(p for p in info.providers if p.name == vendor.name).ready, "a full account is not a provider that is away"
    first.delete()


def test_a_key_that_is_refused_harms_no_desk(vendor, fleet, client):
    desk = client.desks.create("bare", timeout=120)
    vendor.key_is_good = False
    provider = lambda: next(p for p in client.info().providers if p.name == vendor.name)  # noqa: E731
    eventually(lambda: not provider().ready, "the provider is away", limit=30)
    assert "key" in provider().reason
    assert desk.refresh().state is State.RUNNING and desk.exec("echo on").stdout == "on\n", "who is inside stays inside"
    with pytest.raises(hotdesk.HotdeskError, match="key"):
        client.desks.create("bare", timeout=30)
    vendor.key_is_good = True
    eventually(lambda: provider().ready, "the provider is back", limit=30)
    desk.delete()


def test_a_build_that_fails_says_why(vendor, fleet, client):
    vendor.build_error = "manifest for registry.example/hotdesk/bare:1 not found"
    with pytest.raises(hotdesk.HotdeskError, match="manifest for registry.example"):
        client.desks.create("bare", timeout=60)
    vendor.build_error = None
    desk = client.desks.create("bare", timeout=120)
    assert desk.state is State.RUNNING, "the next try builds anew"
    desk.delete()


def test_a_killed_orchestrator_finds_everything_again(vendor, fleet, client):
    kept = client.desks.create("bare", timeout=120)
    kept.files.write("~/kept", "x")
    made = vendor.made
    vendor.fail(vendor.create_call, "lost")
    half = client.desks.create("bare", timeout=0)
    eventually(lambda: vendor.made == made + 1, "the create arrives", limit=60)
    fleet.kill()
    same = vendor.of_desk(kept.id)
    fleet.start()
    client = fleet.client()
    half = client.desks.get(half.id).wait(State.RUNNING, timeout=120)
    assert len(vendor.of_desk(half.id)) == 1 and vendor.made == made + 1
    assert client.desks.get(kept.id).files.read("~/kept") == b"x" and vendor.of_desk(kept.id) == same
    for desk in client.desks.list():
        desk.delete(timeout=60)


def test_an_orphan_is_kept_until_somebody_decides(vendor, fleet, client):
    desk = client.desks.create("bare", timeout=120)
    sandbox = vendor.of_desk(desk.id)[0]
    for names in (sandbox.body.get("labels"), sandbox.body.get("metadata")):
        for name in ("hotdesk.desk", "hotdesk_desk"):
            if names and name in names:
                names[name] = "d-nobodysdesk0"
    if vendor.name == "daytona":
        sandbox.name = sandbox.name.replace(desk.id, "d-nobodysdesk0")
    known = lambda: [one["id"] for one in fleet.request("GET", "/v1/orphans").json()["orphans"]]  # noqa: E731
    eventually(lambda: known() == ["d-nobodysdesk0"], "the orphan is told", limit=70)
    assert len(vendor.of_desk("d-nobodysdesk0")) == 1, "it may be somebody's"
    assert fleet.request("DELETE", "/v1/orphans/d-nobodysdesk0").status_code == 204
    eventually(lambda: vendor.of_desk("d-nobodysdesk0") == [], "the orphan is removed", limit=20)
    desk.delete(timeout=60)


def test_time_does_not_end_a_desk():
    with opened(e2b.E2b()) as vendor, renting(vendor, settings=vendor.settings(timeout=6)) as fleet:
        client = fleet.client()
        desk = client.desks.create("bare", timeout=120)
        desk.exec("sleep 1000 >/dev/null 2>&1 & echo $! > ~/sleeper")
        sandbox = vendor.of_desk(desk.id)[0]
        end = time.monotonic() + 10
        while time.monotonic() < end:
            assert sandbox.state == "running"
            time.sleep(0.2)
        assert any(call.endswith("/timeout") for call in vendor.calls)
        # Away for longer than the time-out: paused, not gone, and resumed as it was.
        fleet.kill()
        eventually(lambda: sandbox.state == "paused", "the sandbox is paused", limit=30)
        fleet.start()
        desk = fleet.client().desks.get(desk.id)
        eventually(lambda: sandbox.state == "running", "the sandbox is resumed", limit=60)
        desk.wait(State.RUNNING, timeout=60)
        assert desk.exec("kill -0 $(cat ~/sleeper) && echo on").stdout == "on\n"
        desk.delete()
        assert vendor.alive() == []


def test_a_new_preview_token_is_found():
    import daytona

    with opened(daytona.Daytona()) as vendor, renting(vendor) as fleet:
        desk = fleet.client().desks.create("bare", timeout=120)
        sandbox = vendor.of_desk(desk.id)[0]
        # As after a start by somebody else.
        sandbox.token, sandbox.updated = "another", "2030-01-01T00:00:00.000Z"

        def works() -> bool:
            try:
                return desk.exec("echo on").stdout == "on\n"
            except hotdesk.HotdeskError as e:
                assert "looked for" in str(e) or "not where" in str(e), e
                return False

        assert not works()
        eventually(works, "the desk is found again", limit=60)
        desk.delete()
