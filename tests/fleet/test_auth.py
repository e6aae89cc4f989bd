"""Every route without a key, with a foreign one, and with one that was revoked."""

from __future__ import annotations

import os
import re
import stat
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
import rfb
import served
from served import TEMPLATE
from waiting import eventually

import hotdesk
from hotdesk import Resources

SMALL = Resources(cpus=0.5, memory_mib=512, disk_mib=1024)
#: What anybody may ask.
OPEN = {("GET", "/health"), ("GET", "/ready"), ("GET", "/v1/openapi.json")}
#: What is not in the document, because it leads on to a desk.
BESIDES = [
    ("GET", "/v1/desks/{id}/screenshot"), ("POST", "/v1/desks/{id}/input"), ("GET", "/v1/desks/{id}/files/content?path=/etc/hostname"),
    ("POST", "/v1/desks/{id}/processes/run"), ("GET", "/v1/desks/{id}/view"), ("GET", "/v1/desks/{id}/ports/5000"),
    ("GET", "/v1/desks/{id}/ports/9222/json/version"), ("GET", "/v1/desks/{id}/console"), ("GET", "/osworld/{id}/screenshot"),
    ("POST", "/osworld/{id}/execute"), ("POST", "/vm/create"), ("POST", "/vm/{id}/execute"), ("GET", "/vm/{id}/screenshot"),
    ("DELETE", "/vm/{id}/delete"), ("GET", "/metrics"), ("GET", "/v1/audit"), ("GET", "/v1/no-such-route"),
]  # fmt: skip


#: A stranger that tries so many wrong keys is told to wait; here each of them shall be told that it is wrong.
NO_RATES = "[gateway.rates]\nfailures = { per_second = 0, burst = 0 }\nkeyless = { per_second = 0, burst = 0 }\n"


#: Bodies that are good, where an empty one is not.
BODIES = {"/extend": b'{"by_s": 60}', "/execute": b'{"command": "true"}', "/input": b'{"actions": []}', "/run": b'{"shell": "true"}',
          "/anthropic": b'{"action": "screenshot"}', "/openai": b'{"type": "screenshot"}'}


@pytest.fixture(scope="module")
def shared():
    with served.fleet(settings=NO_RATES) as one:
        yield one


@pytest.fixture(scope="module")
def place(shared):
    """A desk and a snapshot of project `ours`, and keys of all kinds."""
    admin = shared.client()
    desk = admin.desks.create(TEMPLATE, name="private", project="ours", resources=SMALL)
    snapshot = desk.snapshot("private", memory=False)
    other = admin.desks.create(TEMPLATE, name="other", project="theirs", resources=SMALL)
    key = admin.keys.create("to look at")
    revoked = admin.keys.create("revoked")
    admin.keys.revoke(revoked.key.id)
    expired = admin.keys.create("expired", ttl=1)
    names = {"id": desk.id, "port": 5000, "template": TEMPLATE, "snapshot": snapshot.id, "key": key.key.id}
    secrets = {
        "admin": shared.key,
        "ours": admin.keys.create("ours", project="ours").secret,
        "theirs": admin.keys.create("theirs", project="theirs").secret,
        "desk": admin.keys.create("desk", desk=desk.id).secret,
        "other desk": admin.keys.create("other desk", desk=other.id).secret,
        "revoked": revoked.secret,
        "expired": expired.secret,
        "wrong": "hd_" + "A" * 43,
    }
    eventually(lambda: shared.request("GET", "/v1/fleet", key=expired.secret).status_code == 401, "a key of one second expires", limit=20)
    yield desk, names, secrets
    desk.delete()
    other.delete()


def routes(shared, names) -> list[tuple[str, str]]:
    """Every route of the document, with real things in the place of its parameters."""
    document = shared.get("/v1/openapi.json").json()
    found = []
    for path, methods in document["paths"].items():
        for method in methods:
            if method not in ("get", "post", "put", "patch", "delete"):
                continue
            values = dict(names)
            if "/snapshots/" in path:
                values["id"] = names["snapshot"]
            if "/keys/" in path:
                values["id"] = names["key"]
            found.append((method.upper(), re.sub(r"\{\*?(\w+)\}", lambda m: str(values.get(m[1], "x")), path)))
    found += [(method, path.replace("{id}", names["id"])) for method, path in BESIDES]
    assert len(found) > 40
    return sorted(set(found))


