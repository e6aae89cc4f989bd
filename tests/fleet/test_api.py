"""The API as its own document describes it, and what a document can't say: idempotency, streams, tunnels, TLS."""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
import rfb
import served
from served import TEMPLATE
from waiting import eventually

import hotdesk
from hotdesk import Resources, State
from hotdesk.forward import Gateway, HttpForwarder
from hotdesk.settings import Settings

SMALL = Resources(cpus=0.5, memory_mib=512, disk_mib=1024)
#: Requests per operation that schemathesis makes up; more find little and take minutes.
EXAMPLES = 8


# ── the document ─────────────────────────────────────────────────────────────


def test_every_route_keeps_its_promises(fleet):
    """schemathesis makes up good and bad requests for each operation: no 5xx, and every answer is one that the document describes."""
    import schemathesis
    from hypothesis import HealthCheck, Phase, given, settings
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi.checks import content_type_conformance, response_headers_conformance, response_schema_conformance, status_code_conformance

    checks = [not_a_server_error, status_code_conformance, content_type_conformance, response_headers_conformance, response_schema_conformance]
    schema = schemathesis.openapi.from_url(fleet.url + "/v1/openapi.json")
    client = fleet.client()
    desk = client.desks.create(TEMPLATE, name="spare", resources=SMALL)
    headers = {"Authorization": f"Bearer {fleet.key}"}
    problems: list[str] = []
    calls = 0

    for result in schema.get_all_operations():
        operation = result.ok()
        if not wanted(operation):
            continue

        @given(case=operation.as_strategy())
        @settings(max_examples=EXAMPLES, deadline=None, derandomize=True, database=None, phases=[Phase.explicit, Phase.generate], suppress_health_check=list(HealthCheck))
        def ask(case):
            nonlocal calls
            calls += 1
            tame(case, desk.id)
            case.call_and_validate(base_url=fleet.url, headers=headers, checks=checks, timeout=60)

        try:
            ask()
        except Exception as e:
            problems.append(f"{operation.method.upper()} {operation.path}: {shorten(e)}")
    assert not problems, f"{len(problems)} of the operations broke a promise ({calls} calls):\n" + "\n".join(problems)
    assert calls > 100
    assert fleet.get("/health").status_code == 200


def wanted(operation) -> bool:
    # streams have no end, WebSockets and tunnels are tested below, and a template's build takes minutes
    return not re.search(r"/(ports|view|stream|attach|watch|build)\b", operation.path)


def tame(case, desk: str) -> None:
    """Made-up requests must not wait, build templates or take the test's own things away."""
    query = case.query if isinstance(case.query, dict) else {}
    if "wait" in query and str(query["wait"]).isdigit():
        query["wait"] = min(int(query["wait"]), 5)
    for limit in ("limit_ms", "quiet_ms"):
        if str(query.get(limit, "")).isdigit():
            query[limit] = min(int(query[limit]), 500)
    if isinstance(case.body, dict):
        if case.method.upper() == "POST" and case.path in ("/v1/desks", "/v1/desks/{id}/fork", "/vm/create") and "template" in case.body:
            case.body["template"] = TEMPLATE
        if "template" not in case.body and case.path in ("/v1/desks", "/vm/create") and not case.body.get("snapshot"):
            case.body["template"] = TEMPLATE
        if isinstance(case.body.get("queue_s"), int):
            case.body["queue_s"] = min(case.body["queue_s"], 1)
        if case.path == "/v1/pools":
            case.body["min"] = case.body["max"] = 0
        if "timeout_ms" in case.body:
            case.body["timeout_ms"] = 1000
    if case.method.upper() in ("GET", "PATCH") and "id" in (case.path_parameters or {}) and "/desks/" in case.path:
        case.path_parameters["id"] = desk


def shorten(error: BaseException) -> str:
    parts = getattr(error, "exceptions", None)
    text = "; ".join(str(p) for p in parts) if parts else str(error)
    return " ".join(text.split())[:600]


def test_the_document_names_the_routes(shared):
    document = shared.get("/v1/openapi.json").json()
    described = {f"{m.upper()} {p}" for p, methods in document["paths"].items() for m in methods if m in ("get", "post", "put", "patch", "delete")}
    for route in (
        "GET /v1/fleet", "POST /v1/desks", "GET /v1/desks", "GET /v1/desks/{id}", "PATCH /v1/desks/{id}", "DELETE /v1/desks/{id}",
        "POST /v1/desks/{id}/start", "POST /v1/desks/{id}/stop", "POST /v1/desks/{id}/reset", "POST /v1/desks/{id}/archive",
        "POST /v1/desks/{id}/extend", "POST /v1/desks/{id}/snapshot", "POST /v1/desks/{id}/fork", "GET /v1/desks/{id}/usage",
        "GET /v1/events", "GET /v1/snapshots", "DELETE /v1/snapshots/{id}", "GET /v1/pools", "PUT /v1/pools", "DELETE /v1/pools/{template}",
        "GET /v1/keys", "POST /v1/keys", "POST /v1/keys/{id}/rotate", "DELETE /v1/keys/{id}", "GET /v1/costs", "GET /v1/budgets",
        "PUT /v1/budgets", "GET /v1/audit", "GET /v1/templates",
        "POST /vm/create", "POST /vm/{id}/execute", "GET /vm/{id}/screenshot", "DELETE /vm/{id}/delete",
    ):  # fmt: skip
        assert route in described, route


