"""What OpenManus asks of its sandbox, call for call, with the SDK that it is pinned to, on the template that stands for its image."""

from __future__ import annotations

import base64
import json
import os
import shlex
import socket
import uuid
from urllib.parse import urlsplit

import httpx
import pytest
from daytona import CreateSandboxFromImageParams, Daytona, DaytonaConfig, Resources, SandboxState, SessionExecuteRequest
from support import supports

IMAGE = "whitezxj/sandbox:0.1.0"
SERVICES = "exec /usr/bin/supervisord -n -c /etc/supervisor/conf.d/supervisord.conf"
PASSWORD = "123456"
PIXEL = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg==")


@pytest.fixture(scope="module")
def client(url, key):
    return Daytona(DaytonaConfig(api_key=key, server_url=url, target="us"))


def create_sandbox(client, password: str, project_id: str | None = None):
    params = CreateSandboxFromImageParams(
        image=IMAGE,
        public=True,
        labels={"id": project_id} if project_id else None,
        env_vars={
            "CHROME_PERSISTENT_SESSION": "true",
            "RESOLUTION": "1024x768x24",
            "RESOLUTION_WIDTH": "1024",
            "RESOLUTION_HEIGHT": "768",
            "VNC_PASSWORD": password,
            "ANONYMIZED_TELEMETRY": "false",
            "CHROME_PATH": "",
            "CHROME_USER_DATA": "",
            "CHROME_DEBUGGING_PORT": "9222",
            "CHROME_DEBUGGING_HOST": "localhost",
            "CHROME_CDP": "",
        },
        resources=Resources(cpu=2, memory=4, disk=5),
        auto_stop_interval=15,
        auto_archive_interval=24 * 60,
    )
    sandbox = client.create(params)
    start_services(sandbox)
    return sandbox


def start_services(sandbox):
    sandbox.process.create_session("supervisord-session")
    sandbox.process.execute_session_command("supervisord-session", SessionExecuteRequest(command=SERVICES, var_async=True))


def get_or_start_sandbox(client, sandbox_id: str):
    sandbox = client.get(sandbox_id)
    if sandbox.state in (SandboxState.ARCHIVED, SandboxState.STOPPED):
        client.start(sandbox)
        sandbox = client.get(sandbox_id)
        start_services(sandbox)
    return sandbox


def delete_sandbox(client, sandbox_id: str):
    client.delete(client.get(sandbox_id))


@pytest.fixture(scope="module")
def sandbox(client):
    one = create_sandbox(client, PASSWORD, "a-project")
    yield one
    delete_sandbox(client, one.id)


@pytest.fixture(scope="module")
def services(sandbox, until):
    """The sandbox, once what supervisord starts answers; OpenManus sleeps for 25 s here."""
    for port in (6080, 8003, 8080, 9222):
        until(lambda: sandbox.process.exec(f"curl -s -o /dev/null http://localhost:{port}/").exit_code == 0, 60, f"port {port} answers")
    return sandbox


@supports("OpenManus", "`create_sandbox`, `get_or_start_sandbox`, `delete_sandbox`, supervisord's session")
def test_create_and_delete(client, until):
    """Its five functions, with a stop between: sessions are forgotten, files are not."""
    sandbox = create_sandbox(client, PASSWORD, "a-project")
    assert sandbox.state == SandboxState.STARTED and sandbox.public is True
    assert sandbox.labels["id"] == "a-project" and sandbox.env["CHROME_PATH"] == ""
    sandbox.fs.upload_file(b"kept", "/workspace/kept.txt")
    client.stop(sandbox)
    again = get_or_start_sandbox(client, sandbox.id)
    assert again.state == SandboxState.STARTED, "the session of the time before is forgotten, or this were a conflict"
    assert again.fs.download_file("/workspace/kept.txt") == b"kept"
    assert again.get_preview_link(6080).url and again.get_preview_link(8080).url
    running = lambda: again.process.exec("pgrep -c -f '[/]usr/bin/supervisord'").result.strip()  # noqa: E731
    assert until(lambda: running() == "1"), "who starts it again is told that it runs already, and ends"
    delete_sandbox(client, again.id)
    assert client.get(again.id).state in ("destroying", "destroyed"), "a deleted one is known for a while"


@supports("OpenManus", "the shell tool, by tmux")
def test_shell_tool(sandbox, until):
    """Each step is a command of a session, whose log is text; what is run is run in tmux."""
    session = str(uuid.uuid4())
    sandbox.process.create_session(session)

    def run(command: str) -> str:
        asked = SessionExecuteRequest(command=command, var_async=False, cwd="/workspace")
        reply = sandbox.process.execute_session_command(session, asked, timeout=30)
        logs = sandbox.process.get_session_command_logs(session, reply.cmd_id)
        assert isinstance(logs, str)
        return logs

    assert run("echo one; echo two >&2").split() == ["one", "two"]
    assert run('printf "%s|%s" "$RESOLUTION" "${CHROME_PATH-unset}"') == "1024x768x24|"
    assert "absent" in run("tmux has-session -t work 2>/dev/null || echo absent")
    run("tmux new-session -d -s work")
    assert "absent" not in run("tmux has-session -t work 2>/dev/null || echo absent")
    run('tmux send-keys -t work "cd /workspace && pwd && echo \\$((6 * 7)) > answer.txt && cat answer.txt" Enter')
    shown = until(lambda: (pane := run("tmux capture-pane -t work -p -S - -E -")).count("42") and pane, what="tmux shows what was run")
    assert "\n/workspace\n" in shown
    assert "work:" in run("tmux list-sessions")
    run("tmux kill-session -t work")
    assert "absent" in run("tmux has-session -t work 2>/dev/null || echo absent")
    run("tmux new-session -d -s other")
    run("tmux kill-server")
    # It says either, as it meets the server gone or going.
    assert "no server" in (left := run("tmux list-sessions 2>&1 || true")) or "server exited" in left
    assert run("cat /workspace/answer.txt").strip() == "42", "and the session itself goes on"
    sandbox.process.delete_session(session)