def ask(shared, method, path, **how):
    headers = {"Content-Type": "application/json", **how.pop("headers", {})}
    body = next((body for end, body in BODIES.items() if path.endswith(end)), b"{}") if method in ("POST", "PUT", "PATCH") else None
    return shared.request(method, path, content=body, headers=headers, timeout=20, **how)


def test_without_a_key(shared, place):
    _, names, _ = place
    for method, path in routes(shared, names):
        if (method, path) in OPEN:
            assert ask(shared, method, path, key=None).status_code == 200, path
            continue
        answer = ask(shared, method, path, key=None)
        assert answer.status_code == 401, (method, path, answer.status_code, answer.text[:200])
        assert answer.headers["www-authenticate"].startswith("Bearer") and answer.headers["content-type"] == "application/problem+json"
        assert names["id"] not in answer.text.replace(path, ""), "an answer to a stranger tells nothing"


@pytest.mark.parametrize("kind", ["revoked", "expired", "wrong"])
def test_with_a_key_that_is_not_good(shared, place, kind):
    desk, names, secrets = place
    for method, path in routes(shared, names):
        if (method, path) not in OPEN:
            answer = ask(shared, method, path, key=secrets[kind])
            assert answer.status_code == 401, (kind, method, path, answer.status_code, answer.text[:200])
    for form in forms(shared, secrets[kind], f"/v1/desks/{desk.id}"):
        assert form.status_code == 401
    assert desk.refresh().state is hotdesk.State.RUNNING


@pytest.mark.parametrize("kind", ["theirs", "other desk"])
def test_with_a_foreign_key(shared, place, kind):
    """A good key of somebody else: it sees nothing of ours and changes nothing of ours."""
    desk, names, secrets = place
    for method, path in routes(shared, names):
        if (method, path) in OPEN or (method, path) in (("POST", "/v1/desks"), ("POST", "/vm/create"), ("GET", "/v1/no-such-route")):
            continue
        answer = ask(shared, method, path, key=secrets[kind])
        about_ours = names["id"] in path or names["snapshot"] in path
        if about_ours:
            assert answer.status_code in (403, 404), (kind, method, path, answer.status_code, answer.text[:200])
        elif method != "GET" or path in ("/v1/audit", "/metrics"):
            assert answer.status_code in (400, 403, 404, 422), (kind, method, path, answer.status_code, answer.text[:200])
        assert "private" not in answer.text and '"ours"' not in answer.text and (names["key"] in path or names["key"] not in answer.text), answer.text[:500]
        assert about_ours or names["id"] not in answer.text, (kind, method, path, answer.text[:300])
    assert desk.refresh().state is hotdesk.State.RUNNING and desk.screenshot()
    with shared.client(secrets[kind]) as stranger:
        assert [d.name for d in stranger.desks.list()] == ["other"] and {e.project for e in stranger.past_events(limit=1000)} == {"theirs"}
        with pytest.raises((hotdesk.NotFound, hotdesk.Forbidden)):
            stranger.desks.get("private")
        with pytest.raises((hotdesk.NotFound, hotdesk.Forbidden, hotdesk.Invalid)):
            stranger.desks.create(snapshot=names["snapshot"])


def test_what_each_scope_may(shared, place):
    desk, names, secrets = place
    with shared.client(secrets["ours"]) as ours:
        assert [d.id for d in ours.desks.list()] == [desk.id] and ours.desks.get("private").exec("true").ok
        assert {e.project for e in ours.past_events(limit=1000)} <= {"ours"}
        with pytest.raises((hotdesk.Forbidden, hotdesk.Invalid)):
            ours.desks.create(TEMPLATE, project="theirs", resources=SMALL)
        with pytest.raises(hotdesk.Forbidden):
            ours.keys.create("more")
        with pytest.raises(hotdesk.Forbidden):
            ours.set_budget("ours", total=1e9)
        made = ours.desks.create(TEMPLATE, resources=SMALL)
        assert made.info.project == "ours"
        made.delete()
    with shared.client(secrets["desk"]) as single:
        assert single.desks.get(desk.id).exec("true").ok and [d.id for d in single.desks.list()] == [desk.id]
        for refused in (lambda: single.desks.create(TEMPLATE), lambda: single.keys.create("more"), lambda: single.pools.set(TEMPLATE, min=0, max=1)):
            with pytest.raises(hotdesk.Forbidden):
                refused()


