"""What every release of Daytona's SDK does alike; each folder runs it with its own."""

from __future__ import annotations

import asyncio
import importlib.metadata

import daytona
import httpx
import pytest
from daytona import CreateSandboxFromImageParams, CreateSandboxFromSnapshotParams, CreateSnapshotParams, Daytona, DaytonaConfig, DaytonaError
from daytona import Resources, SessionExecuteRequest, VolumeMount
from support import supports

RELEASE = tuple(int(part) for part in importlib.metadata.version("daytona").split(".")[:3])
#: Where standard output and errors are told apart.
SPLITS = RELEASE >= (0, 27)


@pytest.fixture(scope="module")
def client(url, key):
    return Daytona(DaytonaConfig(api_key=key, api_url=url, target="us"))


@pytest.fixture(scope="module")
def box(client):
    one = client.create(CreateSandboxFromSnapshotParams(snapshot="base", env_vars={"COLOUR": "te al"}))
    yield one
    client.delete(one)


def state(thing) -> str:
    return getattr(thing.state, "value", thing.state)


def shell(command: str, background: bool = False):
    return SessionExecuteRequest(command=command, run_async=background)


def output(reply) -> str:
    if isinstance(reply, str):
        return reply
    split = getattr(reply, "stdout", None)
    return reply.output if split is None else split


@supports("sandboxes", "create by image name, labels, environment, resources, public; get, list by label; stop and start keep files; delete, known for a while after it")
def test_sandboxes(client, tag):
    label = tag("label")
    wish = CreateSandboxFromImageParams(
        image="debian:12.9", labels={"kind": label}, env_vars={"COLOUR": "teal"}, public=True, resources=Resources(cpu=1, memory=2, disk=3)
    )
    one = client.create(wish)
    try:
        assert state(one) == "started" and one.public is True and one.labels["kind"] == label and one.env["COLOUR"] == "teal"
        assert (one.cpu, one.memory, one.disk) == (1, 2, 3)
        query = getattr(daytona, "ListSandboxesQuery", None)
        assert [found.id for found in client.list(query(labels={"kind": label}) if query else {"kind": label})] == [one.id]
        one.fs.upload_file(b"kept", "kept.txt")
        client.stop(one)
        assert state(client.get(one.id)) == "stopped"
        with pytest.raises(DaytonaError, match="Is the Sandbox started"):
            one.process.exec("true")
        client.start(one)
        assert one.fs.download_file("kept.txt") == b"kept"
        assert one.process.exec("echo $COLOUR").result.strip() == "teal"
    finally:
        client.delete(one)
    assert state(client.get(one.id)) in ("destroying", "destroyed")


@supports("sandboxes", "labels, auto-stop and auto-archive intervals of one that runs; archive, and start from there")
def test_changes(client):
    one = client.create(CreateSandboxFromSnapshotParams(snapshot="base", auto_stop_interval=30))
    try:
        assert one.set_labels({"a": "b"}) == {"a": "b"} and client.get(one.id).labels["a"] == "b"
        one.set_autostop_interval(20)
        assert client.get(one.id).auto_stop_interval == 20
        one.set_auto_archive_interval(120)
        assert client.get(one.id).auto_archive_interval == 120
        one.fs.upload_file(b"kept", "kept.txt")
        client.stop(one)
        one.archive()
        client.start(one, timeout=120)
        assert one.fs.download_file("kept.txt") == b"kept"
    finally:
        client.delete(one)


@supports("process", "`exec`: output, exit codes, environment, directory, a time limit that ends the whole tree; `code_run`")
def test_process(box):
    reply = box.process.exec("echo out; echo err >&2; exit 3")
    assert reply.exit_code == 3 and sorted(reply.result.split()) == ["err", "out"]
    assert box.process.exec('printf "%s" "$COLOUR"').result.strip() == "te al"
    assert box.process.exec("echo $PWD $WORD", cwd="/tmp", env={"WORD": "w"}).result.strip() == "/tmp w"
    assert len(box.process.exec("seq 1 20000").result.split()) == 20_000
    with pytest.raises(Exception):
        box.process.exec("sleep 987 & wait", timeout=1)
    assert box.process.exec("pgrep -c -f 'sleep 98[7]'").result.strip() == "0"
    ran = box.process.code_run("import sys; print(6 * 7); sys.exit(4)")
    assert ran.result.strip() == "42" and ran.exit_code == 4


@supports("sessions", "one shell each, whose directory and variables stay; commands that are waited for and others; their output, following it, their end")
def test_sessions(box, tag, until):
    session = tag("session")
    box.process.create_session(session)
    run = lambda command, **more: box.process.execute_session_command(session, shell(command, **more))  # noqa: E731
    run("cd /tmp; KEPT=x")
    reply = run('echo "$PWD $KEPT $COLOUR"; (exit 5)')
    assert output(reply).strip() == "/tmp x te al" and reply.exit_code == 5
    reply = run("echo out; echo err >&2")
    logs = box.process.get_session_command_logs(session, reply.cmd_id)
    if SPLITS:
        assert (logs.stdout.strip(), logs.stderr.strip()) == ("out", "err")
    else:
        assert sorted(logs.split()) == ["err", "out"]
    slow = run("for n in 1 2 3; do echo line$n; sleep 0.2; done; (exit 7)", background=True)
    said = []
    asyncio.run(box.process.get_session_command_logs_async(session, slow.cmd_id, *([said.append] * (2 if SPLITS else 1))))
    assert "".join(said).split() == ["line1", "line2", "line3"]
    assert until(lambda: box.process.get_session_command(session, slow.cmd_id).exit_code) == 7
    with pytest.raises(DaytonaError):
        box.process.create_session(session)
    assert session in [one.session_id for one in box.process.list_sessions()]
    box.process.delete_session(session)


