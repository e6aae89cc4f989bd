"""The Python package on a real fleet: every part of a desk, sync and async."""

from __future__ import annotations

import asyncio
import os
import socket

import httpx
import pytest
import served
from served import TEMPLATE
from waiting import eventually

import hotdesk
from hotdesk import AsyncHotdesk, Hotdesk, Resources, State

SMALL = Resources(cpus=1, memory_mib=1024, disk_mib=1024)


@pytest.fixture(scope="module")
def desk(shared):
    """One with programs that have windows."""
    served.ensure_built("base")
    with shared.client().desks.create("base", resources=SMALL, screen=(1280, 800), timeout=300) as one:
        yield one


def test_settings_of_this_machine(shared, monkeypatch):
    for name in ("HOTDESK_URL", "HOTDESK_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOTDESK_DATA", shared.data)
    with Hotdesk() as fleet:
        assert fleet.info().version and str(shared.port) in fleet.url


def test_eyes_and_hands(desk):
    assert desk.picture().size == (1280, 800)
    assert desk.picture(max_width=640, format="jpeg").size == (640, 400)
    assert desk.picture(region=(10, 20, 30, 40)).size == (30, 40)
    program = desk.processes.start(["gedit"])
    window = desk.windows.wait("gedit", limit_ms=60_000)
    desk.windows.activate(window)
    desk.settled(limit_ms=5000)
    done = desk.actions([{"do": "type", "text": "grüße ✓ 日本"}], settle=True, screenshot={"format": "jpeg", "max_width": 320})
    assert done.screenshot[:2] == b"\xff\xd8" and done.actions[0].done
    eventually(lambda: "grüße ✓ 日本" in [e.text for e in desk.find(app="gedit", role="text")], "the text is in the tree")
    desk.key("ctrl", "a")
    desk.key("ctrl+c")
    eventually(lambda: desk.clipboard.read() == "grüße ✓ 日本", "the text is in the clipboard")
    assert any(e.name and "gedit" in e.name.lower() for e in desk.tree(depth=2).walk())
    area = next(w for w in desk.windows.list() if w.id == window.id).area
    desk.click(area.center.x, area.center.y)
    desk.drag((area.x + 20, area.y + 80), (area.x + 120, area.y + 80))
    desk.scroll(2, x=area.center.x, y=area.center.y)
    desk.double_click(area.x + 30, area.y + 60)
    assert desk.processes.get(program).running
    assert not desk.processes.end(program).running
    desk.windows.wait("gedit", gone=True)


def test_programs_files_clipboard(desk, tmp_path):
    result = desk.exec(["sh", "-c", "cat; echo $X >&2; exit 3"], stdin="in", env={"X": "out"}, cwd="/tmp")
    assert (result.stdout, result.stderr, result.exit_code, result.ok) == ("in", "out\n", 3, False)
    assert desk.exec("sleep 30", timeout=0.5).timed_out
    content = os.urandom(2_000_000)
    (tmp_path / "a").write_bytes(content)
    assert desk.files.upload(tmp_path / "a", "~/deep/er/a") == len(content)
    desk.files.download("~/deep/er/a", tmp_path / "b")
    assert (tmp_path / "b").read_bytes() == content
    desk.files.move("~/deep/er/a", "~/deep/b")
    assert desk.files.stat("~/deep/b").size == len(content) and {f.name for f in desk.files.list("~/deep")} == {"b", "er"}
    desk.files.remove("~/deep", recursive=True)
    with pytest.raises(hotdesk.NotFound) as e:
        desk.files.download("~/deep/b", tmp_path / "none")
    assert "deep/b" in str(e.value) and not (tmp_path / "none").exists()
    desk.clipboard.write("clip ✓")
    assert desk.clipboard.read() == "clip ✓" and "text/plain" in desk.clipboard.types()
    program = desk.processes.start("echo a; echo b >&2; sleep 0.2; echo c")
    assert sorted(desk.processes.output(program)) == [("stderr", "b\n"), ("stdout", "a\n"), ("stdout", "c\n")]


def test_ports(desk):
    desk.exec("mkdir -p ~/www; echo served > ~/www/page; cd ~/www; nohup python3 -m http.server 8123 >/dev/null 2>&1 &")
    with desk.port(8123).forward() as forwarder:
        eventually(lambda: httpx.get(forwarder.url + "/page").text == "served\n", "the desk's own server")
        with httpx.Client() as kept:
            for _ in range(3):
                assert kept.get(forwarder.url + "/page").text == "served\n"
    with pytest.raises(OSError):
        socket.create_connection((forwarder.host, forwarder.port), timeout=5)
    assert httpx.get(desk.port(8123).url_with_key + "/page").text == "served\n"
    with desk.port(8123).connect() as raw:
        raw.sendall(b"GET /page HTTP/1.0\r\n\r\n")
        assert raw.makefile("rb").read().endswith(b"served\n")


def test_async(shared):
    async def work():
        async with AsyncHotdesk(shared.url, shared.key) as fleet:
            desks = await asyncio.gather(*(fleet.desks.create(TEMPLATE, resources=SMALL, labels={"n": str(n)}) for n in range(3)))
            outputs = await asyncio.gather(*(d.exec(f"echo {d.labels['n']}") for d in desks))
            assert [o.stdout for o in outputs] == ["0\n", "1\n", "2\n"]
            pictures = await asyncio.gather(*(d.screenshot() for d in desks))
            assert all(p[:4] == b"\x89PNG" for p in pictures)
            seen = []

            async def follow():
                async for event in desks[0].events(timeout=20):
                    if event.kind == "state":
                        seen.append(event.state)
                    if event.state is State.DELETED:
                        return

            following = asyncio.create_task(follow())
            await asyncio.sleep(0.3)
            async with desks[0], desks[1], desks[2]:
                await desks[0].reset()
            await asyncio.wait_for(following, 30)
            assert seen == [State.RESETTING, State.RUNNING, State.DELETING, State.DELETED]
            with pytest.raises(hotdesk.NotFound):
                await fleet.desks.get(desks[0].id)

    asyncio.run(work())


def test_an_exception_deletes_the_desk_too(shared):
    with pytest.raises(ZeroDivisionError), shared.client().desks.create(TEMPLATE, resources=SMALL) as one:
        1 / 0
    assert one.state is State.DELETED
