"""Clients that Daytona's SDK is not: wrong keys, others' sandboxes, too much, too slow, gone in the middle, a thousand at once."""

from __future__ import annotations

import json
import os
import struct

import hostile
import httpx
import pytest
from daytona import CreateSandboxFromSnapshotParams, Daytona, DaytonaConfig, SessionExecuteRequest
from support import supports


#: What any of the calls needs.
WISH = {"name": "x", "labels": {}, "command": "true", "code": "1", "language": "python", "sessionId": "x", "x": 1, "y": 1, "set": {}}


@pytest.fixture(scope="module")
def client(url, key):
    return Daytona(DaytonaConfig(api_key=key, api_url=url, target="us"))


@pytest.fixture(scope="module")
def sandbox(client):
    one = client.create(CreateSandboxFromSnapshotParams(snapshot=os.environ.get("HOTDESK_TEMPLATE", "base")))
    one.process.exec("true")
    yield one
    client.delete(one)


@pytest.fixture(scope="module")
def inside(sandbox) -> str:
    return f"{sandbox.toolbox_proxy_url}/{sandbox.id}"


@pytest.fixture(scope="module")
def mine(key) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def asked(url: str, inside: str, sandbox) -> list[tuple[str, str]]:
    """One request of every kind that names a sandbox."""
    at = f"{url}/sandbox/{sandbox.id}"
    control = [("GET", ""), ("DELETE", ""), ("PUT", "/labels")]
    control += [("POST", path) for path in ("/start", "/stop", "/archive", "/fork", "/snapshot", "/autostop/1", "/public/true", "/last-activity")]
    control += [("GET", "/ports/3000/preview-url"), ("GET", "/ports/3000/signed-preview-url"), ("GET", "/toolbox-proxy-url"), ("GET", "/signing-key")]
    tools = [("POST", "/process/execute"), ("POST", "/process/code-run"), ("POST", "/process/session"), ("GET", "/process/session")]
    tools += [("GET", "/files?path=/"), ("GET", "/files/download?path=/etc/passwd"), ("DELETE", "/files?path=/tmp"), ("POST", "/files/bulk-upload")]
    tools += [("GET", "/computeruse/screenshot"), ("POST", "/computeruse/mouse/click"), ("GET", "/process/pty"), ("POST", "/env")]
    old = f"{url}/toolbox/{sandbox.id}/toolbox"
    return [(m, at + p) for m, p in control] + [(m, base + p) for base in (inside, old) for m, p in tools]


@supports("hostile clients", "wrong keys")
def test_wrong_keys(url, inside, sandbox, client):
    for headers in ({}, {"Authorization": "Bearer hd_wrong"}, {"Authorization": "Basic eDp5"}, {"X-Daytona-Preview-Token": "x"}):
        for method, address in asked(url, inside, sandbox)[:: 1 if headers else 3]:
            reply = httpx.request(method, address, headers=headers, json={}, trust_env=False)
            # so many wrong keys from one address are soon answered by asking to wait
            assert reply.status_code in (401, 429), (method, address, headers, reply.text)
    link = sandbox.get_preview_link(3000).url
    assert httpx.get(link, trust_env=False).status_code in (401, 404, 429)
    assert client.get(sandbox.id).state == "started", "and whoever has the key is not held up"


@supports("hostile clients", "sandboxes of others")
def test_sandboxes_of_others(url, inside, sandbox, client, key, until):
    made = until(lambda: new_key(key))
    theirs = {"Authorization": f"Bearer {made}"}
    for method, address in asked(url, inside, sandbox):
        reply = until(lambda: unless_busy(httpx.request(method, address, headers=theirs, json=WISH, trust_env=False)))
        # 400: a body of the wrong kind is refused before it matters whose sandbox it is
        assert reply.status_code in (400, 404), (method, address, reply.text)
        assert "hd_" not in reply.text
    with hostile.connection(inside) as one:
        upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "MDEyMzQ1Njc4OWFiY2RlZg=="}
        one.sendall(hostile.head("GET", inside + "/process/pty/create-connect?id=x&cols=80&rows=24", theirs | upgrade))
        assert hostile.status(one) == 404
    assert client.get(sandbox.id).state == "started"


