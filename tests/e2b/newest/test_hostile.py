"""Clients that E2B's SDK is not: wrong keys, others' sandboxes, too much, too slow, gone in the middle, a thousand at once."""

from __future__ import annotations

import base64
import json
import os
import struct
import time

import hostile
import httpx
import pytest
from e2b import Sandbox
from support import supports

START = "/process.Process/Start"
STREAM = {"Content-Type": "application/connect+json", "Connect-Protocol-Version": "1"}


@pytest.fixture(scope="module")
def box():
    with Sandbox.create(timeout=1800) as sandbox:
        sandbox.commands.run("true")
        yield sandbox


@pytest.fixture(scope="module")
def desk(box) -> str:
    return "d-" + box.sandbox_id[1:]


@pytest.fixture(scope="module")
def url() -> str:
    return os.environ["E2B_API_URL"]


@pytest.fixture(scope="module")
def token(box) -> str:
    return httpx.get(f"{os.environ['E2B_API_URL']}/sandboxes/{box.sandbox_id}", headers={"X-API-Key": os.environ["E2B_API_KEY"]}, trust_env=False).json()["envdAccessToken"]


@pytest.fixture(scope="module")
def inside(box, token) -> dict[str, str]:
    """The headers by which a sandbox is asked for something."""
    return {"E2b-Sandbox-Id": box.sandbox_id, "E2b-Sandbox-Port": "49983", "X-Access-Token": token}


def envelope(message: object, kind: int = 0) -> bytes:
    data = json.dumps(message).encode()
    return struct.pack(">BI", kind, len(data)) + data


def start(command: str) -> bytes:
    return envelope({"process": {"cmd": "/bin/bash", "args": ["-c", command]}, "stdin": False})


def control(box) -> list[tuple[str, str]]:
    """One request of every kind that names a sandbox."""
    at = f"/sandboxes/{box.sandbox_id}"
    calls = [("GET", at), ("DELETE", at), ("GET", at + "/metrics"), ("PUT", at + "/network"), ("POST", f"/v2{at}/connect")]
    return calls + [("POST", f"{at}/{verb}") for verb in ("timeout", "pause", "connect", "resume", "snapshots", "fork")]


def data() -> list[tuple[str, str, dict[str, str], bytes]]:
    """One request of every kind that is answered by a sandbox."""
    unary = {"Content-Type": "application/json"}
    calls = [("POST", f"/process.Process/{name}", unary, b"{}") for name in ("List", "SendInput", "SendSignal", "Update", "CloseStdin")]
    calls += [("POST", f"/filesystem.Filesystem/{name}", unary, b'{"path": "/etc"}') for name in ("ListDir", "Stat", "MakeDir", "Remove", "CreateWatcher")]
    calls += [("POST", START, STREAM, start("id")), ("POST", "/filesystem.Filesystem/WatchDir", STREAM, envelope({"path": "/etc"}))]
    return calls + [("GET", "/files?path=/etc/passwd", {}, b""), ("POST", "/files?path=/tmp/x", {"Content-Type": "application/octet-stream"}, b"x")]


@supports("hostile clients", "wrong keys and tokens")
def test_wrong_keys_and_tokens(url, box, inside):
    for headers in ({}, {"X-API-Key": "e2b_" + "0" * 64}, {"X-API-Key": "hd_wrong"}, {"X-API-Key": inside["X-Access-Token"]}):
        for method, path in control(box):
            reply = httpx.request(method, url + path, headers=headers, json={"timeout": 1}, trust_env=False)
            # so many wrong keys from one address are soon answered by asking to wait
            assert reply.status_code in (401, 429), (method, path, headers, reply.text)
    for wrong in (None, "", "0" * 64, os.environ["E2B_API_KEY"]):
        headers = {**inside, "X-Access-Token": wrong} if wrong is not None else {k: v for k, v in inside.items() if k != "X-Access-Token"}
        for method, path, kind, body in data():
            reply = httpx.request(method, url + path, headers=headers | kind, content=body, trust_env=False)
            assert reply.status_code in (401, 429), (method, path, wrong, reply.text)
    assert box.is_running(), "and whoever has the key is not held up"


