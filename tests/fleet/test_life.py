"""The life of desks: policies, pools, limits, money, archives, snapshots and forks."""

from __future__ import annotations

import json
import re
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest
import rfb
import s3
import served
from served import TEMPLATE
from waiting import eventually

import hotdesk
from hotdesk import Policy, Resources, State

SMALL = Resources(cpus=0.5, memory_mib=512, disk_mib=1024)
NEVER = {"auto_stop_s": 0, "auto_archive_s": 0, "auto_delete_s": 0, "ttl_s": 0}


def states(client, desk) -> list[State]:
    return [e.state for e in client.past_events(desk=desk.id, limit=1000) if e.kind == "state" and e.state]


# ── the state machine from outside ───────────────────────────────────────────


def test_a_whole_life(shared):
    client = shared.client()
    desk = client.desks.create(TEMPLATE, name="whole", labels={"a": "1"}, env={"WORD": "grüße"}, resources=SMALL, screen=(1024, 768))
    assert desk.state is State.RUNNING and desk.info.screen == hotdesk.Size(1024, 768) and desk.info.resources == SMALL
    assert desk.exec("echo $WORD; id -u; pwd").stdout == "grüße\n1000\n/home/user\n"
    assert desk.screenshot()[:4] == b"\x89PNG"
    desk.files.write("~/kept", "x")
    assert desk.stop().state is State.STOPPED
    assert desk.stop().state is State.STOPPED, "what is done is not done again"
    with pytest.raises((hotdesk.Conflict, hotdesk.Unavailable), match="stopped"):
        desk.screenshot()
    assert desk.start().state is State.RUNNING and desk.files.read("~/kept") == b"x", "files outlive a stop"
    assert desk.reset().state is State.RUNNING
    with pytest.raises(hotdesk.NotFound):
        desk.files.read("~/kept")
    assert desk.exec("echo $WORD").stdout == "grüße\n"
    desk.update(name="renamed", labels={"a": None, "b": "2"})
    assert client.desks.get("renamed").info.labels == {"b": "2"}
    assert [d.id for d in client.desks.list(labels={"b": "2"})] == [desk.id] and not client.desks.list(labels={"b": "3"})
    usage = desk.usage()
    assert usage.memory_bytes > 1 << 20 and usage.processes >= 3
    assert desk.console(20)
    desk.delete()
    with pytest.raises(hotdesk.NotFound):
        client.desks.get("renamed")
    seen = states(client, desk)
    wanted = [State.CREATING, State.RUNNING, State.STOPPING, State.STOPPED, State.STARTING, State.RUNNING, State.RESETTING, State.RUNNING, State.DELETING, State.DELETED]
    assert [s for i, s in enumerate(seen) if i == 0 or seen[i - 1] != s] == wanted


def test_the_fleet_is_restarted_while_desks_run(shared):
    client = shared.client()
    with client.desks.create(TEMPLATE, resources=SMALL) as desk:
        ticking = desk.processes.start("while :; do date +%s%N > ~/tick; sleep 0.05; done")
        for end in (shared.kill, shared.stop):
            end()
            shared.start()
            assert desk.refresh().state is State.RUNNING
            assert desk.processes.get(ticking).running, "the desk did not notice"
            before = desk.files.read("~/tick")
            eventually(lambda: desk.files.read("~/tick") not in (b"", before), "the program goes on")


def test_a_desk_that_dies_is_seen(shared):
    """Its server is killed from outside; the fleet notices, and either heals it or says what happened."""
    client = shared.client()
    with client.desks.create(TEMPLATE, resources=SMALL) as desk:
        mark = len(states(client, desk))
        victims = served.leftovers.desk_processes(shared.data, shared.name).get(desk.id)
        assert victims, "the desk has processes"
        for pid in victims:
            subprocess.run(["kill", "-9", str(pid)], check=False)
        eventually(lambda: len(states(client, desk)) > mark, "an event tells it", limit=60)
        eventually(lambda: desk.refresh().state in (State.RUNNING, State.STOPPED, State.ERROR) and not desk.state.passing, "it comes to rest", limit=60)
        assert desk.info.reason
        if desk.state is State.RUNNING:
            assert desk.screenshot()


def test_wrong_requests_leave_nothing(shared):
    client = shared.client()
    before = {d.id for d in client.desks.list()}
    for wrong in (
        {"template": "no-such-template"},
        {"provider": "no-such-provider"},
        {"snapshot": "s-nosuchsnapsh"},
        {"resources": {"cpus": -1.0}},
        {"resources": {"memory_mib": 1}},
        {"labels": {"": "x"}},
        {"name": "x" * 5000},
        {"screen": (0, 0)},
    ):
        with pytest.raises((hotdesk.Invalid, hotdesk.NotFound, hotdesk.Conflict)) as e:
            client.desks.create(**{"template": TEMPLATE, **wrong} if "snapshot" not in wrong else wrong)
        assert str(e.value), wrong
    with client.desks.create(TEMPLATE, name="once", resources=SMALL):
        with pytest.raises(hotdesk.Conflict):
            client.desks.create(TEMPLATE, name="once", resources=SMALL)
    assert {d.id for d in client.desks.list() if d.state is not State.DELETED} == before


