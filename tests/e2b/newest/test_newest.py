"""The newest release that was tested, and its desktop SDK."""

import io
import os
import socket
import sys
import time
from datetime import timedelta

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import hostile
import httpx
import pytest
from common import *  # noqa: F403 - its tests run here
from e2b import Sandbox, SandboxQuery, TimeoutException
from e2b_desktop import Sandbox as Desktop
from PIL import Image
from support import supports


@pytest.fixture(scope="module")
def desktop():
    sandbox = Desktop.create(timeout=600, resolution=(1280, 720))
    yield sandbox
    sandbox.kill()


@supports("desktop", "its size at create, screenshots, mouse, keyboard, screen size, cursor")
def test_desktop(desktop):
    assert desktop.get_screen_size() == (1280, 720)
    assert desktop.get_cursor_position() == (640, 360), "as on any new screen"
    picture = Image.open(io.BytesIO(bytes(desktop.screenshot())))
    assert picture.size == (1280, 720)
    for place in ((100, 200), (100, 200), (0, 0)):
        desktop.move_mouse(*place)
        assert desktop.get_cursor_position() == place
    desktop.double_click(300, 300)
    desktop.scroll("down", 3)
    desktop.drag((100, 100), (300, 200))
    assert desktop.get_cursor_position() == (300, 200)
    desktop.press(["ctrl", "a"])


@supports("desktop", "windows, programs, typing of any text")
def test_typing_reaches_a_program(desktop):
    desktop.commands.run("xfce4-terminal --disable-server", background=True, timeout=0)
    for _ in range(120):
        found = desktop.commands.run("xdotool search --onlyvisible --class xfce4-terminal || true").stdout.split()
        if found:
            break
        desktop.wait(250)
    assert found, "the terminal has no window"
    desktop.commands.run(f"xdotool windowactivate --sync {found[-1]}")
    desktop.wait(500)
    desktop.write("echo \"it's $((40 + 2))\" > /tmp/typed")
    desktop.press("enter")
    for _ in range(80):
        if desktop.files.exists("/tmp/typed") and desktop.files.read("/tmp/typed"):
            break
        desktop.wait(100)
    assert desktop.files.read("/tmp/typed") == "it's 42\n"


@supports("desktop", "the picture stream: its page and its WebSocket through the fleet, with a key; `https` addresses need a domain")
def test_stream(desktop):
    desktop.stream.start(require_auth=True)
    try:
        assert desktop.stream.get_auth_key() in desktop.stream.get_url(auth_key=desktop.stream.get_auth_key())
        place = {"E2b-Sandbox-Id": desktop.sandbox_id, "E2b-Sandbox-Port": "6080"}
        page = httpx.get(os.environ["E2B_API_URL"] + "/vnc.html", headers=place, trust_env=False)
        assert page.status_code == 200 and "noVNC" in page.text
        with hostile.upgraded(os.environ["E2B_API_URL"] + "/websockify", place) as one:
            assert one.recv(14, socket.MSG_WAITALL)[2:] == b"RFB 003.008\n"
        with pytest.raises(RuntimeError):
            desktop.stream.start()
    finally:
        desktop.stream.stop()


@supports("ports", "of programs in the sandbox, by header; private ones with their token")
def test_ports(new_sandbox):
    sandbox = new_sandbox(network={"allow_public_traffic": False})
    sandbox.commands.run("cd /etc && exec python3 -m http.server 3456", background=True, timeout=0)
    place = {"E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": "3456"}
    look = lambda **more: httpx.get(os.environ["E2B_API_URL"] + "/hostname", headers=place | more, trust_env=False)  # noqa: E731
    token = {"e2b-traffic-access-token": sandbox.traffic_access_token}
    for _ in range(100):
        if look(**token).status_code == 200:
            break
        sandbox.commands.run("sleep 0.1")
    assert look(**token).status_code == 200 and look().status_code == 403


@supports("metrics", "looked at when they are asked for, the last 120 remembered")
def test_metrics(box):
    [one, *_] = box.get_metrics()
    assert one.mem_total > 0 and one.disk_total > 0 and one.cpu_count > 0