def test_errors_have_one_form(shared):
    for method, path, body, status in (
        ("GET", "/v1/desks/d-nosuchdesk00", None, 404),
        ("GET", "/v1/nothing", None, 404),
        ("PATCH", "/v1/desks", None, 405),
        ("POST", "/v1/desks", b"{", 400),
        ("POST", "/v1/desks", b'{"unknown_field": 1}', 400),
        ("POST", "/v1/desks", b'{"labels": 3}', 400),
        ("GET", "/v1/events?after=x", None, 400),
        ("GET", "/v1/desks?state=dreaming", None, 400),
    ):
        answer = shared.request(method, path, content=body, headers={"Content-Type": "application/json"})
        assert answer.status_code in (status, 422 if status == 400 else status), (method, path, answer.status_code, answer.text)
        assert answer.headers["content-type"] == "application/problem+json", (method, path)
        problem = answer.json()
        assert problem["status"] == answer.status_code and problem["code"] and problem["title"] and problem["detail"] and problem["retry"] is False


# ── the original plan's four routes ──────────────────────────────────────────


def test_the_four_routes_of_the_plan(shared):
    made = shared.request("POST", "/vm/create", json={"template": TEMPLATE})
    assert made.status_code in (200, 201), made.text
    body = made.json()
    desk = body.get("id") or body.get("vm_id")
    assert desk
    done = shared.request("POST", f"/vm/{desk}/execute", json={"command": "echo forty-two"})
    assert done.status_code == 200 and "forty-two" in done.text, done.text
    picture = shared.request("GET", f"/vm/{desk}/screenshot")
    assert picture.status_code == 200 and picture.content[:4] == b"\x89PNG"
    assert shared.request("DELETE", f"/vm/{desk}/delete").status_code in (200, 204)
    assert shared.request("GET", f"/vm/{desk}/screenshot").status_code == 404


# ── idempotency ──────────────────────────────────────────────────────────────


def test_idempotency_keys(shared):
    body = {"template": TEMPLATE, "resources": {"cpus": 0.5, "memory_mib": 512, "disk_mib": 1024}}
    one = {"Idempotency-Key": "one"}
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda _: shared.request("POST", "/v1/desks", json=body, headers=one), range(6)))
    assert {a.status_code for a in answers} <= {200, 201, 202} and len({a.json()["id"] for a in answers}) == 1, [a.text for a in answers]
    first = answers[0].json()["id"]
    shared.kill()
    shared.start()
    assert shared.request("POST", "/v1/desks", json=body, headers=one).json()["id"] == first, "also after a restart"
    other = shared.request("POST", "/v1/desks", json={**body, "labels": {"another": "request"}}, headers=one)
    assert other.status_code in (409, 422) or other.json()["id"] == first, "one key never makes a second desk"
    second = shared.request("POST", "/v1/desks", json=body, headers={"Idempotency-Key": "two"}).json()["id"]
    assert second != first
    key = shared.client().keys.create("elsewhere", project="elsewhere").secret
    third = shared.request("POST", "/v1/desks", json=body, headers=one, key=key).json()["id"]
    assert third not in (first, second), "whose key is used counts too"
    for desk in (first, second, third):
        shared.client().desks.get(desk).delete()


# ── events ───────────────────────────────────────────────────────────────────


def test_events_as_a_stream(shared):
    client = shared.client()
    with client.desks.create(TEMPLATE, resources=SMALL) as desk:
        past = client.past_events(desk=desk.id, limit=100)
        assert [e.state for e in past if e.kind == "state"] == [State.CREATING, State.RUNNING] and all(e.desk == desk.id for e in past)
        assert past[0].by and past[-1].reason and past[0].at < past[-1].at
        stream = client.events(after=past[0].number - 1, desk=desk.id, timeout=20)
        assert [next(stream).number for _ in past] == [e.number for e in past], "from any point on"
        threading.Timer(0.2, lambda: desk.stop()).start()
        states = []
        while State.STOPPED not in states:
            event = next(stream)
            if event.kind == "state":
                states.append(event.state)
        assert states == [State.STOPPING, State.STOPPED]
        # the stream goes on over a restart of the fleet
        shared.kill()
        shared.start()
        threading.Timer(0.2, lambda: desk.start()).start()
        states = []
        while State.RUNNING not in states:
            event = next(stream)
            if event.kind == "state":
                states.append(event.state)
        assert states[-2:] == [State.STARTING, State.RUNNING], states