# ── policies ─────────────────────────────────────────────────────────────────


def test_an_idle_desk_is_stopped_and_a_busy_one_is_not(shared):
    client = shared.client()
    policy = Policy(auto_stop_s=12, auto_archive_s=0, auto_delete_s=0, ttl_s=0)
    desks = {name: client.desks.create(TEMPLATE, name=name, resources=SMALL, policy=NEVER) for name in ("command", "cpu", "viewed", "idle")}
    from websockets.sync.client import connect

    with connect(desks["viewed"].view_url, subprotocols=["binary"], max_size=None) as view:
        rfb.greet(view)
        desks["command"].processes.start(["sleep", "300"])
        # its own parent, so that it is no command of ours that counts but the work that it does
        desks["cpu"].exec("setsid sh -c 'while :; do :; done' >/dev/null 2>&1 &")
        for desk in desks.values():
            desk.update(policy=policy)
        desks["idle"].wait(State.STOPPED, timeout=120)
        assert "idle" in desks["idle"].info.reason.lower(), desks["idle"].info.reason
        assert desks["command"].refresh().state is State.RUNNING and desks["command"].info.busy == "command"
        assert desks["viewed"].refresh().state is State.RUNNING and desks["viewed"].info.busy == "live view"
        if desks["cpu"].refresh().state is State.RUNNING:
            assert desks["cpu"].info.busy == "cpu"
        else:  # a machine that gives a desk less than a tenth of a core can't see that it works
            assert load_told(client, desks["cpu"]) < 10, "a desk that works was stopped"
    by = [e.by for e in client.past_events(desk=desks["idle"].id, limit=100) if e.state is State.STOPPING]
    assert set(by) == {"policy"}, by
    desks["viewed"].wait(State.STOPPED, timeout=60)
    for desk in desks.values():
        desk.delete()


def load_told(client, desk) -> float:
    """The share of a core, in percent, that the event of a desk's stop tells of."""
    reasons = " ".join(e.reason for e in client.past_events(desk=desk.id, limit=100) if e.state in (State.STOPPING, State.STOPPED))
    found = re.search(r"CPU ([0-9.]+) %", reasons)
    assert found, f"a stop tells what was seen: {reasons}"
    return float(found[1])


def test_ttl_and_extend(shared):
    client = shared.client()
    longer = client.desks.create(TEMPLATE, name="longer", resources=SMALL, policy={**NEVER, "ttl_s": 60})
    first = longer.info.expires_at
    assert first and first > longer.info.created_at
    assert longer.extend(3600).info.expires_at > first
    short = client.desks.create(TEMPLATE, name="short", resources=SMALL, policy={**NEVER, "ttl_s": 6})
    eventually(lambda: gone(client, short), "the end of its life", limit=60)
    assert longer.refresh().state is State.RUNNING
    longer.delete()


def test_auto_delete_of_a_stopped_desk(shared):
    client = shared.client()
    desk = client.desks.create(TEMPLATE, resources=SMALL, policy={**NEVER, "auto_delete_s": 3})
    desk.stop()
    eventually(lambda: gone(client, desk), "a stopped desk is deleted", limit=60)


def gone(client, desk) -> bool:
    try:
        return client.desks.get(desk.id).state is State.DELETED
    except hotdesk.NotFound:
        return True


# ── pools ────────────────────────────────────────────────────────────────────


def test_pools(fleet):
    client = fleet.client()
    client.pools.set(TEMPLATE, min=2, max=3, resources=SMALL)
    pool = lambda: next(p for p in client.pools.list() if p.template == TEMPLATE)  # noqa: E731
    eventually(lambda: pool().ready >= 2, "the pool fills", limit=120)
    assert not client.desks.list(), "what waits in a pool is nobody's desk"
    warm = {d for d in served.leftovers.running_desks(fleet.data, fleet.name)}
    claimed = [client.desks.create(TEMPLATE, name=f"claimed-{n}", resources=SMALL, labels={"n": str(n)}) for n in range(2)]
    assert {d.id for d in claimed} <= warm, "a claim takes a desk that was running"
    assert [d.info.labels for d in claimed] == [{"n": "0"}, {"n": "1"}] and [d.name for d in claimed] == ["claimed-0", "claimed-1"]
    assert claimed[0].exec("echo ok").stdout == "ok\n"
    assert pool().claims >= 2
    eventually(lambda: pool().ready >= 2, "the pool is filled again", limit=120)
    fleet.kill()
    fleet.start()
    eventually(lambda: pool().ready >= 2, "a pool outlives the orchestrator", limit=120)
    assert len(served.leftovers.running_desks(fleet.data, fleet.name)) <= 2 + 3
    other = client.desks.create(TEMPLATE, resources=Resources(cpus=1.0, memory_mib=700, disk_mib=1024))
    assert other.info.resources.memory_mib == 700, "a desk of another size is not taken from the pool"
    client.pools.delete(TEMPLATE)
    wanted = {d.id for d in claimed} | {other.id}
    eventually(lambda: served.leftovers.running_desks(fleet.data, fleet.name) == wanted, "a pool that is removed lets its desks go", limit=60)