def new_key(key: str) -> str | None:
    base = os.environ["HOTDESK_URL"]
    scope = {"name": "stranger", "scope": {"kind": "project", "project": "strangers"}}
    reply = httpx.post(f"{base}/v1/keys", headers={"Authorization": f"Bearer {key}"}, json=scope, trust_env=False)
    return reply.json()["secret"] if reply.status_code < 300 else None


def unless_busy(reply):
    return reply if reply.status_code != 429 else None


@supports("hostile clients", "bodies, heads and frames that are too large")
def test_more_than_anybody_needs(url, inside, sandbox, mine):
    with hostile.nothing_stays(sandbox.id):
        # announced and never sent; announced by chunks; a head without an end
        for address in (f"{url}/sandbox", f"{inside}/process/execute", f"{inside}/env", f"{inside}/computeruse/keyboard/type"):
            with hostile.connection(url) as one:
                one.sendall(hostile.head("POST", address, mine | {"Content-Type": "application/json", "Content-Length": str(1 << 40)}))
                assert hostile.status(one) in (0, 400, 404, 413), address
            with hostile.connection(url) as one:
                one.sendall(hostile.head("POST", address, mine | {"Content-Type": "application/json", "Transfer-Encoding": "chunked"}))
                answer = 0
                try:
                    for _ in range(80):
                        one.sendall(b"100000\r\n" + b"[" * (1 << 20) + b"\r\n")
                except OSError:
                    pass
                answer = hostile.status(one)
                assert answer in (0, 400, 404, 413), (address, answer)
        with hostile.connection(url) as one:
            one.sendall(f"GET /daytona/api/sandbox HTTP/1.1\r\nHost: x\r\nX-Long: {'y' * (1 << 20)}".encode())
            assert hostile.status(one) in (0, 400, 431)
        for body in (b"", b"[]", b"{", b"\xff" * 100, b"[" * 100_000, b'{"command": 7}'):
            reply = httpx.post(f"{inside}/process/execute", headers=mine | {"Content-Type": "application/json"}, content=body, trust_env=False)
            assert 400 <= reply.status_code < 500, (body[:20], reply.text)
        # a frame of 2^62 bytes, and one of 256 MiB that really comes
        for size, sent in ((1 << 62, 1 << 20), (256 << 20, 256 << 20)):
            one = hostile.upgraded(f"{inside}/process/pty/create-connect?id=frame-{size}&cols=80&rows=24", mine)
            try:
                one.sendall(b"\x82\xff" + struct.pack(">Q", size) + b"\0\0\0\0")
                for _ in range(sent >> 20):
                    one.sendall(bytes(1 << 20))
            except OSError:
                pass
            assert hostile.closes(one)
            one.close()
        assert sandbox.process.exec("echo well").result.strip() == "well"


@supports("hostile clients", "readers who do not read")
def test_slow_readers(inside, sandbox, mine):
    """They hold up themselves, and nothing is collected for them."""
    with hostile.nothing_stays(sandbox.id):
        watched = [int(os.environ["HOTDESK_PID"]), *hostile.servers(sandbox.id)]
        before = {pid: hostile.memory_mib(pid) for pid in watched}
        sandbox.process.exec("truncate -s 2G /tmp/sparse")
        sandbox.process.create_session("flood")
        flood = sandbox.process.execute_session_command("flood", SessionExecuteRequest(command="yes | head -c 500000000", run_async=True))
        slow = []
        for _ in range(10):
            one = hostile.connection(inside)
            one.sendall(hostile.head("GET", f"{inside}/files/download?path=/tmp/sparse", mine))
            slow.append(one)
        for _ in range(5):
            slow.append(hostile.upgraded(f"{inside}/process/session/flood/command/{flood.cmd_id}/logs?follow=true", mine))
        for one in slow[:10]:
            assert hostile.status(one) == 200
        for _ in range(100):
            assert sandbox.process.exec("echo well").result.strip() == "well", "others are served meanwhile"
        grown = {pid: hostile.memory_mib(pid) - before[pid] for pid in watched}
        assert max(grown.values()) < hostile.SPARE_MIB, f"what nobody reads is kept in memory: {grown} MiB"
        for one in slow:
            one.close()
        sandbox.process.delete_session("flood")
        sandbox.process.exec("rm /tmp/sparse")