def forms(shared, secret, path):
    yield httpx.get(shared.url + path, headers={"Authorization": f"Bearer {secret}"})
    yield httpx.get(shared.url + path, headers={"X-API-Key": secret})
    yield httpx.get(shared.url + path + f"?key={secret}")
    yield httpx.get(f"{shared.url}/k/{secret}{path}")


def test_all_forms_of_a_key(shared, place):
    desk, _, secrets = place
    for form in forms(shared, secrets["ours"], f"/v1/desks/{desk.id}"):
        assert form.status_code == 200 and form.json()["id"] == desk.id, form.request.url
    for wrong in ({"Authorization": f"Basic {secrets['ours']}"}, {"Authorization": "Bearer"}, {"Authorization": "Bearer \xff".encode("latin-1")}):
        assert httpx.get(f"{shared.url}/v1/desks/{desk.id}", headers=wrong).status_code == 401
    mixed = httpx.get(f"{shared.url}/v1/desks/{desk.id}?key={secrets['ours']}", headers={"Authorization": f"Bearer {secrets['wrong']}"})
    assert mixed.status_code == 401, "a wrong key is not made good by another"


def test_rotation(shared):
    admin = shared.client()
    made = admin.keys.create("rotating", project="ours")
    again = admin.keys.rotate(made.key.id)
    assert again.secret != made.secret and again.key.id == made.key.id
    assert shared.request("GET", "/v1/desks", key=again.secret).status_code == 200
    eventually(lambda: shared.request("GET", "/v1/desks", key=made.secret).status_code == 401, "the old secret is good no more")
    admin.keys.revoke(made.key.id)
    assert shared.request("GET", "/v1/desks", key=again.secret).status_code == 401
    listed = next(k for k in admin.keys.list() if k.id == made.key.id)
    assert listed.revoked_at


def test_a_revoked_key_ends_what_it_opened(shared):
    """A live view that was opened with a key does not outlive it."""
    from websockets.exceptions import ConnectionClosed
    from websockets.sync.client import connect

    admin = shared.client()
    with admin.desks.create(TEMPLATE, resources=SMALL) as desk:
        made = admin.keys.create("viewer", desk=desk.id)
        with connect(f"ws://127.0.0.1:{shared.port}/v1/desks/{desk.id}/view?key={made.secret}", subprotocols=["binary"], max_size=None) as view:
            rfb.greet(view)
            admin.keys.revoke(made.key.id)
            with pytest.raises(ConnectionClosed):
                while True:
                    view.recv(timeout=60)


def test_whoever_guesses_has_to_wait():
    with served.fleet(settings="[gateway.rates]\nfailures = { per_second = 1, burst = 2 }\n") as fleet:
        with ThreadPoolExecutor(30) as pool:  # at once, because each second makes room for another guess
            answers = list(pool.map(lambda n: fleet.request("GET", "/v1/fleet", key="hd_" + f"{n:043}"), range(60)))
        told = [a for a in answers if a.status_code == 429]
        assert told and {a.status_code for a in answers} <= {401, 429}, [a.status_code for a in answers]
        assert int(told[0].headers["retry-after"]) >= 1 and told[0].json()["retry"] is True
        assert fleet.request("GET", "/v1/fleet").status_code == 200, "who has a key is not kept waiting"


def test_secrets_at_rest():
    with served.fleet() as fleet:
        path = os.path.join(fleet.data, "admin.key")
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
        secret = fleet.client().keys.create("secret", project="p").secret
        assert re.fullmatch(r"hd_[A-Za-z0-9_-]{43}", secret) and re.fullmatch(r"hd_[A-Za-z0-9_-]{43}", fleet.key)
        fleet.stop()
        for top, _, names in os.walk(fleet.data):
            for name in names:
                if name == "admin.key":
                    continue
                with open(os.path.join(top, name), "rb") as file:
                    content = file.read()
                assert secret.encode() not in content and fleet.key.encode() not in content, f"{top}/{name} holds a secret"
        first = fleet.key
        fleet.start()
        assert fleet.key == first and fleet.request("GET", "/v1/fleet").status_code == 200
