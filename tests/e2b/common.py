"""What every release of the SDK does alike; each folder runs it with its own."""

from __future__ import annotations

import threading
import urllib.error
import urllib.request

import pytest
from e2b import CommandExitException, NotFoundException, PtySize, Sandbox, SandboxQuery, TimeoutException
from support import supports


@supports("sandboxes", "create with metadata and envs, info, list by metadata, `set_timeout`, connect, kill; what a killed one says")
def test_life(new_sandbox):
    sandbox = new_sandbox(metadata={"purpose": "a test", "odd name": "a&b=c ž"}, envs={"COLOUR": "teal"})
    info = sandbox.get_info()
    assert info.metadata == {"purpose": "a test", "odd name": "a&b=c ž"}
    assert sandbox.commands.run("echo $COLOUR").stdout == "teal\n"
    found = Sandbox.list(query=SandboxQuery(metadata={"odd name": "a&b=c ž"})).next_items()
    assert [item.sandbox_id for item in found] == [sandbox.sandbox_id]
    sandbox.set_timeout(60)
    assert sandbox.get_info().end_at < info.end_at
    again = Sandbox.connect(sandbox.sandbox_id)
    assert again.commands.run("echo here").stdout == "here\n"
    assert sandbox.kill() is True
    assert sandbox.kill() is False
    assert sandbox.is_running() is False
    with pytest.raises(TimeoutException):
        sandbox.commands.run("true")


@supports("commands", "foreground and background, output as it comes, exit codes, standard input, kill")
def test_commands(box):
    result = box.commands.run("echo out; echo err >&2")
    assert (result.stdout, result.stderr, result.exit_code) == ("out\n", "err\n", 0)
    with pytest.raises(CommandExitException) as caught:
        box.commands.run("exit 4")
    assert caught.value.exit_code == 4
    assert len(box.commands.run("seq 1 1000000", timeout=120).stdout) == 6888896, "nothing is lost on the way"
    handle = box.commands.run("cat", background=True, stdin=True)
    box.commands.send_stdin(handle.pid, "typed")
    for out, _, _ in handle:
        assert out == "typed"
        break
    assert box.commands.kill(handle.pid) is True
    assert box.commands.kill(3_999_999) is False


@supports("commands", "`user=root`, `sudo`, files of other users")
def test_root(box):
    assert box.commands.run("whoami; id -u; echo $HOME", user="root").stdout == "root\n0\n/root\n"
    assert box.commands.run("sudo -n whoami").stdout == "root\n"
    box.files.write("/root/a.txt", "root's", user="root")
    assert box.files.read("/root/a.txt", user="root") == "root's"


@supports("terminals", "size, input, output, exit code")
def test_terminal(box):
    handle = box.pty.create(PtySize(rows=31, cols=97))
    box.pty.send_stdin(handle.pid, b"stty size; exit 3\n")
    shown = []
    with pytest.raises(CommandExitException) as caught:
        handle.wait(on_pty=shown.append)
    assert b"31 97" in b"".join(shown) and caught.value.exit_code == 3


@supports("files", "write, read, list, watch; signed addresses for clients without a key")
def test_files(box):
    box.files.write("a/b.txt", "text ž")
    assert box.files.read("/home/user/a/b.txt") == "text ž"
    assert [entry.name for entry in box.files.list("a")] == ["b.txt"]
    watch = box.files.watch_dir("a")
    box.files.write("a/c.bin", bytes(range(256)))
    assert box.files.read("a/c.bin", format="bytes") == bytes(range(256))
    seen = []
    for _ in range(100):
        seen += [event.name for event in watch.get_new_events()]
        if "c.bin" in seen:
            break
        threading.Event().wait(0.05)
    assert set(seen) == {"c.bin"}, "and no name of a file that is only being written"
    watch.stop()
    with urllib.request.urlopen(box.download_url("a/b.txt")) as reply:
        assert reply.read().decode() == "text ž"
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(box.download_url("a/b.txt").replace("b.txt", "c.bin"))
    assert caught.value.code == 401


@supports("pause", "files are kept, `/tmp` too; the same id goes on")
def test_pause(new_sandbox):
    sandbox = new_sandbox()
    sandbox.files.write("/tmp/kept.txt", "kept")
    (getattr(sandbox, "pause", None) or sandbox.beta_pause)()
    assert sandbox.is_running() is False
    resumed = Sandbox.connect(sandbox.sandbox_id)
    assert resumed.files.read("/tmp/kept.txt") == "kept"


@supports("keys and tokens", "without them, nothing")
def test_a_stranger_gets_nothing(box):
    with pytest.raises(NotFoundException):
        Sandbox.get_info("i000000000000")
    for headers in ({}, {"X-Access-Token": "0" * 64}):
        headers |= {"E2b-Sandbox-Id": box.sandbox_id, "E2b-Sandbox-Port": "49983", "Content-Type": "application/json"}
        request = urllib.request.Request(box.envd_api_url + "/process.Process/List", b"{}", headers)
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(request)
        assert caught.value.code == 401
