"""What OpenManus asks of its sandbox, call for call, with the SDK that it is pinned to."""

from __future__ import annotations

import os

import httpx
import pytest
from daytona import CreateSandboxFromImageParams, Daytona, DaytonaConfig, Resources, SandboxState, SessionExecuteRequest

IMAGE = "whitezxj/sandbox:0.1.0"
SERVICES = "exec /usr/bin/supervisord -n -c /etc/supervisor/conf.d/supervisord.conf"


@pytest.fixture
def client(url, key):
    return Daytona(DaytonaConfig(api_key=key, server_url=url, target="us"))


def create_sandbox(client, password: str, project_id: str | None = None, image: str = IMAGE):
    params = CreateSandboxFromImageParams(
        image=image,
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


@pytest.fixture
def sandbox(client):
    # The template of that image has everything that the tools call; where it is not built, the calls are the same on a plain desk.
    image = os.environ.get("OPENMANUS_IMAGE", "debian:12.9")
    one = create_sandbox(client, "123456", "a-project", image)
    yield one
    try:
        delete_sandbox(client, one.id)
    except Exception as problem:  # noqa: BLE001 - a test may have deleted it
        assert "not found" in str(problem).lower() or "destroy" in str(problem).lower(), problem


def test_created_stopped_started_and_deleted(client, sandbox):
    assert sandbox.state == SandboxState.STARTED and sandbox.public is True
    assert sandbox.labels["id"] == "a-project" and sandbox.env["CHROME_PATH"] == ""
    client.stop(sandbox)
    again = get_or_start_sandbox(client, sandbox.id)
    assert again.state == SandboxState.STARTED, "the session of the time before is forgotten, or this were a conflict"
    delete_sandbox(client, again.id)
    assert client.get(again.id).state in ("destroying", "destroyed"), "a deleted one is known for a while"


def test_shell_tool(sandbox):
    session = "shell-tool"
    sandbox.process.create_session(session)

    def run(command: str) -> str:
        reply = sandbox.process.execute_session_command(session, SessionExecuteRequest(command=command, var_async=False, cwd="/workspace"), timeout=30)
        logs = sandbox.process.get_session_command_logs(session, reply.cmd_id)
        assert isinstance(logs, str)
        return logs

    assert run("echo one; echo two >&2").split() == ["one", "two"]
    assert run('printf "%s|%s" "$RESOLUTION" "${CHROME_PATH-unset}"') == "1024x768x24|"


def test_files_tool(sandbox):
    root = sandbox.get_user_root_dir()
    folder = f"{root}/workspace"
    with pytest.raises(Exception):
        sandbox.fs.get_file_info(f"{folder}/a.txt")
    sandbox.fs.create_folder(folder, "755")
    sandbox.fs.upload_file(b"content", f"{folder}/a.txt")
    sandbox.fs.set_file_permissions(f"{folder}/a.txt", "644")
    assert sandbox.fs.download_file(f"{folder}/a.txt") == b"content"
    assert [f.name for f in sandbox.fs.list_files(folder)] == ["a.txt"]
    sandbox.fs.delete_file(f"{folder}/a.txt")


def test_browser_tool_and_links(sandbox, until):
    """The tool talks to a service inside by curl; people look at the screen and at pages through links without a token."""
    serve = "import http.server; http.server.ThreadingHTTPServer(('0.0.0.0', 8080), http.server.SimpleHTTPRequestHandler).serve_forever()"
    sandbox.process.create_session("web")
    sandbox.process.execute_session_command("web", SessionExecuteRequest(command=f'python3 -c "{serve}"', var_async=True))
    reply = sandbox.process.exec("for i in $(seq 50); do curl -s localhost:8080/ && break; sleep 0.2; done", timeout=30)
    assert reply.exit_code == 0 and "Directory listing" in reply.result
    vnc, web = sandbox.get_preview_link(6080), sandbox.get_preview_link(8080)
    assert vnc.url != web.url
    assert "Directory listing" in httpx.get(web.url + "/", trust_env=False).text
