"""The client by itself: settings, errors, what is sent again and what never is."""

import asyncio
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import hotdesk
from hotdesk import AsyncHotdesk, Hotdesk, models, settings

DESK = {"id": "d-aaaaaaaaaaaa", "name": None, "project": "default", "template": "bare", "state": "running", "reason": "ready",
        "labels": {"a": "b"}, "screen": {"width": 800, "height": 600}, "new_field": [1]}  # fmt: skip


def test_the_sync_client_is_made_from_the_async_one():
    made = subprocess.run([sys.executable, Path(__file__).parents[1] / "make_sync.py", "--check"], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr


def test_settings(monkeypatch, tmp_path):
    assert settings.find() == settings.Settings("http://127.0.0.1:7700", None)
    monkeypatch.setenv("HOTDESK_DATA", str(tmp_path))
    (tmp_path / "serve.json").write_text(json.dumps({"url": "http://127.0.0.1:7711", "pid": os.getpid(), "version": "0"}))
    (tmp_path / "admin.key").write_text("hd_local\n")
    assert settings.find() == settings.Settings("http://127.0.0.1:7711", "hd_local")
    assert settings.find("http://localhost:7711/").key == "hd_local"
    assert settings.find("http://127.0.0.1:7711", "mine").key == "mine"
    assert settings.find("http://elsewhere.example:7711").key is None, "a local key is not for others"
    assert "hd_local" not in repr(settings.find())
    monkeypatch.setenv("HOTDESK_URL", "https://fleet.example")
    monkeypatch.setenv("HOTDESK_KEY", "hd_env")
    assert settings.find() == settings.Settings("https://fleet.example", "hd_env")
    assert settings.find("unix:/run/x.sock").socket == "/run/x.sock"
    with pytest.raises(hotdesk.SettingsError, match="not the address"):
        settings.find("fleet.example:80")


def test_a_fleet_that_has_ended_is_not_found(monkeypatch, tmp_path):
    ended = subprocess.Popen(["true"])
    ended.wait()
    monkeypatch.setenv("HOTDESK_DATA", str(tmp_path))
    (tmp_path / "serve.json").write_text(json.dumps({"url": "http://127.0.0.1:7711", "pid": ended.pid}))
    (tmp_path / "admin.key").write_text("hd_local\n")
    assert settings.find().key is None


def test_models():
    info = models.read(models.DeskInfo, DESK)
    assert info.state is hotdesk.State.RUNNING and info.screen == models.Size(800, 600) and info.labels == {"a": "b"}
    assert models.read(models.DeskInfo, {**DESK, "state": "dreaming"}).state is hotdesk.State.OTHER
    assert models.write(models.Policy(ttl_s=5))["ttl_s"] == 5
    assert models.write(models.Resources(cpus=1))["disk_mib"] is None, "what is left out is the template's"
    window = models.read(models.Window, {"id": 7, "title": "x", "class": "Gedit", "area": {"x": 1, "y": 2, "width": 4, "height": 6}})
    assert window.class_ == "Gedit" and window.area.center == models.Point(3, 5)
    assert models.write(window)["class"] == "Gedit"
    tree = models.read(models.Tree, {"apps": [{"id": "1", "role": "application", "children": [{"id": "2", "role": "frame"}]}], "complete": True})
    assert [e.role for e in tree.walk()] == ["application", "frame"]


@pytest.mark.parametrize(
    "status, body, headers, kind",
    [
        (400, {"code": "invalid", "title": "t", "detail": "d", "retry": False}, {}, hotdesk.Invalid),
        (401, {"code": "unauthorized", "title": "t"}, {}, hotdesk.Unauthorized),
        (403, {"code": "denied", "title": "t"}, {}, hotdesk.Forbidden),
        (404, {"code": "not_found", "title": "t", "detail": "there is no desk x"}, {}, hotdesk.NotFound),
        (409, {"code": "conflict", "title": "t"}, {}, hotdesk.Conflict),
        (429, {"code": "too_many", "title": "t", "retry": True}, {"Retry-After": "7"}, hotdesk.LimitReached),
        (402, {"code": "budget", "title": "t"}, {}, hotdesk.BudgetSpent),
        (500, b"oops", {}, hotdesk.ServerError),
    ],
)
def test_problems(scripted, status, body, headers, kind):
    scripted.then((status, body, headers))
    with Hotdesk(scripted.url, "k") as fleet, pytest.raises(kind) as e:
        fleet.desks.get("x")
    assert e.value.status == status and len(scripted.seen) == 1
    if status == 429:
        assert e.value.retry_after == 7 and e.value.retry
    if status == 500:
        assert "oops" in str(e.value)
    again = pickle.loads(pickle.dumps(e.value))
    assert type(again) is kind and str(again) == str(e.value)


def test_a_failed_create_names_its_desk(scripted):
    scripted.then((502, {"code": "bad_gateway", "title": "t", "detail": "no X", "retry": False}, {"Location": "/v1/desks/d-abc"}))
    with Hotdesk(scripted.url, "k") as fleet, pytest.raises(hotdesk.DeskFailed) as e:
        fleet.desks.create("bare")
    assert e.value.desk == "d-abc"


def test_create_is_sent_again_with_the_same_key(scripted, broken):
    scripted.then(broken, (503, {"code": "unavailable", "retry": True}), (201, DESK))
    with Hotdesk(scripted.url, "k") as fleet:
        desk = fleet.desks.create("bare", labels={"a": "b"}, resources={"cpus": 1.0}, screen=(800, 600), timeout=5)
    assert desk.id == DESK["id"] and desk.state == "running"
    keys = {headers["idempotency-key"] for _, _, headers, _ in scripted.seen}
    assert len(scripted.seen) == 3 and len(keys) == 1
    method, path, headers, body = scripted.seen[-1]
    assert (method, path, headers["authorization"]) == ("POST", "/v1/desks?wait=5", "Bearer k")
    assert json.loads(body) == {"template": "bare", "labels": {"a": "b"}, "resources": {"cpus": 1.0}, "screen": {"width": 800, "height": 600}}


def test_a_fork_says_what_it_is_told_and_no_more(scripted):
    desk = desk_of(scripted)
    scripted.then((201, DESK), (201, DESK))
    desk.fork(timeout=5)
    desk.fork(labels={}, env={"A": "1"}, policy=models.Policy(ttl_s=60), timeout=5)
    plain, told = [json.loads(body) for _, path, _, body in scripted.seen if "/fork" in path]
    assert plain == {}, "all of it is as in the desk that is forked"
    assert (told["labels"], told["env"]) == ({}, {"A": "1"}), "none is not the same as nothing said"
    assert {name: value for name, value in told["policy"].items() if value is not None} == {"ttl_s": 60}


def test_actions_are_never_sent_again(scripted, broken):
    scripted.then((200, DESK), broken)
    with Hotdesk(scripted.url, "k") as fleet:
        desk = fleet.desks.get("x")
        with pytest.raises(hotdesk.ConnectionFailed):
            desk.click(1, 2)
    assert len(scripted.seen) == 2
    scripted.then((503, {"code": "unavailable", "retry": True}))
    with pytest.raises(hotdesk.Unavailable):
        desk_of(scripted).type("x")


def desk_of(scripted):
    fleet = Hotdesk(scripted.url, "k")
    scripted.steps.insert(0, (200, DESK))
    return fleet.desks.get("x")


def test_actions_in_the_desks_words(scripted):
    desk = desk_of(scripted)
    scripted.then(*[(200, {"actions": [{"index": 0, "done": True, "ms": 1.0}], "ms": 1.5})] * 5)
    desk.click(1, 2, button="right", times=2, hold=["ctrl"])
    desk.drag((1, 2), (3, 4), ms=50)
    desk.scroll(3, x=5, y=6)
    desk.key("ctrl", "s")
    done = desk.actions([{"do": "wait", "ms": 5}], settle=True, screenshot={"format": "jpeg"})
    assert done.ms == 1.5 and done.actions[0].done
    sent = [json.loads(body) for _, path, _, body in scripted.seen if path.endswith("/input")]
    assert sent[0]["actions"] == [{"do": "click", "at": {"x": 1, "y": 2}, "button": "right", "times": 2, "hold": ["ctrl"]}]
    assert sent[1]["actions"] == [{"do": "drag", "path": [{"x": 1, "y": 2}, {"x": 3, "y": 4}], "ms": 50}]
    assert sent[2]["actions"] == [{"do": "scroll", "dy": 3, "dx": 0, "at": {"x": 5, "y": 6}}]
    assert sent[3]["actions"] == [{"do": "key", "keys": ["ctrl", "s"]}]
    assert sent[4] == {"actions": [{"do": "wait", "ms": 5}], "settle": {}, "screenshot": {"format": "jpeg"}}
    with pytest.raises(ValueError, match="go together"):
        desk.click(1)


def test_a_slow_change_is_waited_for(scripted):
    scripted.then((202, {**DESK, "state": "creating"}), (200, {**DESK, "state": "creating"}), (200, DESK))
    with Hotdesk(scripted.url, "k") as fleet:
        assert fleet.desks.create("bare", timeout=10).state is hotdesk.State.RUNNING
    scripted.then((202, {**DESK, "state": "starting"}), (200, {**DESK, "state": "error", "reason": "no X"}))
    with pytest.raises(hotdesk.DeskFailed, match="no X"):
        desk_of(scripted).start()


def test_events_go_on_after_a_break(scripted):
    def stream(*numbers):
        def answer(handler):
            handler.send_response(200)
            handler.send_header("Content-Type", "text/event-stream")
            handler.send_header("Connection", "close")
            handler.end_headers()
            for n in numbers:
                event = {"number": n, "kind": "state", "state": "running", "desk": "d-a"}
                handler.wfile.write(f": hello\nid: {n}\nevent: state\ndata: {json.dumps(event)}\n\n".encode())
            handler.close_connection = True

        return answer

    scripted.then(stream(4, 5), stream(6))
    with Hotdesk(scripted.url, "k") as fleet:
        events = fleet.events(after=3)
        assert [next(events).number for _ in range(3)] == [4, 5, 6]
    assert [headers["last-event-id"] for _, _, headers, _ in scripted.seen] == ["3", "5"]


def test_async(scripted):
    async def work():
        scripted.then((200, {"desks": [DESK]}), (200, {"stdout": "hi\n", "stderr": "", "exit_code": 0, "timed_out": False}), (200, {**DESK, "state": "deleted"}))
        async with AsyncHotdesk(scripted.url, "k") as fleet:
            [desk] = await fleet.desks.list(labels={"a": "b", "c": "d"})
            async with desk:
                assert (await desk.exec(["echo", "hi"])).ok
            assert desk.state is hotdesk.State.DELETED

    asyncio.run(work())
    assert scripted.seen[0][1] == "/v1/desks?label=a%3Db&label=c%3Dd"


def test_addresses(scripted):
    desk = desk_of(scripted)
    assert desk.osworld_url == f"{scripted.url}/k/k/osworld/{desk.id}"
    assert desk.port(9222).url == f"{scripted.url}/v1/desks/{desk.id}/ports/9222"
    assert desk.view_url == f"ws{scripted.url[4:]}/k/k/v1/desks/{desk.id}/view"
    with pytest.raises(ValueError):
        desk.port(0)


def test_a_person_who_drives_is_an_error_of_its_own(scripted):
    problem = {"code": "person_is_driving", "status": 423, "title": "A person is driving", "detail": "Ada is driving this desk", "retry": True}
    taken = {"driver": "person", "name": "Ada", "viewer": None, "since": "", "idle_limit_s": 60, "returns_in_s": 60}
    step = {"number": 1, "by": {"driver": "person", "name": "Ada"}, "actions": [{"do": "click"}], "result": "done", "before": None, "after": "ab"}
    scripted.then(
        (200, DESK), (200, taken), (423, problem, {"Retry-After": "42"}), (200, {"id": "t-1", "steps": 0}), (200, {"steps": [step]}),
        (200, b"png"),
    )  # fmt: skip
    with Hotdesk(scripted.url) as fleet:
        desk = fleet.desks.get("d-aaaaaaaaaaaa")
        assert desk.lease.take("Ada", idle_s=60).is_person
        with pytest.raises(hotdesk.PersonDrives, match="Ada is driving") as refused:
            desk.type("x", secret=True)
        assert refused.value.retry_after == 42
        assert desk.trace.start(mask="typed").id == "t-1"
        first = desk.trace.steps("t-1")[0]
        assert (first.by.name, first.actions, desk.trace.frame("t-1", first.after)) == ("Ada", [{"do": "click"}], b"png")
    sent = [(method, path) for method, path, _, _ in scripted.seen[1:]]
    base = "/v1/desks/d-aaaaaaaaaaaa"
    assert sent == [("PUT", f"{base}/lease"), ("POST", f"{base}/input"), ("POST", f"{base}/trace"),
                    ("GET", f"{base}/traces/t-1/steps?after=0"), ("GET", f"{base}/traces/t-1/frames/ab")]  # fmt: skip
    assert json.loads(scripted.seen[2][3])["actions"][0]["secret"] is True
