"""The newest release that was tested, and its desktop SDK."""

import io
import os
import socket
import struct
import sys
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import pytest
from common import *  # noqa: F403 - its tests run here
from e2b import RateLimitException
from e2b_desktop import Sandbox as Desktop
from PIL import Image


@pytest.fixture(scope="module")
def desktop():
    sandbox = Desktop.create(timeout=600, resolution=(1280, 720))
    yield sandbox
    sandbox.kill()


def test_desktop(desktop):
    assert desktop.get_screen_size() == (1280, 720)
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


def test_many_short_commands_at_once(box):
    def one(number):
        try:
            return box.commands.run(f"echo {number}", timeout=120).stdout
        except RateLimitException:
            return "refused"

    with ThreadPoolExecutor(50) as pool:
        results = list(pool.map(one, range(300)))
    assert [r for n, r in enumerate(results) if r not in (f"{n}\n", "refused")] == []
    assert box.commands.list() == []


def test_frames_that_are_too_large_and_streams_that_stay_half_open(box):
    address = urlsplit(os.environ["E2B_API_URL"])
    headers = (
        f"Host: {address.netloc}\r\nE2b-Sandbox-Id: {box.sandbox_id}\r\nE2b-Sandbox-Port: 49983\r\n"
        f"X-Access-Token: {box._envd_access_token}\r\nContent-Type: application/connect+json\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    head = f"POST /process.Process/Start HTTP/1.1\r\n{headers}".encode()
    frame = struct.pack(">BI", 0, 0xFFFFFFF0)
    with socket.create_connection((address.hostname, address.port)) as client:
        client.sendall(head + b"%x\r\n" % len(frame) + frame + b"\r\n")
        assert b" 429 " in client.recv(4096).split(b"\r\n")[0]
    stuck = [socket.create_connection((address.hostname, address.port)) for _ in range(20)]
    for client in stuck:
        client.sendall(head + b"5\r\n\0\0\0\0\x10\r\n")
    assert box.commands.run("echo fine").stdout == "fine\n"
    for client in stuck:
        client.close()