@supports("hostile clients", "sandboxes of others")
def test_sandboxes_of_others(url, box, inside):
    """Neither a key of another project nor the token of another sandbox opens anything."""
    scope = {"name": "stranger", "scope": {"kind": "project", "project": "strangers"}}
    made = patiently("POST", f"{os.environ['HOTDESK_URL']}/v1/keys", headers={"Authorization": f"Bearer {os.environ['HOTDESK_KEY']}"}, json=scope)
    secret = made.json()["secret"].removeprefix("hd_")
    key = "e2b_" + base64.urlsafe_b64decode(secret + "=").hex()
    for method, path in control(box):
        reply = patiently(method, url + path, headers={"X-API-Key": key}, json={"timeout": 1})
        assert reply.status_code == 404, (method, path, reply.text)
    assert patiently("GET", url + "/v2/sandboxes", headers={"X-API-Key": key}).json() == []
    with Sandbox.create(timeout=300, api_key=key) as other:
        theirs = patiently("GET", f"{url}/sandboxes/{other.sandbox_id}", headers={"X-API-Key": key}).json()["envdAccessToken"]
        for method, path, kind, body in data():
            reply = patiently(method, url + path, headers={**inside, "X-Access-Token": theirs} | kind, content=body)
            assert reply.status_code == 401, (method, path, reply.text)
    assert box.is_running()


def patiently(method: str, address: str, **more) -> httpx.Response:
    """Asks again while the fleet says that this address asked too often, as after the test above."""
    end = time.monotonic() + hostile.PATIENCE
    while (reply := httpx.request(method, address, trust_env=False, timeout=hostile.PATIENCE, **more)).status_code == 429:
        assert time.monotonic() < end
        time.sleep(1)
    return reply


@supports("hostile clients", "bodies, heads and envelopes that are too large")
def test_more_than_anybody_needs(url, box, desk, inside):
    with hostile.nothing_stays(desk):
        mine = {"X-API-Key": os.environ["E2B_API_KEY"], "Content-Type": "application/json"}
        unary = inside | {"Content-Type": "application/json"}
        for path, headers in (("/v2/sandboxes", mine), ("/filesystem.Filesystem/Stat", unary), (START, inside | STREAM), ("/process.Process/SendInput", unary)):
            with hostile.connection(url) as one:
                one.sendall(hostile.head("POST", url + path, headers | {"Content-Length": str(1 << 40)}) + (b"\0\xff\xff\xff\xff" if path == START else b"{"))
                assert hostile.status(one) in (0, 200, 400, 413, 429), path
            with hostile.connection(url) as one:
                one.sendall(hostile.head("POST", url + path, headers | {"Transfer-Encoding": "chunked"}))
                try:
                    one.sendall(b"5\r\n\0\xff\xff\xff\xff\r\n")
                    for _ in range(80):
                        one.sendall(b"100000\r\n" + b"[" * (1 << 20) + b"\r\n")
                except OSError:
                    pass
                assert hostile.status(one) in (0, 200, 400, 413, 429), path
        with hostile.connection(url) as one:
            one.sendall(f"GET /v2/sandboxes HTTP/1.1\r\nHost: x\r\nX-Long: {'y' * (1 << 20)}".encode())
            assert hostile.status(one) in (0, 400, 431)
        for body in (b"", b"\0", b"\0\0\0\0\1", b"\0\0\0\0\2[]", b"\7\0\0\0\2{}", b"\2\0\0\0\2{}", envelope({"process": 7}), b"\xff" * 1000):
            reply = httpx.post(url + START, headers=inside | STREAM, content=body, trust_env=False)
            assert reply.status_code >= 400 or b'"error"' in reply.content, (body, reply.content)
        for body in (b"7", b"{", b"\xff" * 100, b"[" * 100_000):
            reply = httpx.post(f"{url}/filesystem.Filesystem/Stat", headers=unary, content=body, trust_env=False)
            assert 400 <= reply.status_code < 500, (body[:20], reply.text)
        assert box.commands.run("echo well").stdout == "well\n"