# ── ways into a desk ─────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def browser(shared):
    """A desk with a real Chromium that listens for DevTools on 9222."""
    served.ensure_built("base")
    desk = shared.client().desks.create("base", name="browser", resources=Resources(cpus=2, memory_mib=2048, disk_mib=2048), timeout=300)
    page = "<title>hotdesk page</title><h1 id=a>hello</h1>"
    desk.files.write("~/page.html", page)
    desk.processes.start(
        ["chromium", "--no-sandbox", "--headless=new", "--remote-debugging-port=9222", "--user-data-dir=/tmp/profile",
         "--no-first-run", "--disable-gpu", "--disable-dev-shm-usage", "file:///home/user/page.html"]
    )  # fmt: skip
    eventually(lambda: pages(desk), "Chromium has its page", limit=90)
    yield desk
    desk.delete()


def pages(desk) -> list[dict]:
    answer = httpx.get(desk.port(9222).url_with_key + "/json/list", timeout=10)
    return [p for p in answer.json() if p["type"] == "page" and "hotdesk" in p["title"]] if answer.status_code == 200 else []


def test_devtools_through_the_gateway(shared, browser):
    version = httpx.get(browser.port(9222).url + "/json/version", headers={"Authorization": f"Bearer {shared.key}"}, timeout=20).json()
    assert "Chrome" in version["Browser"]
    address = version["webSocketDebuggerUrl"]
    assert str(shared.port) in address, "addresses in the answer lead through the gateway"
    from websockets.sync.client import connect

    [page] = pages(browser)
    with connect(page["webSocketDebuggerUrl"], additional_headers={"Authorization": f"Bearer {shared.key}"}, max_size=None) as socket:
        socket.send(json.dumps({"id": 1, "method": "Runtime.evaluate", "params": {"expression": "document.getElementById('a').textContent + location.protocol"}}))
        while (answer := json.loads(socket.recv(timeout=20))).get("id") != 1:
            pass
        assert answer["result"]["result"]["value"] == "hellofile:"
    socket_url = f"ws://127.0.0.1:{shared.port}/v1/desks/browser/ports/9222/devtools/page/{page['id']}?key={shared.key}"
    with connect(socket_url, max_size=None) as socket:
        socket.send('{"id": 2, "method": "Page.captureScreenshot"}')
        assert len(socket.recv(timeout=20)) > 1000
    assert httpx.get(browser.port(9222).url + "/json/version", timeout=20).status_code == 401


def test_playwright_through_a_forwarder(browser):
    """As OSWorld's setup does it: `connect_over_cdp` to a port of this machine."""
    from playwright.sync_api import sync_playwright

    with browser.port(9222).forward() as forwarder, sync_playwright() as playwright:
        chromium = playwright.chromium.connect_over_cdp(forwarder.url)
        page = chromium.contexts[0].pages[0]
        assert page.title() == "hotdesk page"
        page.evaluate("document.title = 'changed'")
        assert page.inner_text("#a") == "hello"
        chromium.close()


def test_the_live_view(shared):
    from websockets.sync.client import connect

    with shared.client().desks.create(TEMPLATE, resources=SMALL) as desk:
        for address, headers in (
            (desk.view_url, {}),
            (f"ws://127.0.0.1:{shared.port}/v1/desks/{desk.id}/view", {"Authorization": f"Bearer {shared.key}"}),
            (f"ws://127.0.0.1:{shared.port}/v1/desks/{desk.id}/view/websockify?key={shared.key}", {}),
        ):
            with connect(address, subprotocols=["binary"], additional_headers=headers, max_size=None) as view:
                assert rfb.greet(view) == (desk.info.screen.width, desk.info.screen.height)
                eventually(lambda: desk.refresh().info.busy == "live view", "the desk is busy while somebody looks")
        with pytest.raises(Exception):
            connect(f"ws://127.0.0.1:{shared.port}/v1/desks/{desk.id}/view")


