"""The command line as a user types it."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import subprocess
import time
from pathlib import Path

import pytest
import served
from served import BINARY, TEMPLATE
from waiting import eventually


@pytest.fixture(scope="module")
def desk(shared):
    shared.hotdesk("new", "--name", "cli", "--template", TEMPLATE, "--cpus", "0.5", "--memory", "512M")
    yield "cli"
    shared.hotdesk("rm", "cli", check=False)


def test_new_ls_rm(shared):
    made = shared.hotdesk("new", "--template", TEMPLATE, "--name", "first", "--label", "a=b", "--json")
    body = json.loads(made.stdout)
    assert body["name"] == "first" and body["labels"] == {"a": "b"} and body["state"] == "running"
    listed = shared.hotdesk("ls").stdout
    assert "first" in listed and "running" in listed and re.search(r"(?i)state|idle|expires|cost", listed.splitlines()[0])
    assert any(d["id"] == body["id"] for d in json.loads(shared.hotdesk("ls", "--json").stdout))
    shared.hotdesk("stop", "first")
    assert "stopped" in shared.hotdesk("ls").stdout
    shared.hotdesk("start", "first")
    shared.hotdesk("reset", "first")
    shared.hotdesk("extend", "first", "--by", "1h")
    shared.hotdesk("rm", "first")
    assert "first" not in shared.hotdesk("ls").stdout


def test_exec(shared, desk):
    done = shared.hotdesk("exec", desk, "--", "sh", "-c", "echo out; echo err >&2; exit 7", check=False)
    assert (done.stdout, done.returncode) == ("out\n", 7) and "err" in done.stderr
    assert shared.hotdesk("exec", desk, "--", "cat", input="from here\n").stdout == "from here\n"
    assert shared.hotdesk("exec", desk, "--", "id", "-un").stdout == "user\n"


def test_shot(shared, desk, tmp_path):
    shared.hotdesk("shot", desk, "--output", str(tmp_path / "a.png"))
    assert (tmp_path / "a.png").read_bytes()[:4] == b"\x89PNG"
    piped = subprocess.run([BINARY, "shot", desk, "--output", "-"], env={**os.environ, "HOTDESK_URL": shared.url, "HOTDESK_KEY": shared.key}, capture_output=True, timeout=60)
    assert piped.stdout[:4] == b"\x89PNG", piped.stderr


def test_cp(shared, desk, tmp_path):
    (tmp_path / "here").write_text("grüße")
    shared.hotdesk("cp", str(tmp_path / "here"), f"{desk}:there")
    shared.hotdesk("cp", f"{desk}:there", str(tmp_path / "back"))
    assert (tmp_path / "back").read_text() == "grüße"
    tree = tmp_path / "tree" / "deep"
    tree.mkdir(parents=True)
    (tree / "x").write_text("1")
    shared.hotdesk("cp", str(tmp_path / "tree"), f"{desk}:tree")
    assert shared.hotdesk("exec", desk, "--", "cat", "tree/deep/x").stdout == "1"


def test_sh(shared, desk):
    """A terminal in the desk, from a terminal here."""
    mine, theirs = pty.openpty()
    env = {**os.environ, "HOTDESK_URL": shared.url, "HOTDESK_KEY": shared.key, "TERM": "xterm"}
    process = subprocess.Popen([BINARY, "sh", desk], stdin=theirs, stdout=theirs, stderr=theirs, env=env, start_new_session=True)
    os.close(theirs)
    try:
        os.write(mine, b"echo $((20 + 22)) $(id -un)\nexit 3\n")
        seen, end = b"", time.monotonic() + 30
        while time.monotonic() < end:
            if select.select([mine], [], [], 0.5)[0]:
                try:
                    seen += os.read(mine, 65536)
                except OSError:
                    break
            elif process.poll() is not None:
                break
        assert b"42 user" in seen, seen
        assert process.wait(20) == 3
    finally:
        process.kill()
        os.close(mine)


def test_snapshot_fork_logs_top(shared, desk):
    shared.hotdesk("exec", desk, "--", "sh", "-c", "echo one > state")
    shared.hotdesk("snapshot", desk, "--name", "cli-snapshot", "--files-only")
    shared.hotdesk("fork", desk, "--name", "cli-fork", "--files-only")
    assert shared.hotdesk("exec", "cli-fork", "--", "cat", "state").stdout == "one\n"
    shared.hotdesk("rm", "cli-fork")
    assert shared.hotdesk("logs", desk).stdout
    assert desk in shared.hotdesk("top", "--once").stdout


def test_pool_and_key(shared):
    shared.hotdesk("pool", "set", TEMPLATE, "0", "--max", "1")
    assert TEMPLATE in shared.hotdesk("pool", "ls").stdout
    shared.hotdesk("pool", "rm", TEMPLATE)
    made = shared.hotdesk("key", "new", "cli-key", "--project", "p")
    secret = re.search(r"hd_[A-Za-z0-9_-]{43}", made.stdout + made.stderr)[0]
    assert shared.request("GET", "/v1/desks", key=secret).status_code == 200
    listed = shared.hotdesk("key", "ls").stdout
    assert "cli-key" in listed and secret not in listed
    identity = next(k["id"] for k in json.loads(shared.hotdesk("key", "ls", "--json").stdout) if k["name"] == "cli-key")
    shared.hotdesk("key", "revoke", identity)
    assert shared.request("GET", "/v1/desks", key=secret).status_code == 401


def test_env(shared, desk):
    """The lines point a client at this fleet, and OSWorld at a desk."""
    environment = {"HOTDESK_DATA": shared.data}
    lines = shared.hotdesk("env", environment=environment).stdout
    done = subprocess.run(["sh", "-c", f'{lines}\n"{BINARY}" ls'], capture_output=True, text=True, env={"PATH": os.environ["PATH"], "HOME": "/nonexistent"}, timeout=60)
    assert done.returncode == 0 and desk in done.stdout, done.stderr
    osworld = shared.hotdesk("env", "osworld", desk, environment=environment).stdout
    url = re.search(r"https?://[^\s'\"]+", osworld)[0]
    import httpx

    assert httpx.get(url.rstrip("/") + "/screenshot").content[:4] == b"\x89PNG", osworld


def test_errors_teach(shared):
    for arguments, word in ((["stop", "no-such-desk"], "no-such-desk"), (["new", "--template", "no-such-template"], "no-such-template"), (["exec", "no-such-desk", "--", "true"], "no-such-desk")):
        done = shared.hotdesk(*arguments, check=False)
        assert done.returncode != 0 and not done.stdout and done.stderr.startswith("error: ") and word in done.stderr, (arguments, done)
    done = shared.hotdesk("ls", check=False, environment={"HOTDESK_KEY": "hd_" + "A" * 43})
    assert done.returncode != 0 and "key" in done.stderr
    done = shared.hotdesk("ls", check=False, environment={"HOTDESK_URL": "http://127.0.0.1:9"})
    assert done.returncode != 0 and "127.0.0.1:9" in done.stderr and "hint" in done.stderr


def test_doctor(shared):
    done = shared.hotdesk("doctor", "--json", check=False)
    assert json.loads(done.stdout)
    assert "local" in shared.hotdesk("doctor", check=False).stdout


def test_completions(shared):
    for shell in ("bash", "zsh", "fish"):
        assert "hotdesk" in shared.hotdesk("completions", shell).stdout


def test_up_and_down(tmp_path):
    """All of it on this machine: serve, a first desk, the address and what to type next; a second `up` finds it there."""
    data, port = tmp_path / "data", served.free_port()
    env = {k: v for k, v in os.environ.items() if not k.startswith("HOTDESK_") or k == "HOTDESK_IMAGES"}
    up = [BINARY, "up", "--data", str(data), "--listen", f"127.0.0.1:{port}", "--template", TEMPLATE]
    log = open(tmp_path / "log", "w+")
    first = subprocess.Popen(up, env=env, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        eventually(lambda: f"127.0.0.1:{port}" in Path(log.name).read_text() and "hotdesk " in Path(log.name).read_text(), "the address and the next commands", limit=120)
        env |= {"HOTDESK_DATA": str(data)}
        listed = subprocess.run([BINARY, "ls"], env=env, capture_output=True, text=True, timeout=60)
        assert listed.returncode == 0 and "running" in listed.stdout, listed.stderr + Path(log.name).read_text()
    finally:
        name = (data / "fleet-id").read_text().strip() if (data / "fleet-id").exists() else None
        one = served.Serve(data=str(data))
        pid = json.loads((data / "serve.json").read_text())["pid"] if (data / "serve.json").exists() else None
        for process in filter(None, {first.pid if first.poll() is None else None, pid}):
            try:
                os.kill(process, 15)
            except ProcessLookupError:
                pass
        try:
            first.wait(60)
        except subprocess.TimeoutExpired:
            first.kill()
        if name:
            eventually(lambda: not (pid and os.path.exists(f"/proc/{pid}") and "zombie" not in Path(f"/proc/{pid}/status").read_text()), "it ends", limit=60)
            one.close()