@supports("files", "upload and download, folders, list, info, permissions, move, find in files, search by name, replace, delete")
def test_files(box, tag):
    fs, folder = box.fs, f"/tmp/{tag('files')}"
    fs.create_folder(folder, "755")
    fs.upload_file("grüße\n".encode(), f"{folder}/a.txt")
    fs.upload_file(bytes(range(256)), f"{folder}/deep/b.bin")
    assert fs.download_file(f"{folder}/a.txt") == "grüße\n".encode() and fs.download_file(f"{folder}/deep/b.bin") == bytes(range(256))
    assert sorted((f.name, f.is_dir) for f in fs.list_files(folder)) == [("a.txt", False), ("deep", True)]
    fs.set_file_permissions(f"{folder}/a.txt", "600")
    info = fs.get_file_info(f"{folder}/a.txt")
    assert info.size == 8 and info.mode == "-rw-------"
    assert [(found.file, found.line) for found in fs.find_files(folder, "grüße")] == [(f"{folder}/a.txt", 1)]
    assert [path.split("/")[-1] for path in fs.search_files(folder, "*.bin").files] == ["b.bin"]
    assert [done.success for done in fs.replace_in_files([f"{folder}/a.txt"], "grüße", "bye")] == [True]
    fs.move_files(f"{folder}/a.txt", f"{folder}/c.txt")
    assert fs.download_file(f"{folder}/c.txt") == b"bye\n"
    fs.delete_file(f"{folder}/c.txt")
    with pytest.raises(Exception):
        fs.get_file_info(f"{folder}/c.txt")


@supports("previews", "links to ports: the token in Daytona's header, as bearer, or in the address; the key; the token alone, without the link's path")
def test_previews(box, key, url, until):
    box.process.create_session("web")
    box.process.execute_session_command("web", shell("cd /etc && python3 -m http.server 3456", background=True))
    link = box.get_preview_link(3456)
    name = {"X-Daytona-Preview-Token": link.token}
    look = lambda address=link.url + "/hostname", **headers: httpx.get(address, headers=headers, trust_env=False)  # noqa: E731
    until(lambda: look(**name).status_code == 200, what="the program in the sandbox listens")
    assert look().status_code == 401 and look(Authorization="Bearer wrong").status_code == 401
    for headers in (name, {"Authorization": f"Bearer {link.token}"}, {"Authorization": f"Bearer {key}"}):
        assert look(**headers).status_code == 200, headers
    assert look(f"{link.url}/hostname?DAYTONA_SANDBOX_AUTH_KEY={link.token}").status_code == 200
    assert look(url.removesuffix("/daytona/api") + "/hostname", **name).status_code == 200


@supports("volumes", "create, find, mount, used by two sandboxes one after the other; POSIX, so databases and disk images may sit on them")
def test_volumes(client, tag, until):
    volume = client.volume.get(tag("volume"), create=True)
    until(lambda: client.volume.get(volume.name).state == "ready", what="the volume is ready")
    assert volume.name in [one.name for one in client.volume.list()]
    try:
        for n in range(2):
            one = client.create(CreateSandboxFromSnapshotParams(snapshot="base", volumes=[mount(volume)]))
            try:
                said = one.process.exec("echo $$ >> /vm/log; mv /vm/log /vm/log2; mv /vm/log2 /vm/log; wc -l < /vm/log").result.strip()
                assert said == str(n + 1)
            finally:
                client.delete(one)
    finally:
        until(lambda: deleted(client, volume), what="the volume is let go of")


def mount(volume):
    """The oldest releases have the names of the wire."""
    old = RELEASE < (0, 100)
    return VolumeMount(volumeId=volume.id, mountPath="/vm") if old else VolumeMount(volume_id=volume.id, mount_path="/vm")


def deleted(client, volume) -> bool:
    try:
        client.volume.delete(volume)
    except Exception as problem:  # noqa: BLE001 - some releases let the generated client's own through
        assert "use" in str(problem), problem
        return False
    return True


@supports("snapshots", "from an image name; list, get, delete; sandboxes from them")
def test_snapshots(client, tag):
    name = tag("snapshot")
    made = client.snapshot.create(CreateSnapshotParams(name=name, image="debian:12.9", resources=Resources(cpu=1, memory=1, disk=3)))
    try:
        assert state(made) == "active" and client.snapshot.get(name).id == made.id
        one = client.create(CreateSandboxFromSnapshotParams(snapshot=name))
        assert one.process.exec("echo ready").result.strip() == "ready"
        client.delete(one)
    finally:
        client.snapshot.delete(client.snapshot.get(name))
    with pytest.raises(DaytonaError):
        client.snapshot.get(name)


@supports("errors", "wrong keys, unknown sandboxes, snapshots and images, missing files: status, text and code by which the SDK raises its classes")
def test_errors(client, box, url, tag):
    with pytest.raises(DaytonaError):
        client.get("d-000000000000")
    with pytest.raises(DaytonaError, match="(?i)snapshot"):
        client.create(CreateSandboxFromSnapshotParams(snapshot=tag("nothing")))
    with pytest.raises(DaytonaError, match=r"nobody/knows:1.*\[images\]"):
        client.create(CreateSandboxFromImageParams(image="nobody/knows:1"))
    with pytest.raises(DaytonaError):
        Daytona(DaytonaConfig(api_key="hd_wrong", api_url=url)).get(box.id)
    with pytest.raises(Exception, match="(?i)no such file|not found"):
        box.fs.get_file_info("/no/such/file")
