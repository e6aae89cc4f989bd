"""A random schedule: clients that make, stop, start, reset and delete desks while the orchestrator is killed again and again.

Each client remembers what was acknowledged to it. Afterwards `judge` compares three accounts that know nothing of each other: what was
acknowledged, what the store says, and what is on the machine.
"""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Callable

import leftovers
from served import TEMPLATE, Serve
from waiting import eventually

import hotdesk
from hotdesk import Resources, State

SECONDS = float(os.environ.get("HOTDESK_CHAOS_SECONDS") or 30)
SMALL = Resources(cpus=0.5, memory_mib=256, disk_mib=256)
NEVER = {"auto_stop_s": 0, "auto_archive_s": 0, "auto_delete_s": 0, "ttl_s": 0}
#: Desks that one client has at a time; eight clients then have enough for two cores.
MOST_EACH = 2
#: How long the fleet may take to be right again, on a machine that just did all this.
SETTLE_S = 120


@dataclass
class Account:
    """What one client was told."""

    created: set[str] = field(default_factory=set)
    deleted: set[str] = field(default_factory=set)
    #: Deletes that were asked for and never acknowledged: such a desk may be there or not.
    doubtful: set[str] = field(default_factory=set)
    done: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


class Client(threading.Thread):
    def __init__(self, number: int, url: str, key: str, rng: random.Random, end: threading.Event, wishes: dict) -> None:
        super().__init__(name=f"client-{number}", daemon=True)
        self.fleet = hotdesk.Hotdesk(url, key)
        self.number, self.rng, self.end, self.wishes = number, rng, end, wishes
        self.account = Account()
        self.mine: dict[str, hotdesk.Desk] = {}

    def run(self) -> None:
        while not self.end.is_set():
            choice = self.rng.choices(["create", "stop", "start", "reset", "delete", "look"], [4, 2, 2, 2, 3, 2])[0]
            if choice == "create" and len(self.mine) >= MOST_EACH:
                choice = "delete"
            if choice != "create" and not self.mine:
                choice = "create"
            try:
                getattr(self, f"do_{choice}")()
                self.account.done[choice] += 1
            except (hotdesk.ConnectionFailed, hotdesk.Timeout, hotdesk.Unavailable, hotdesk.Conflict, hotdesk.LimitReached, hotdesk.DeskFailed) as e:
                self.account.failed[f"{choice}: {type(e).__name__}"] += 1
            except hotdesk.NotFound as e:
                if choice != "delete":
                    self.account.wrong.append(f"{choice}: {e}")
            except Exception as e:  # a 500, a 400, an answer that is no JSON: nothing that a client should ever see
                self.account.wrong.append(f"{choice}: {e!r}")
            self.end.wait(self.rng.uniform(0, 0.3))
        self.fleet.close()

    def pick(self) -> hotdesk.Desk:
        return self.mine[self.rng.choice(sorted(self.mine))]

    def do_create(self) -> None:
        # waits or not: an acknowledged desk must be there either way
        wait = self.rng.choice([0.0, 20.0])
        try:
            wishes = {"resources": SMALL, "policy": NEVER, **self.wishes}
            desk = self.fleet.desks.create(TEMPLATE, labels={"client": str(self.number)}, timeout=wait, **wishes)
        except hotdesk.DeskFailed as e:
            if e.desk:  # it was written down and then failed; it is there, in error
                self.account.doubtful.add(e.desk)
            raise
        self.mine[desk.id] = desk
        self.account.created.add(desk.id)

    def do_stop(self) -> None:
        self.pick().stop(timeout=20)

    def do_start(self) -> None:
        self.pick().start(timeout=20)

    def do_reset(self) -> None:
        self.pick().reset(timeout=20)

    def do_look(self) -> None:
        self.pick().refresh()

    def do_delete(self) -> None:
        desk = self.pick()
        self.account.doubtful.add(desk.id)
        del self.mine[desk.id]
        desk.delete(timeout=self.rng.choice([0.0, 20.0]))
        self.account.doubtful.discard(desk.id)
        self.account.deleted.add(desk.id)


def run(serve: Serve, *, seconds: float, clients: int = 8, rng: random.Random, strike: Callable[[], None] | None = None, wishes: dict | None = None) -> list[Account]:
    """Lets the clients loose for so many seconds and strikes every few of them: by default `kill -9` and a new start."""
    end = threading.Event()
    crew = [Client(n, serve.url, serve.key, random.Random(rng.random()), end, wishes or {}) for n in range(clients)]
    for client in crew:
        client.start()
    until = time.monotonic() + seconds
    strikes = 0
    while time.monotonic() < until:
        time.sleep(min(rng.uniform(1.5, 4.0), max(0.0, until - time.monotonic())))
        if strike is not None:
            strike()
        else:
            serve.kill()
            serve.start(wait=False)
        strikes += 1
    end.set()
    for client in crew:
        client.join(180)
        assert not client.is_alive(), f"{client.name} hangs"
    done = sum((c.account.done for c in crew), Counter())
    failed = sum((c.account.failed for c in crew), Counter())
    print(f"struck {strikes} times; done {dict(done)}; not done {dict(failed)}", file=sys.stderr, flush=True)
    assert done["create"] > 0 and done["delete"] > 0, "the clients got nothing done"
    return [c.account for c in crew]


def judge(serve: Serve, accounts: list[Account], *, errors: bool = False) -> None:
    """Store, reality and what was acknowledged agree. With `errors`, desks in error are no surprise."""
    serve.wait_ready()
    wrong = [w for a in accounts for w in a.wrong]
    assert not wrong, wrong[:10]
    with serve.client() as fleet:

        def at_rest():
            desks = [d for d in fleet.desks.list() if d.state is not State.DELETED]
            return None if any(d.state.passing for d in desks) else (desks,)

        (desks,) = eventually(at_rest, "every desk is in a state that lasts", limit=SETTLE_S)
        known = {d.id: d for d in desks}
        created = set().union(*(a.created for a in accounts))
        deleted = set().union(*(a.deleted for a in accounts))
        doubtful = set().union(*(a.doubtful for a in accounts))
        lost = created - deleted - doubtful - set(known)
        assert not lost, f"acknowledged and lost: {lost}"
        undead = deleted & set(known)
        assert not undead, f"deleted and still there: {[(i, known[i].state, known[i].info.reason) for i in undead]}"
        broken = [(d.id, d.info.reason) for d in desks if d.state is State.ERROR]
        assert errors or not broken, f"in error: {broken}"

        running = {d.id for d in desks if d.state is State.RUNNING}
        eventually(lambda: leftovers.running_desks(serve.data, serve.name) == running, "what runs is what should run", limit=SETTLE_S) if running != leftovers.running_desks(serve.data, serve.name) else None
        for desk in desks:
            if desk.state is State.RUNNING:
                assert desk.screenshot()[:4] == b"\x89PNG", desk
        unknown = {i for path in leftovers.files(serve.data) for i in leftovers.DESK.findall(path)} - set(known)
        assert not unknown, f"files of desks that nobody knows: {unknown}"


def no_twins(serve: Serve) -> None:
    """Each desk runs once: a second `hotdesk desk` in its cgroup would mean that two starts were made of one."""
    for desk, pids in leftovers.desk_processes(serve.data, serve.name).items():
        servers = {pid for pid in pids if "desk --listen" in leftovers.command(pid)}
        servers -= {pid for pid in servers if leftovers.parent(pid) in servers}  # as PID 1 it has a child that does the work
        assert len(servers) <= 1, f"{desk} runs {len(servers)} times: {[leftovers.command(p) for p in servers]}"
