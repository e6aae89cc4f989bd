"""Traces from the command line: recorded, shown, exported, made a film and a page of, done again elsewhere, branched off."""

from __future__ import annotations

import json
import subprocess

import pytest
import served
from waiting import eventually

TEXT = "written without hands"


@pytest.fixture(scope="module")
def editors(shared):
    """Two desks with an open editor each."""
    served.ensure_built("base")
    for name in ("one", "two"):
        shared.hotdesk("new", "--name", name, "--template", "base", "--memory", "1G")
        ask(shared, "POST", name, "processes", {"argv": ["gedit"]})
        ask(shared, "POST", name, "windows/wait", {"title": "gedit", "limit_ms": 60_000})
    return "one", "two"


def ask(fleet, method: str, desk: str, path: str, body=None):
    answer = fleet.request(method, f"/v1/desks/{desk}/{path}", json=body)
    assert answer.status_code < 300, answer.text
    return answer


def field(fleet, desk: str) -> dict:
    """The editor's text."""
    look = {"app": "gedit", "role": "text", "states": ["editable", "multi-line", "showing"]}
    return eventually(lambda: next(iter(ask(fleet, "POST", desk, "accessibility/find", look).json()["found"]), None), f"the text on {desk}", limit=60)


def window(fleet, desk: str) -> dict:
    return next(w for w in ask(fleet, "GET", desk, "windows").json()["windows"] if "gedit" in w["title"])


@pytest.fixture(scope="module")
def trace(shared, editors, tmp_path_factory):
    desk = editors[0]
    shared.hotdesk("trace", "start", desk, "--name", "letters")
    ask(shared, "POST", desk, "accessibility/act", {"do": "set_text", "id": field(shared, desk)["id"], "text": TEXT})
    ask(shared, "POST", desk, "accessibility/act", {"do": "focus", "id": field(shared, desk)["id"]})
    ask(shared, "POST", desk, "input", {"actions": [{"do": "key", "keys": ["ctrl+End"]}, {"do": "type", "text": " and with"}]})
    ask(shared, "POST", desk, f"windows/{window(shared, desk)['id']}/maximize")
    ask(shared, "POST", desk, "input", {"actions": [{"do": "click", "at": {"x": 400, "y": 300}}]})
    shared.request("PUT", f"/v1/desks/{desk}/clipboard", content="copied", headers={"content-type": "text/plain"})
    shared.hotdesk("trace", "stop", desk)
    file = tmp_path_factory.mktemp("trace") / "run.hdtrace"
    shared.hotdesk("trace", "export", desk, "-o", str(file))
    return file


def test_it_is_shown_from_the_desk_and_from_the_file(shared, editors, trace):
    for source in (editors[0], str(trace)):
        shown = shared.hotdesk("trace", "show", source).stdout
        for words in (f"set the text of the text “” to “{TEXT}”", "focus the text", "“ and with”", "maximize the window", "click at 400,300", "copy “copied”"):
            assert words in shown, f"{words} is not in\n{shown}"
    told = json.loads(shared.hotdesk("trace", "show", str(trace), "--json").stdout)
    deeds = [action["do"] for step in told for action in step["actions"]]
    assert deeds == ["element", "element", "key", "type", "window", "click", "copy"], told
    assert "letters" in shared.hotdesk("trace", "ls", editors[0]).stdout


def test_it_becomes_a_film_and_a_page(shared, trace, tmp_path):
    shared.hotdesk("trace", "render", str(trace), "-o", str(tmp_path / "run.mp4"))
    told = subprocess.run(["ffprobe", "-v", "error", "-show_entries", "stream=codec_name,width", "-of", "csv=p=0", tmp_path / "run.mp4"], capture_output=True, text=True, check=True)
    assert told.stdout.startswith("h264,"), told.stdout
    shared.hotdesk("trace", "render", str(trace), "-o", str(tmp_path / "run.html"))
    page = (tmp_path / "run.html").read_text()
    assert TEXT in page and "src=\"http" not in page and "href=\"http" not in page, "it opens offline"
    refused = shared.hotdesk("trace", "render", str(trace), "-o", str(tmp_path / "run.gif"), check=False)
    assert refused.returncode == 2 and ".mp4" in refused.stderr


def test_it_is_done_again_on_another_desk(shared, editors, trace):
    done = shared.hotdesk("trace", "replay", str(trace), "--on", editors[1], "--fast", "--record")
    assert "left out" not in done.stderr, done.stderr
    assert eventually(lambda: field(shared, editors[1])["text"] == f"{TEXT} and with", "the text is the same", limit=30)
    assert window(shared, editors[1])["maximized"]
    assert ask(shared, "GET", editors[1], "clipboard").text == "copied"
    assert "replay of letters" in shared.hotdesk("trace", "ls", editors[1]).stdout, "it was recorded itself"


def test_what_is_not_there_is_told(shared, trace):
    done = shared.hotdesk("trace", "replay", str(trace), "--template", served.TEMPLATE, "--fast", timeout=120)
    assert "there is no text called" in done.stderr and "no window is called" in done.stderr
    shared.hotdesk("rm", done.stdout.strip())


def test_a_desk_branches_off_where_a_snapshot_is(shared, editors, trace):
    refused = shared.hotdesk("trace", "branch", str(trace), "--step", "3", check=False)
    assert "no snapshot was taken" in refused.stderr and "hint" in refused.stderr
    shared.hotdesk("new", "--name", "stem", "--template", served.TEMPLATE, "--memory", "512M")
    shared.hotdesk("trace", "start", "stem")
    shared.hotdesk("exec", "stem", "--", "sh", "-c", "echo before > file")
    ask(shared, "POST", "stem", "input", {"actions": [{"do": "move", "to": {"x": 10, "y": 10}}]})
    shared.hotdesk("snapshot", "stem", "--name", "here")
    ask(shared, "POST", "stem", "input", {"actions": [{"do": "move", "to": {"x": 30, "y": 40}}]})
    shared.hotdesk("exec", "stem", "--", "sh", "-c", "echo after > file")
    shared.hotdesk("trace", "stop", "stem")
    shown = shared.hotdesk("trace", "show", "stem").stdout
    assert "snapshot" in shown and "move to 30,40" in shown, shown
    made = shared.hotdesk("trace", "branch", "stem", "--step", "3", "--name", "bough").stdout.strip()
    assert shared.hotdesk("exec", "bough", "--", "cat", "file").stdout == "before\n"
    assert ask(shared, "GET", made, "input/pointer").json() == {"x": 30, "y": 40}, "the step after the snapshot was done again"
