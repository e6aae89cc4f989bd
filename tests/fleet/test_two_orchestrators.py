"""Two orchestrators over one fleet in PostgreSQL: one is killed, the other carries on, and no desk is acted on twice."""

from __future__ import annotations

import random
import shutil
import subprocess
import tempfile
import threading
from collections import Counter

import chaos
import pytest
import seeds
import served
from waiting import eventually

import hotdesk
from hotdesk import State

pytestmark = pytest.mark.alone


@pytest.fixture
def postgres():
    place = tempfile.mkdtemp(prefix="hd-pg-", dir="/tmp")
    url = subprocess.run([served.ROOT / "scripts/postgres", "start", place], check=True, capture_output=True, text=True).stdout.strip()
    try:
        yield url
    finally:
        subprocess.run([served.ROOT / "scripts/postgres", "stop", place], check=False)
        shutil.rmtree(place, ignore_errors=True)


@pytest.fixture
def pair(postgres):
    """Two that share a store and, being on one machine, a data directory."""
    data = tempfile.mkdtemp(prefix="hotdesk-pair-")
    one = served.Serve(data=data, settings=f'store = "{postgres}"\n').start()
    two = served.Serve(data=data).start()
    try:
        yield one, two
    except BaseException:
        print(one.tail(), two.tail())
        raise
    finally:
        if one.running:
            one.stop()
        two.close()
        shutil.rmtree(data, ignore_errors=True)


def test_both_serve_the_same_desks(pair):
    one, two = pair
    a, b = one.client(), two.client(one.key)
    desk = a.desks.create(served.TEMPLATE, name="common", resources=chaos.SMALL)
    other = b.desks.get("common")
    assert other.id == desk.id and other.exec("echo hi").stdout == "hi\n"
    other.stop()
    assert desk.refresh().state is State.STOPPED
    desk.start()
    assert other.refresh().screenshot()[:4] == b"\x89PNG"
    seen: list[hotdesk.Event] = []
    follow = threading.Thread(target=lambda: seen.extend(_until_deleted(b, desk.id)), daemon=True)
    follow.start()
    eventually(lambda: seen, "past events are told first")
    desk.delete()
    follow.join(30)
    assert seen and seen[-1].state is State.DELETED, "events of one are seen at the other"


def _until_deleted(fleet, desk):
    for event in fleet.events(after=0, desk=desk, timeout=25):
        yield event
        if event.state is State.DELETED:
            return


def test_one_is_killed_and_the_other_carries_on(pair):
    one, two = pair
    rng = seeds.rng()
    end = threading.Event()
    # half of the clients talk to each; those of the one that dies go on with the other
    crew = [chaos.Client(n, (one if n % 2 else two).url, one.key, random.Random(rng.random()), end, {}) for n in range(6)]
    begun = [two.client(one.key).desks.create(served.TEMPLATE, resources=chaos.SMALL, timeout=0) for _ in range(2)]
    for client in crew:
        client.start()
    busy(crew, 4)
    one.kill()
    # those that talk to the survivor
    busy(crew[::2], 6)
    one.start()
    busy(crew, 4)
    end.set()
    for client in crew:
        client.join(120)
        assert not client.is_alive()
    accounts = [c.account for c in crew] + [chaos.Account(created={d.id for d in begun})]
    chaos.judge(two, accounts)
    chaos.no_twins(two)
    events = every_event(two.client(one.key))
    numbers = [e.number for e in events]
    assert numbers == sorted(set(numbers)), "the log has an order"
    for desk, log in _by_desk(events).items():
        made = Counter(log)
        assert made[State.CREATING] == 1, f"{desk} was made {made[State.CREATING]} times: {log}"
        for before, after in zip(log, log[1:]):
            assert after in ALLOWED[before] or after is before, f"{desk} went from {before} to {after}: {log}"


def busy(crew: list[chaos.Client], more: int) -> None:
    """Until each client has got so many more requests done."""
    goals = [(client, client.account.done.total() + more) for client in crew]
    eventually(lambda: all(client.account.done.total() >= goal for client, goal in goals), f"each of {len(crew)} clients gets {more} requests done", limit=120)


def test_what_the_dead_one_began_is_finished(pair):
    one, two = pair
    desks = [one.client().desks.create(served.TEMPLATE, resources=chaos.SMALL, timeout=0) for _ in range(4)]
    one.kill()
    survivor = two.client(one.key)
    for desk in desks:
        eventually(lambda: survivor.desks.get(desk.id).state is State.RUNNING, f"{desk.id} runs although the one that made it is dead", limit=90)
    chaos.no_twins(two)
    for desk in desks:
        log = [e.state for e in survivor.past_events(desk=desk.id, limit=1000) if e.kind == "state"]
        assert Counter(log)[State.RUNNING] == 1, log


def every_event(fleet) -> list[hotdesk.Event]:
    events: list[hotdesk.Event] = []
    while page := fleet.past_events(after=events[-1].number if events else 0, limit=1000):
        events += page
    return events


def _by_desk(events):
    logs: dict[str, list[State]] = {}
    for event in events:
        if event.kind == "state" and event.desk and event.state:
            logs.setdefault(event.desk, []).append(event.state)
    return logs


S = State
ALLOWED = {
    S.CREATING: {S.RUNNING, S.ERROR, S.DELETING},
    S.RUNNING: {S.STOPPING, S.STOPPED, S.STARTING, S.RESETTING, S.DELETING, S.ERROR},
    S.STOPPING: {S.STOPPED, S.ERROR, S.DELETING},
    S.STOPPED: {S.STARTING, S.RESETTING, S.ARCHIVING, S.DELETING, S.ERROR},
    S.STARTING: {S.RUNNING, S.ERROR, S.DELETING, S.STOPPING},
    S.RESETTING: {S.RUNNING, S.ERROR, S.DELETING, S.STOPPING},
    S.ERROR: {S.DELETING, S.STARTING, S.RESETTING, S.STOPPING},
    S.DELETING: {S.DELETED, S.ERROR},
    S.DELETED: set(),
}