@supports("hostile clients", "readers who do not read")
def test_slow_readers(url, box, desk, inside):
    """They hold up themselves, and nothing is collected for them."""
    with hostile.nothing_stays(desk):
        watched = [int(os.environ["HOTDESK_PID"]), *hostile.servers(desk)]
        before = {pid: hostile.memory_mib(pid) for pid in watched}
        box.commands.run("truncate -s 2G /tmp/sparse")
        slow = []
        flood = start("exec yes 987654321")
        for _ in range(10):
            one = hostile.connection(url)
            one.sendall(hostile.head("GET", url + "/files?path=/tmp/sparse", inside))
            slow.append(one)
            one = hostile.connection(url)
            one.sendall(hostile.head("POST", url + START, inside | STREAM | {"Content-Length": str(len(flood))}) + flood)
            slow.append(one)
        for one in slow:
            assert hostile.status(one) == 200
        for _ in range(100):
            assert box.commands.run("echo well").stdout == "well\n", "others are served meanwhile"
        grown = {pid: hostile.memory_mib(pid) - before[pid] for pid in watched}
        assert max(grown.values()) < hostile.SPARE_MIB, f"what nobody reads is kept in memory: {grown} MiB"
        for one in slow:
            one.close()
        # a program outlives its reader here, as at E2B
        assert box.commands.run("pkill -c -f 'yes 98765432[1]'").stdout.strip() == "10"
        box.commands.run("rm /tmp/sparse")


@supports("hostile clients", "clients who leave in the middle")
def test_gone_in_the_middle(url, box, desk, inside):
    """Half a head, half a body, half a stream; closed, reset, or closed on one side alone."""
    mine = {"X-API-Key": os.environ["E2B_API_KEY"], "Content-Type": "application/json"}
    sleep, watch = start("exec sleep 987"), envelope({"path": "/tmp"})
    with hostile.nothing_stays(desk):
        for n in range(60):
            one = hostile.connection(url)
            match n % 6:
                case 0:
                    one.sendall(b"POST /v2/sandboxes HTTP/1.1\r\nHost: x\r\nX-API")
                case 1:
                    one.sendall(hostile.head("POST", url + "/v2/sandboxes", mine | {"Content-Length": "100"}) + b'{"templateID"')
                case 2:
                    one.sendall(hostile.head("POST", url + "/files?path=/tmp/half", inside | {"Content-Type": "application/octet-stream", "Content-Length": "1000000"}) + b"half")
                case 3:
                    one.sendall(hostile.head("POST", url + START, inside | STREAM | {"Content-Length": str(len(sleep)), "Connect-Timeout-Ms": "60000"}) + sleep)
                    assert hostile.status(one) == 200
                case 4:
                    one.sendall(hostile.head("POST", url + "/filesystem.Filesystem/WatchDir", inside | STREAM | {"Content-Length": str(len(watch))}) + watch)
                    assert hostile.status(one) == 200
                case 5:
                    one.sendall(hostile.head("POST", url + START, inside | STREAM | {"Transfer-Encoding": "chunked"}) + b"5\r\n\0\0\0\1\0\r\n")
            if n % 6 in (0, 1, 2, 5) and n % 4 == 1:
                one.shutdown(1)
                hostile.closes(one)
            hostile.reset(one) if n % 2 else one.close()
        assert box.commands.run("pkill -c -f 'sleep 98[7]'").stdout.strip() == "10", "a program outlives its reader here, as at E2B"
        assert not box.files.exists("/tmp/half")


@supports("hostile clients", "a thousand commands at once")
def test_a_thousand_at_once(url, box, desk, inside):
    """On a thousand connections, all of them open before the first is answered."""

    def request(n: int):
        body = start(f"echo number {n}")
        return url, hostile.head("POST", url + START, inside | STREAM | {"Connection": "close", "Content-Length": str(len(body))}) + body

    with hostile.nothing_stays(desk):
        answers = hostile.at_once(1000, request)
        said = [base64.b64encode(f"number {n}\n".encode()) for n in range(1000)]
        wrong = [(n, answer) for n, answer in enumerate(answers) if answer[0] != 200 or said[n] not in answer[1]]
        assert not wrong, f"{len(wrong)} of {len(answers)}, such as {wrong[:3]}"
        assert box.commands.run("pgrep -c -f 'echo numbe[r]' || true").stdout.strip() == "0"
