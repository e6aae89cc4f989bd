"""`kill -9` every few seconds, a full disk, a dead Docker daemon: afterwards the fleet is right, and nothing is orphaned or lost."""

from __future__ import annotations

import os
import subprocess
import tempfile
import threading
from contextlib import contextmanager
from pathlib import Path

import chaos
import pytest
import seeds
import served
from waiting import eventually

import hotdesk

pytestmark = pytest.mark.alone


def test_kill_9():
    with served.fleet() as fleet:
        accounts = chaos.run(fleet, seconds=chaos.SECONDS, rng=seeds.rng())
        chaos.judge(fleet, accounts)
        chaos.no_twins(fleet)


def test_kill_9_in_the_middle_of_everything():
    """Not at random: right after each kind of request was sent, before its answer came."""
    with served.fleet() as fleet:
        client = fleet.client()
        kept = client.desks.create(served.TEMPLATE, name="kept", resources=chaos.SMALL)
        accounts = [chaos.Account(created={kept.id})]
        for verb in ("stop", "start", "reset", "delete"):
            desk = client.desks.create(served.TEMPLATE, resources=chaos.SMALL)
            if verb == "start":
                desk.stop()
            sent = threading.Thread(target=lambda: fleet.request("DELETE" if verb == "delete" else "POST", f"/v1/desks/{desk.id}" + ("" if verb == "delete" else f"/{verb}"), timeout=20), daemon=True)
            with subprocess_errors():
                sent.start()
                sent.join(0.02)
                fleet.kill()
                fleet.start()
                sent.join(30)
            if verb == "delete":
                accounts[0].doubtful.add(desk.id)
            else:
                accounts[0].created.add(desk.id)
        chaos.judge(fleet, accounts)
        assert kept.refresh().state is hotdesk.State.RUNNING


class subprocess_errors:
    """Threads whose request breaks off say nothing."""

    def __enter__(self):
        self.before = threading.excepthook
        threading.excepthook = lambda _: None

    def __exit__(self, *_):
        threading.excepthook = self.before


def test_a_full_disk():
    """The data directory runs full while clients work and the orchestrator is killed; when there is room again, all is well again."""
    data = tempfile.mkdtemp(prefix="hotdesk-full-")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1400m,mode=755", "tmpfs", data], check=True)
    rng = seeds.rng()
    filler = os.path.join(data, "filler")
    try:
        with served.fleet(data=data) as fleet:
            client = fleet.client()
            kept = client.desks.create(served.TEMPLATE, name="kept", resources=chaos.SMALL)
            strikes = 0

            def strike():
                nonlocal strikes
                strikes += 1
                if strikes % 3 == 1:
                    fill(filler)
                elif strikes % 3 == 2:
                    fleet.kill()
                    fleet.start(wait=False)
                else:
                    os.unlink(filler)
                    if not fleet.running:  # it may refuse to start without room for its store, but it must come up with it
                        fleet.start(wait=False)

            accounts = chaos.run(fleet, seconds=min(chaos.SECONDS, 60), clients=4, rng=rng, strike=strike)
            if os.path.exists(filler):
                os.unlink(filler)
            if not fleet.running:
                fleet.start()
            accounts.append(chaos.Account(created={kept.id}))
            chaos.judge(fleet, accounts, errors=True)
            for broken in client.desks.list(state="error"):
                assert broken.info.reason, broken
            # How many the clients left is chance, and so is the room beside them.
            for other in client.desks.list():
                if other.id != kept.id:
                    other.delete()
            fresh = client.desks.create(served.TEMPLATE, resources=chaos.SMALL, queue=60)  # the fleet measures the disk every few seconds
            assert fresh.screenshot()
    finally:
        if subprocess.run(["umount", data], check=False).returncode == 0:
            os.rmdir(data)


def fill(path: str) -> None:
    with open(path, "wb", buffering=0) as file:
        try:
            while True:
                file.write(b"\0" * (1 << 20))
        except OSError:
            pass
        try:
            while True:
                file.write(b"\0" * 4096)
        except OSError:
            pass


#: Without a limit of disk, which most storage drivers of Docker can't give.
IN_DOCKER = {"provider": "docker", "resources": {"cpus": 0.5, "memory_mib": 256}}


@contextmanager
def explained(daemon):
    """A desk that fails after its daemon's deaths is shown as Docker sees it: address, networks, who has the ports."""
    try:
        yield
    except hotdesk.DeskFailed:
        for command in (["docker", "ps", "--all"], ["sh", "-c", "docker inspect $(docker ps -aq)"], ["docker", "network", "inspect", "bridge"]):
            print(subprocess.run(command, env=os.environ | daemon.environment, capture_output=True, text=True).stdout[-20_000:])
        for command in (["ss", "-tlnp"], ["iptables-save"], ["ip", "addr"], ["ip", "neigh"]):
            print(subprocess.run([*daemon.before, *command], capture_output=True, text=True).stdout)
        print(Path(daemon.directory, "dockerd.log").read_text()[-5000:])
        raise


# While desks were reached by published ports, one was not reached again now and then: a daemon that was killed has more proxies of
# ports than containers when it is back. They are reached at their own addresses since.
@pytest.mark.long
def test_a_dead_dockerd():
    """Desks in containers, while the Docker daemon and the orchestrator are killed in turns."""
    import dockerd

    with dockerd.daemon() as daemon:
        with served.fleet(provider="docker,local", environment=daemon.environment, before=daemon.before, socket=True) as fleet:
            client = fleet.client()
            kept = client.desks.create(served.TEMPLATE, name="kept", timeout=300, **IN_DOCKER)
            strikes = 0

            def strike():
                nonlocal strikes
                strikes += 1
                if strikes % 2:
                    daemon.kill()
                    if strikes % 4 == 1:
                        fleet.kill()
                        fleet.start(wait=False)
                else:
                    daemon.start()

            accounts = chaos.run(fleet, seconds=min(chaos.SECONDS, 60), clients=3, rng=seeds.rng(), strike=strike, wishes=IN_DOCKER)
            daemon.start()
            accounts.append(chaos.Account(created={kept.id}))
            chaos.judge(fleet, accounts, errors=True)
            eventually(lambda: next(p for p in client.info().providers if p.name == "docker").ready, "the provider is back", limit=60)
            with explained(daemon):
                assert client.desks.create(served.TEMPLATE, **IN_DOCKER).screenshot()
            local = client.desks.create(served.TEMPLATE, provider="local", resources=chaos.SMALL)
            assert local.screenshot()