def test_what_is_printed_is_bounded(inside, sandbox, mine):
    with hostile.nothing_stays(sandbox.id):
        with httpx.stream("POST", f"{inside}/process/execute", headers=mine, json={"command": "head -c 1G /dev/zero | tr '\\0' x"}, timeout=hostile.PATIENCE, trust_env=False) as reply:
            assert reply.status_code in (200, 400, 413, 500, 502)
            for _ in reply.iter_raw():
                pass
        assert sandbox.process.exec("echo well").result.strip() == "well"


@supports("hostile clients", "clients who leave in the middle")
def test_gone_in_the_middle(url, inside, sandbox, mine, until):
    """Half a head, half a body, half a stream; closed, reset, or closed on one side alone."""
    upload = mine | {"Content-Type": "multipart/form-data; boundary=b", "Content-Length": "100000000"}
    part = b'--b\r\nContent-Disposition: form-data; name="files[0].path"\r\n\r\n/tmp/half\r\n--b\r\nContent-Disposition: form-data; name="files[0].file"; filename="half"\r\n\r\nhalf of it'
    with hostile.nothing_stays(sandbox.id):
        for n in range(60):
            one = hostile.connection(url)
            match n % 6:
                case 0:
                    one.sendall(b"POST /daytona/api/sandbox HTTP/1.1\r\nHost: x\r\nAuthor")
                case 1:
                    one.sendall(hostile.head("POST", f"{url}/sandbox", mine | {"Content-Type": "application/json", "Content-Length": "100"}) + b'{"name"')
                case 2:
                    one.sendall(hostile.head("POST", f"{inside}/files/bulk-upload", upload) + part)
                case 3:
                    body = json.dumps({"command": "exec sleep 987"}).encode()
                    one.sendall(hostile.head("POST", f"{inside}/process/execute", mine | {"Content-Type": "application/json", "Content-Length": str(len(body))}) + body)
                case 4:
                    one.close()
                    one = hostile.upgraded(f"{inside}/process/pty/create-connect?id=left-{n}&cols=80&rows=24", mine)
                    one.sendall(b"\x82\xfe\xff\xff")
                case 5:
                    one.sendall(hostile.head("GET", f"{inside}/files/download?path=/usr/bin/python3", mine))
            if n % 3 == 0:
                one.shutdown(1)
                hostile.closes(one)
            hostile.reset(one) if n % 2 else one.close()
        until(lambda: sandbox.process.exec("pgrep -c -f 'sleep 98[7]' || true").result.strip() == "0", 60, "what they asked for ends with them")
        for n in range(60):
            if n % 6 == 4:
                sandbox.process.kill_pty_session(f"left-{n}")


@supports("hostile clients", "a thousand commands at once")
def test_a_thousand_at_once(inside, sandbox, key):
    """On a thousand connections, all of them open before the first is answered."""

    def request(n: int):
        body = json.dumps({"command": f"echo number {n}"}).encode()
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json", "Connection": "close", "Content-Length": str(len(body))}
        return inside, hostile.head("POST", f"{inside}/process/execute", headers) + body

    with hostile.nothing_stays(sandbox.id):
        answers = hostile.at_once(1000, request)
        wrong = [(n, answer) for n, answer in enumerate(answers) if answer[0] != 200 or f"number {n}\\n".encode() not in answer[1]]
        assert not wrong, f"{len(wrong)} of {len(answers)}, such as {wrong[:3]}"
        assert sandbox.process.exec("pgrep -c -f 'echo numbe[r]' || true").result.strip() == "0"