# ── limits and money ─────────────────────────────────────────────────────────


def test_limits_refuse_with_a_time_or_queue():
    settings = 'max_desks = 3\n[max_desks_per_project]\nsmall = 1\n'
    with served.fleet(settings=settings) as fleet:
        client = fleet.client()
        first = client.desks.create(TEMPLATE, project="small", resources=SMALL)
        with pytest.raises(hotdesk.LimitReached) as e:
            client.desks.create(TEMPLATE, project="small", resources=SMALL)
        assert e.value.retry and e.value.retry_after and "1" in str(e.value)
        key = client.keys.create("one desk", project="default", max_desks=1).secret
        theirs = fleet.client(key)
        mine = theirs.desks.create(TEMPLATE, resources=SMALL)
        with pytest.raises(hotdesk.LimitReached):
            theirs.desks.create(TEMPLATE, resources=SMALL)
        client.desks.create(TEMPLATE, resources=SMALL)
        with pytest.raises(hotdesk.LimitReached):
            client.desks.create(TEMPLATE, resources=SMALL)
        made = []
        waiting = threading.Thread(target=lambda: made.append(client.desks.create(TEMPLATE, resources=SMALL, queue=60, timeout=90)))
        waiting.start()
        waiting.join(1.0)
        assert waiting.is_alive() and not made, "it waits for a place"
        mine.delete()
        waiting.join(90)
        assert made and made[0].state is State.RUNNING
        with pytest.raises(hotdesk.LimitReached):
            client.desks.create(TEMPLATE, resources=SMALL, queue=1)
        assert len([d for d in client.desks.list() if d.state is not State.DELETED]) == 3, "a refused desk leaves nothing"
        first.delete()
        with pytest.raises((hotdesk.LimitReached, hotdesk.Invalid)):
            client.desks.create(TEMPLATE, resources=Resources(cpus=2, memory_mib=1 << 30, disk_mib=1024))


def test_a_budget_alerts_and_stops(tmp_path):
    received: list[dict] = []

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self):
            received.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hook)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    # a cent each second for half a CPU, so that a budget of some cents is spent at once
    settings = 'currency = "EUR"\n[prices.local]\ncpu_hour = 72.0\n'
    try:
        with served.fleet(settings=settings) as fleet:
            client = fleet.client()
            client.set_budget("default", total=0.08, alert_at=0.5, webhook=f"http://127.0.0.1:{server.server_port}/hook")
            desk = client.desks.create(TEMPLATE, resources=SMALL, policy=NEVER)
            other = client.desks.create(TEMPLATE, resources=SMALL, policy=NEVER, project="rich")
            eventually(lambda: desk.refresh().info.cost > 0, "a running desk costs", limit=60)
            desk.wait(State.STOPPED, timeout=90)
            assert "budget" in desk.info.reason.lower(), desk.info.reason
            eventually(lambda: len(received) >= 2, "the webhook is called at the share and at the whole", limit=60)
            assert all("default" in json.dumps(r) for r in received), received
            for refused in (lambda: client.desks.create(TEMPLATE, resources=SMALL), desk.start):
                with pytest.raises(hotdesk.BudgetSpent):
                    refused()
            costs = client.costs()
            assert costs.currency == "EUR" and costs.by_project["default"] >= 0.08 and costs.today >= costs.by_project["default"] and costs.by_day
            assert other.refresh().state is State.RUNNING, "each project has its own money"
            client.set_budget("default", total=100.0)
            assert desk.start().state is State.RUNNING
    finally:
        server.shutdown()


# ── archives, snapshots, forks ───────────────────────────────────────────────