@supports("snapshots", "create, list, sandboxes from them, delete, though sandboxes live that came from it")
def test_snapshots(new_sandbox):
    source = new_sandbox()
    source.files.write("/home/user/state.txt", "then")
    made = source.create_snapshot()
    source.files.write("/home/user/state.txt", "now")
    assert [one.snapshot_id for one in Sandbox.list_snapshots(sandbox_id=source.sandbox_id).next_items()] == [made.snapshot_id]
    copy = new_sandbox(template=made.snapshot_id)
    assert copy.files.read("/home/user/state.txt") == "then" and source.files.read("/home/user/state.txt") == "now"
    assert Sandbox.delete_snapshot(made.snapshot_id) is True and Sandbox.delete_snapshot(made.snapshot_id) is False
    assert Sandbox.list_snapshots(sandbox_id=source.sandbox_id).next_items() == []
    copy.files.write("/home/user/state.txt", "the copy goes on")


@supports("forks", "several at once, each with the files of that moment")
def test_forks(new_sandbox):
    source = new_sandbox()
    source.files.write("/home/user/state.txt", "then")
    children = source.fork(count=2, timeout=60)
    try:
        assert [child.files.read("/home/user/state.txt") for child in children] == ["then", "then"]
    finally:
        for child in children:
            child.kill()


def test_programs_do_not_see_how_they_are_run(box, desktop):
    for sandbox in (box, desktop):
        assert "HOTDESK" not in sandbox.commands.run("env").stdout


def test_another_display_is_another_server(desktop):
    """What stands in for `xdotool` is for this screen; some other one is not moved by mistake."""
    desktop.move_mouse(11, 22)
    gone = desktop.commands.run("DISPLAY=:77 xdotool mousemove 33 44 2>&1; echo $?").stdout
    assert gone.split()[-1] != "0", gone
    assert desktop.get_cursor_position() == (11, 22)


def test_lists_by_start(new_sandbox):
    sandbox = new_sandbox(metadata={"of": "test_lists_by_start"})
    started = sandbox.get_info().started_at
    query = {"metadata": {"of": "test_lists_by_start"}}
    for after, there in ((started, True), (started + timedelta(seconds=1), False)):
        found = Sandbox.list(query=SandboxQuery(**query, started_after=after)).next_items()
        assert bool(found) is there, after


def test_no_time_left_is_the_end(new_sandbox):
    def ended(sandbox) -> bool:
        end = time.monotonic() + 60
        while sandbox.is_running() and time.monotonic() < end:
            time.sleep(0.1)
        return not sandbox.is_running()

    assert ended(new_sandbox(timeout=0))
    sandbox = new_sandbox(lifecycle={"on_timeout": "pause"})
    sandbox.files.write("kept", "x")
    sandbox.set_timeout(0)
    assert ended(sandbox)
    assert sandbox.connect().files.read("kept") == "x"


def test_a_killed_sandbox_resets_its_connections(new_sandbox):
    """Only then the SDK asks whether there still is a sandbox, and says what happened."""
    sandbox = new_sandbox()
    command = sandbox.commands.run("sleep 60", background=True)
    sandbox.kill()
    with pytest.raises(TimeoutException, match="killed or reached its end of life"):
        command.wait()


def test_a_user_writes_where_root_has_to_make_room(box):
    box.files.write("/made/for user/a.txt", "here")
    assert box.commands.run("cat '/made/for user/a.txt'; stat -c %U /made '/made/for user'; touch /made/more").stdout == "hereuser\nuser\n"


def test_a_life_that_is_cut_short_ends_then(new_sandbox):
    sandbox = new_sandbox()
    end = time.monotonic() + 5
    sandbox.set_timeout(5)
    while sandbox.is_running():
        assert time.monotonic() < end + 60
    assert time.monotonic() > end - 0.5, "and not before"


def test_watches_tell_each_event_once_and_at_once(box):
    box.files.make_dir("watched")
    watch = box.files.watch_dir("watched")
    for number in range(5):
        box.files.write(f"watched/{number}", "x")
        told = [(event.name, event.type.value) for event in watch.get_new_events()]
        assert told == [(str(number), kind) for kind in ("create", "chmod", "write")]
    # Also of a file that stays open.
    writer = box.commands.run("exec 3>>watched/0; echo more >&3; echo done; sleep 60", background=True)
    next(iter(writer))
    assert [(event.name, event.type.value) for event in watch.get_new_events()] == [("0", "write")]
    writer.kill()