def test_bytes_pass_as_they_are(shared, tmp_path):
    """Large files both ways, a range, a stream that is read while it comes, a raw tunnel, OSWorld's base URL."""
    with shared.client().desks.create(TEMPLATE, resources=SMALL) as desk:
        big = tmp_path / "big"
        subprocess.run(["dd", "if=/dev/urandom", f"of={big}", "bs=1M", "count=40", "status=none"], check=True)
        assert desk.files.upload(big, "~/big") == 40 << 20
        assert desk.files.download("~/big", tmp_path / "back") == 40 << 20
        assert (tmp_path / "back").read_bytes() == big.read_bytes()
        part = shared.request("GET", f"/v1/desks/{desk.id}/files/content?path=~/big", headers={"Range": "bytes=1000-1999"})
        assert part.status_code == 206 and part.content == big.read_bytes()[1000:2000]
        program = desk.processes.start("echo first; sleep 1; echo second")
        begun, seen = time.monotonic(), []
        for _, text in desk.processes.output(program):
            seen.append((text, time.monotonic() - begun))
        assert seen[0][0] == "first\n" and seen[-1][0] == "second\n" and seen[-1][1] - seen[0][1] > 0.5, "not kept back"
        etag = shared.request("GET", f"/v1/desks/{desk.id}/screenshot?wait=settled").headers["etag"]
        assert shared.request("GET", f"/v1/desks/{desk.id}/screenshot", headers={"If-None-Match": etag}).status_code == 304
        # OSWorld's words at /osworld, with the key as a header or as a part of the address
        for base, headers in ((f"{shared.url}/osworld/{desk.id}", {"Authorization": f"Bearer {shared.key}"}), (desk.osworld_url, {})):
            assert httpx.get(base + "/screenshot", headers=headers).content[:4] == b"\x89PNG"
            done = httpx.post(base + "/execute", headers=headers, json={"command": ["echo", "hi"]}).json()
            assert done["output"] == "hi\n" and done["returncode"] == 0
        assert httpx.get(f"{shared.url}/osworld/{desk.id}/screenshot").status_code == 401
        with pytest.raises(hotdesk.Problem):
            desk.port(1).connect()


# ── TLS and the outside ──────────────────────────────────────────────────────


def test_tls(tmp_path):
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", key, "-out", certificate], check=True, capture_output=True,
    )  # fmt: skip
    one = served.Serve(flags=["--tls-cert", str(certificate), "--tls-key", str(key)])
    one.url = one.url.replace("http:", "https:")
    one.start()
    try:
        with hotdesk.Hotdesk(one.url, one.key, verify=str(certificate)) as client, client.desks.create(TEMPLATE, resources=SMALL) as desk:
            assert desk.screenshot()[:4] == b"\x89PNG"
            big = os.urandom(5_000_000)
            desk.files.write("~/big", big)
            assert desk.files.read("~/big") == big
            gateway = Gateway(Settings(one.url, one.key), str(certificate))
            with HttpForwarder(gateway, f"/osworld/{desk.id}") as forwarder:
                assert httpx.get(forwarder.url + "/screenshot").content[:4] == b"\x89PNG"
                assert httpx.post(forwarder.url + "/file", data={"file_path": "/home/user/big"}).content == big
        with pytest.raises(hotdesk.ConnectionFailed), hotdesk.Hotdesk(one.url, one.key) as distrustful:
            distrustful.info()
        with pytest.raises(httpx.HTTPError):
            httpx.get(one.url.replace("https:", "http:") + "/health").raise_for_status()
        # clients of this machine find a way that needs no certificate
        assert one.hotdesk("ls", environment={"HOTDESK_URL": "", "HOTDESK_KEY": "", "HOTDESK_DATA": one.data}).returncode == 0
    finally:
        one.stop()
        one.flags = []
        one.url = one.url.replace("https:", "http:")
        one.close()


def test_seen_from_outside(shared):
    assert shared.get("/health").status_code == 200 and shared.get("/ready").status_code == 200
    shared.client().pools.set(TEMPLATE, min=0, max=1)
    with shared.client().desks.create(TEMPLATE, resources=SMALL) as desk:
        desk.screenshot()
        text = shared.request("GET", "/metrics").text
        for name in (
            "hotdesk_fleet_desks", "hotdesk_create_stage_seconds_count", "hotdesk_pool_target", "hotdesk_desk_memory_bytes", "hotdesk_desk_cpu_seconds_total",
            "hotdesk_desk_request_seconds_count", "hotdesk_http_request_seconds_count", "hotdesk_cost_total",
        ):  # fmt: skip
            assert re.search(rf"^{name}(\{{[^}}]*\}})? [0-9.e+-]+", text, re.M), f"no metric {name}\n{text[:3000]}"
        assert re.search(r'^hotdesk_desk_request_seconds_count\{[^}]*screenshot', text, re.M), "the latency of screenshots"
        assert re.search(r'^hotdesk_fleet_desks\{[^}]*state="running"[^}]*\} [1-9]', text, re.M), text[:2000]
        assert not re.findall(r"^hotdesk_\S+ -\d.*", text, re.M), "nothing is there less than not at all, also after restarts"
        lines = shared.client().audit(limit=50)
        assert any(desk.id in json.dumps(line) or "/v1/desks" in json.dumps(line) for line in lines)
        assert shared.key not in json.dumps(lines) and shared.key not in shared.tail(1 << 20), "no secret in a log"
    info = shared.client().info()
    assert info.version and info.providers and info.cpus > 0