@supports("OpenManus", "the files tool")
def test_files_tool(sandbox):
    assert sandbox.get_user_root_dir().startswith("/")
    with pytest.raises(Exception):
        sandbox.fs.get_file_info("/workspace/notes/a.txt")
    sandbox.fs.create_folder("/workspace/notes", "755")
    sandbox.fs.upload_file("content ž".encode(), "/workspace/notes/a.txt")
    sandbox.fs.set_file_permissions("/workspace/notes/a.txt", "644")
    info = sandbox.fs.get_file_info("/workspace/notes/a.txt")
    assert (info.is_dir, info.size, info.mode) == (False, 10, "-rw-r--r--")
    assert sandbox.fs.download_file("/workspace/notes/a.txt").decode() == "content ž"
    assert "notes" in [f.name for f in sandbox.fs.list_files("/workspace") if f.is_dir]
    sandbox.fs.delete_file("/workspace/notes/a.txt")
    with pytest.raises(Exception):
        sandbox.fs.get_file_info("/workspace/notes/a.txt")


@supports("OpenManus", "the vision tool")
def test_vision_tool(sandbox):
    sandbox.fs.upload_file(PIXEL, "/workspace/pixel.png")
    info = sandbox.fs.get_file_info("/workspace/pixel.png")
    assert not info.is_dir and info.size == len(PIXEL)
    assert sandbox.fs.download_file("/workspace/pixel.png") == PIXEL


@supports("OpenManus", "the browser tool and its service on port 8003")
def test_browser_tool(services):
    """The tool talks to a service inside by curl, and shows the picture that comes back."""
    sandbox = services

    def act(action: str, **arguments):
        call = f"curl -s -X POST 'http://localhost:8003/api/automation/{action}' -H 'Content-Type: application/json'"
        reply = sandbox.process.exec(f"{call} -d {shlex.quote(json.dumps(arguments))}", timeout=30)
        assert reply.exit_code == 0
        said = json.loads(reply.result)
        assert "tabs" not in said, "OpenManus calls methods of what is in there"
        return said

    page = (
        "<title>Form</title><button onclick=\"document.title='pressed'\">Press</button><input oninput='document.title=value'>"
        "<select onchange='document.title=value'><option>one<option>two</select><div style='height:5000px'></div><p>far below</p>"
    )
    sandbox.fs.upload_file(page.encode(), "/workspace/form.html")
    seen = act("navigate_to", url="http://localhost:8080/form.html")
    assert seen["success"] is True and seen["title"] == "Form" and seen["url"].endswith("/form.html")
    assert seen["element_count"] == 3 and seen["pixels_below"] > 3000
    assert base64.b64decode(seen["screenshot_base64"], validate=True).startswith(b"\xff\xd8")
    assert act("click_element", index=0)["title"] == "pressed"
    assert act("input_text", index=1, text="written")["title"] == "written"
    assert act("send_keys", keys="Backspace")["title"] == "writte"
    assert "two" in act("get_dropdown_options", index=2)["message"]
    assert act("select_dropdown_option", index=2, text="two")["title"] == "two"
    assert act("scroll_down", amount=500)["pixels_below"] == seen["pixels_below"] - 500
    assert act("scroll_to_text", text="far below")["pixels_below"] < seen["pixels_below"] - 500
    assert act("wait", seconds=0.1)["success"] is True
    assert act("navigate_to", url="about:blank")["url"] == "about:blank"
    assert act("go_back")["url"].endswith("/form.html")
    wrong = act("click_element", index=99)
    assert wrong["success"] is False and "99" in wrong["message"]


@supports("OpenManus", "public links to noVNC on 6080, with its password, and to `/workspace` on 8080")
def test_links_that_people_open(services):
    """The screen and the pages, without a token, because the sandbox is public; the service of the browser is not for them to use by a name alone."""
    vnc, web = services.get_preview_link(6080), services.get_preview_link(8080)
    assert vnc.url != web.url
    services.fs.upload_file(b"<h1>made by the agent</h1>", "/workspace/index.html")
    assert "made by the agent" in httpx.get(web.url + "/", trust_env=False).text
    page = httpx.get(vnc.url + "/vnc.html", trust_env=False)
    assert page.status_code == 200 and "noVNC" in page.text
    kinds = security_of(vnc.url + "/websockify")
    assert kinds == [2], "the password that the sandbox was made with is asked for"


def security_of(url: str) -> list[int]:
    """What a VNC server behind a WebSocket wants to know of its viewers."""
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname, parts.port), timeout=30) as one:
        key = base64.b64encode(os.urandom(16)).decode()
        one.sendall(
            f"GET {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
            f"Sec-WebSocket-Protocol: binary\r\nSec-WebSocket-Key: {key}\r\n\r\n".encode()
        )
        stream = one.makefile("rb")
        assert b" 101 " in stream.readline()
        while stream.readline().strip():
            pass

        def frame() -> bytes:
            kind, size = stream.read(2)
            assert kind == 0x82 and size < 126, (kind, size)
            return stream.read(size)

        assert frame() == b"RFB 003.008\n"
        one.sendall(bytes([0x82, 0x80 | 12, 0, 0, 0, 0]) + b"RFB 003.008\n")
        kinds = frame()
        return list(kinds[1:])
