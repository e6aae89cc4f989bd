"""The newest release: what the conformance suite looks at least, and what only a fleet of ours has."""

from __future__ import annotations

import hashlib
import os

import httpx
import pytest
from daytona import CreateSandboxFromImageParams, CreateSandboxFromSnapshotParams, Daytona, DaytonaConfig, DaytonaError
from daytona.common.errors import DaytonaNotFoundError


@pytest.fixture(scope="module")
def client(url, key):
    return Daytona(DaytonaConfig(api_key=key, api_url=url, target="us"))


@pytest.fixture(scope="module")
def sandbox(client):
    one = client.create(CreateSandboxFromSnapshotParams(snapshot=os.environ.get("HOTDESK_TEMPLATE", "base"), env_vars={"VNC_RESOLUTION": "1024x768"}))
    yield one
    client.delete(one)


def test_a_session_and_a_file(sandbox):
    assert sandbox.process.exec("echo $((6*7))").result.strip() == "42"
    sandbox.fs.upload_file("grüße".encode(), "wörter/ä.txt")
    assert sandbox.fs.download_file("wörter/ä.txt") == "grüße".encode()


def test_two_hundred_megabytes_are_streamed(sandbox, tmp_path):
    path = tmp_path / "large"
    with open(path, "wb") as file:
        for n in range(200):
            file.write(bytes([n]) * (1 << 20))
    sandbox.fs.upload_file(str(path), "/tmp/large")
    sandbox.fs.download_file("/tmp/large", str(tmp_path / "back"))
    digest = lambda p: hashlib.sha256(p.read_bytes()).hexdigest()  # noqa: E731
    assert digest(path) == digest(tmp_path / "back")


def test_screen_and_keyboard(sandbox):
    use = sandbox.computer_use
    assert use.start().message
    info = use.display.get_info().displays[0]
    assert (info.width, info.height) == (1024, 768)
    assert use.mouse.move(10, 20).x == 10
    with pytest.raises(DaytonaError):
        use.keyboard.press("no-such-key")


def test_recording(sandbox, tmp_path):
    use = sandbox.computer_use
    film = use.recording.start("a-film")
    assert use.recording.get(film.id).status == "recording"
    done = use.recording.stop(film.id)
    assert done.status == "completed" and done.size_bytes > 0
    assert film.id in {r.id for r in use.recording.list().recordings}
    use.recording.download(film.id, str(tmp_path / "film.mp4"))
    assert (tmp_path / "film.mp4").read_bytes()[4:8] == b"ftyp"
    use.recording.delete(film.id)
    with pytest.raises(DaytonaNotFoundError):
        use.recording.get(film.id)


def test_an_image_that_nobody_knows(client):
    with pytest.raises(DaytonaError) as caught:
        client.create(CreateSandboxFromImageParams(image="nobody/knows:1"))
    assert "nobody/knows:1" in str(caught.value) and "[images]" in str(caught.value)


def test_a_key_of_another_project_sees_nothing(client, sandbox, url, key):
    base = os.environ["HOTDESK_URL"]
    made = httpx.post(f"{base}/v1/keys", headers={"Authorization": f"Bearer {key}"}, json={"name": "other", "scope": {"kind": "project", "project": "other"}}, trust_env=False).json()
    other = Daytona(DaytonaConfig(api_key=made["secret"], api_url=url))
    assert sandbox.id not in {s.id for s in other.list()}
    with pytest.raises(DaytonaNotFoundError):
        other.get(sandbox.id)
    # a sandbox object deletes itself with the key of whoever made it, so the other one asks by hand
    gone = httpx.delete(f"{url}/sandbox/{sandbox.id}", headers={"Authorization": f"Bearer {made['secret']}"}, trust_env=False)
    assert gone.status_code == 404 and client.get(sandbox.id).state == "started"
    inside = f"{sandbox.toolbox_proxy_url}/{sandbox.id}/process/execute"
    reply = httpx.post(inside, json={"command": "true"}, headers={"Authorization": f"Bearer {made['secret']}"}, trust_env=False)
    assert reply.status_code == 404
    link = sandbox.get_preview_link(3000)
    assert httpx.get(link.url, headers={"Authorization": f"Bearer {made['secret']}"}, trust_env=False).status_code in (401, 404)