def round_trip(fleet):
    client = fleet.client()
    desk = client.desks.create(TEMPLATE, name="kept", labels={"k": "v"}, resources=SMALL)
    desk.files.write("~/notes/grüße.txt", "kept ✓")
    assert desk.exec("head -c 3000000 /dev/urandom > ~/big; ln -s big ~/link; chmod 750 ~/notes; sha256sum ~/big > ~/sum").ok
    desk.stop()
    desk.archive()
    assert desk.state is State.ARCHIVED
    assert not served.leftovers.files(fleet.data + "/local"), "its place on this machine is free"
    fleet.kill()
    fleet.start()
    assert desk.refresh().state is State.ARCHIVED
    desk.start()
    assert desk.state is State.RUNNING and desk.labels == {"k": "v"}
    assert desk.files.read_text("~/notes/grüße.txt") == "kept ✓"
    back = desk.exec("sha256sum -c ~/sum && readlink ~/link && stat -c %a ~/notes && stat -c %u ~/big")
    assert back.stdout.endswith("big\n750\n1000\n"), back
    desk.delete()
    return desk


def test_archive_to_a_directory(tmp_path):
    with served.fleet(settings=f'archive = "{tmp_path}/archives"\n') as fleet:
        desk = round_trip(fleet)
        left = [p for p in (tmp_path / "archives").rglob("*") if p.is_file() and desk.id in str(p)]
        assert not left, f"a deleted desk has no archive: {left}"


def test_a_spoiled_archive_is_refused(tmp_path):
    with served.fleet(settings=f'archive = "{tmp_path}/archives"\n') as fleet:
        client = fleet.client()
        desk = client.desks.create(TEMPLATE, resources=SMALL)
        desk.files.write("~/x", b"y" * 200_000)
        desk.stop()
        desk.archive()
        largest = max((p for p in (tmp_path / "archives").rglob("*") if p.is_file()), key=lambda p: p.stat().st_size)
        content = bytearray(largest.read_bytes())
        content[len(content) // 2] ^= 0xFF
        largest.write_bytes(content)
        with pytest.raises(hotdesk.Problem) as e:
            desk.start()
        assert str(e.value)
        assert desk.refresh().state in (State.ERROR, State.ARCHIVED), "never a desk with half of its files"


def test_archive_to_s3(tmp_path):
    with s3.server(tmp_path) as (settings, environment):
        with served.fleet(settings=settings, environment=environment) as fleet:
            round_trip(fleet)


def test_snapshots_and_forks(shared):
    client = shared.client()
    desk = client.desks.create(TEMPLATE, name="original", resources=SMALL)
    desk.files.write("~/state", "one")
    saved = desk.snapshot("first", memory=False)
    assert saved.state in ("ready", "creating") and saved.desk == desk.id and not saved.memory
    eventually(lambda: next(s for s in client.snapshots.list() if s.id == saved.id).state == "ready", "the snapshot is whole")
    desk.files.write("~/state", "two")
    forks = [client.desks.create(snapshot=saved.id, resources=SMALL) for _ in range(2)]
    assert [f.files.read_text("~/state") for f in forks] == ["one", "one"]
    forks[0].files.write("~/state", "mine")
    assert [d.files.read_text("~/state") for d in (desk, *forks)] == ["two", "mine", "one"], "each goes its own way"
    assert forks[0].reset().files.read_text("~/state") == "one", "reset goes back to the snapshot"
    child = desk.fork(memory=False, name="child")
    assert child.files.read_text("~/state") == "two" and child.id != desk.id and child.name == "child"
    desk.delete()
    assert forks[1].files.read_text("~/state") == "one", "a fork needs its original no more"
    assert client.desks.create(snapshot=saved.id, resources=SMALL).files.read_text("~/state") == "one"
    for one in [d for d in client.desks.list() if d.state is not State.DELETED]:
        one.delete()
    client.snapshots.delete(saved.id)
    with pytest.raises((hotdesk.NotFound, hotdesk.Invalid)):
        client.desks.create(snapshot=saved.id)


def test_a_live_fork_where_the_machine_can(shared):
    client = shared.client()
    can = next(p for p in client.info().providers if p.name == "local").capabilities
    desk = client.desks.create(TEMPLATE, resources=SMALL)
    if not can.live_fork:
        assert can.live_fork_reason, "what can't be had is explained"
        with pytest.raises((hotdesk.Invalid, hotdesk.Conflict)):
            desk.fork(memory=True)
        desk.delete()
        return
    desk.exec("setsid sh -c 'n=0; while :; do n=$((n+1)); echo $n > ~/count; sleep 0.05; done' >/dev/null 2>&1 &")
    eventually(lambda: int(desk.files.read_text("~/count") or 0) > 5, "the program counts")
    before = int(desk.files.read_text("~/count"))
    fork = desk.fork(memory=True)
    eventually(lambda: int(fork.files.read_text("~/count") or 0) > before, "the fork's program goes on")
    assert int(fork.files.read_text("~/count")) < before + 2000, "and does not begin anew"
    eventually(lambda: int(desk.files.read_text("~/count") or 0) > before, "so does the original's")
    assert fork.screenshot()[:4] == b"\x89PNG"
    for one in (desk, fork):
        one.delete()
    assert httpx.get(shared.url + "/health").status_code == 200
