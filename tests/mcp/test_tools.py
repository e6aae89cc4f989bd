"""Every tool, by the real client, over each way in."""

from __future__ import annotations

import asyncio
import base64
import re

import httpx
import pytest
from conftest import over_http, over_stdio, picture, text
from support import supports

TOOLS = {
    "create_desk", "list_desks", "look", "act", "tree", "run", "read_file", "write_file", "hand_over", "start_desk", "stop_desk",
    "reset_desk", "fork_desk", "delete_desk", "computer", "computer_openai",
}  # fmt: skip
#: What a screen of 1920×1080 is shown as.
SHOWN = (1429, 804)


def run(work):
    return asyncio.run(work)


@supports("ways in", "streamable HTTP (2026-07-28, and the handshake of the versions before), a key in the path, stdio")
def test_every_way_in_has_the_same_tools(way, desk):
    async def work():
        async with way() as hands:
            tools = (await hands.client.list_tools()).tools
            assert {tool.name for tool in tools} == TOOLS
            assert all(tool.input_schema["type"] == "object" and tool.description for tool in tools)
            assert desk in await hands.said("list_desks")
            assert picture(await hands.call("look", desk=desk)).size == SHOWN

    run(work())


@supports("tools", "`look`, `act`, `tree`: pictures sized for models, steps in their pixels")
def test_hands_and_eyes(fleet, desk):
    async def work():
        async with over_http(fleet) as hands:
            result = await hands.call("act", desk="shared", steps=[{"do": "move", "x": 714, "y": 402}])
            assert picture(result).size == SHOWN
            assert fleet.request("GET", f"/v1/desks/{desk}/input/pointer").json() == {"x": 960, "y": 540}
            look = await hands.call("look", desk=desk, region=[0, 0, 400, 200])
            # From whole pixels of the screen, so a few of them may be missing in the height.
            part = picture(look)
            assert part.width == 1429 and abs(part.height - 714) <= 4 and "1429×804" in text(look)
            # Steps are checked before the first is done.
            steps = [{"do": "move", "x": 1, "y": 1}, {"do": "click", "x": 5000, "y": 1}]
            assert "step 2" in (said := await hands.refused("act", desk=desk, steps=steps)) and "1429×804" in said
            steps = [{"do": "move", "x": 1, "y": 1}, {"do": "key", "keys": "no-such-key"}]
            assert "no-such-key" in await hands.refused("act", desk=desk, steps=steps)
            assert fleet.request("GET", f"/v1/desks/{desk}/input/pointer").json() == {"x": 960, "y": 540}
            assert "shared" in await hands.refused("act", desk=desk, steps=[{"do": "shared"}])

    run(work())


@supports("tools", "`run`, `read_file`, `write_file`")
def test_programs_and_files(fleet, desk):
    async def work():
        async with over_http(fleet) as hands:
            assert await hands.said("run", desk=desk, command="echo out; echo err >&2; exit 3") == "exit code 3\nstdout:\nout\n\nstderr:\nerr\n"
            assert "cat: hello" in await hands.said("run", desk=desk, command="sed 's/^/cat: /'", input="hello")
            long = await hands.said("run", desk=desk, command="seq 1 100000")
            assert len(long) < 31_000 and long.startswith("exit code 0\nstdout:\n1\n2\n") and "left out" in long
            assert "ended after 1 s" in await hands.said("run", desk=desk, command="sleep 60", seconds=1)
            assert "process id" in await hands.said("run", desk=desk, command="sleep 60", background=True)

            await hands.call("write_file", desk=desk, path="notes/a.txt", text="grüße\n")
            assert await hands.said("read_file", desk=desk, path="~/notes/a.txt") == "grüße\n"
            await hands.call("write_file", desk=desk, path="script", text="#!/bin/sh\necho ran", executable=True)
            assert "ran" in await hands.said("run", desk=desk, command="./script")
            await hands.call("write_file", desk=desk, path="blob", base64=base64.b64encode(bytes(range(256))).decode())
            assert "no text" in await hands.refused("read_file", desk=desk, path="blob")
            assert "notes" in await hands.refused("read_file", desk=desk, path="notes")
            assert "a directory" in await hands.refused("read_file", desk=desk, path="notes")
            # A long file is read in parts.
            await hands.call("write_file", desk=desk, path="long", text="ä" * 50_000)
            first = await hands.said("read_file", desk=desk, path="long", length=99_999)
            following = re.search(r"`offset` (\d+)", first)[1]
            assert following == "99998"
            assert await hands.said("read_file", desk=desk, path="long", offset=int(following)) == "ä"
            shot = fleet.request("GET", f"/v1/desks/{desk}/screenshot?max_width=200").content
            await hands.call("write_file", desk=desk, path="shot.png", base64=base64.b64encode(shot).decode())
            assert picture(await hands.call("read_file", desk=desk, path="shot.png")).width == 200

    run(work())


@supports("tools", "errors are results, and say which tool helps")
def test_what_goes_wrong_is_told_in_sentences(fleet, desk):
    async def work():
        async with over_http(fleet) as hands:
            for tool, arguments, words in [
                ("look", {"desk": "nobody"}, ["nobody", "list_desks"]),
                ("look", {"desk": "../../keys"}, ["there is"]),
                ("look", {"desk": desk, "region": [5, 5, 5, 5]}, ["empty"]),
                ("run", {"desk": desk}, ["command"]),
                ("run", {"desk": desk, "command": "x", "colour": 1}, ["colour"]),
                ("run", {"desk": desk, "command": "x", "seconds": 9999}, ["1 to 600"]),
                ("read_file", {"desk": desk, "path": "/no/such"}, ["/no/such"]),
                ("write_file", {"desk": desk, "path": "/etc/passwd", "text": "x"}, ["/etc/passwd"]),
                ("write_file", {"desk": desk, "path": "a"}, ["text"]),
                ("create_desk", {"template": "nothing"}, ["nothing"]),
                ("create_desk", {"width": 100}, ["height"]),
                ("computer", {"desk": desk, "action": "left_click", "coordinate": [9999, 1]}, ["1429×804"]),
                ("delete_desk", {}, ["desk"]),
            ]:
                said = await hands.refused(tool, **arguments)
                assert all(word in said for word in words), f"{tool} {arguments}: {said}"
                assert "/v1/" not in said, f"{tool} {arguments}: {said}"

    run(work())


@supports("tools", "`create_desk`, `list_desks`, `stop_desk`, `start_desk`, `reset_desk`, `fork_desk`, `delete_desk`")
def test_a_desk_from_its_beginning_to_its_end(fleet):
    async def work():
        async with over_stdio(fleet) as hands:
            said = await hands.said("create_desk", template="bare", name="mine", width=800, height=600)
            mine = re.search(r"d-\w{12}", said)[0]
            await hands.until("list_desks", f"{mine} (mine): running")
            assert "800×600" in await hands.said("list_desks")
            await hands.call("run", desk="mine", command="echo kept > kept")
            assert "stopped" in await hands.said("stop_desk", desk="mine")
            assert "start_desk" in await hands.refused("look", desk="mine")
            assert "running" in await hands.said("start_desk", desk="mine")
            assert "kept" in await hands.said("read_file", desk="mine", path="kept")
            fork = re.search(r"d-\w{12}", await hands.said("fork_desk", desk="mine", name="twin", memory=False))[0]
            await hands.until("list_desks", f"{fork} (twin): running")
            assert "kept" in await hands.said("read_file", desk="twin", path="kept")
            await hands.call("reset_desk", desk="mine")
            assert "kept" in await hands.refused("read_file", desk="mine", path="kept")
            for one in ("mine", "twin"):
                assert "deleted" in await hands.said("delete_desk", desk=one)

    run(work())


@supports("tools", "the only desk need not be named; `--desk` ties to one")
def test_the_only_desk_need_not_be_named(fleet, desk):
    async def work():
        async with over_http(fleet) as hands:
            assert picture(await hands.call("look")).size == SHOWN
            other = fleet.client().desks.create(template="bare", name="other", screen=(640, 480), resources={"memory_mib": 512})
            said = await hands.refused("look")
            assert "shared" in said and "other" in said
            async with over_stdio(fleet, "--desk", "other") as own:
                assert picture(await own.call("look")).size == (640, 480)
            other.delete()

    run(work())


@supports("tools", "`hand_over` lets a person in, for a while")
def test_a_person_is_let_in(fleet, desk):
    async def work():
        async with over_http(fleet) as hands:
            return await hands.said("hand_over", desk=desk, minutes=5)

    said = run(work())
    key = re.search(r"HOTDESK_KEY=(hd_\S+)", said)[1]
    assert f"{fleet.url}/desks/{desk}#key={key}" in said
    assert fleet.request("GET", f"/v1/desks/{desk}/screen", key=key).status_code == 200
    assert fleet.request("DELETE", f"/v1/desks/{desk}", key=key).status_code == 403
    [made] = [k for k in fleet.request("GET", "/v1/keys").json()["keys"] if desk in k["name"]]
    assert made["scope"] == {"kind": "desk", "desk": desk} and made["expires_at"]

    async def again():
        async with over_http(fleet, key=key) as hands:
            assert desk in await hands.said("list_desks")
            assert "key of their own" in (await hands.said("hand_over", desk=desk)).replace("one of their own", "key of their own")
            assert "not" in await hands.refused("delete_desk", desk=desk)

    run(again())


@supports("resources", "screenshot, logs and console of a desk, with templates")
def test_resources(fleet, desk):
    async def work():
        async with over_http(fleet) as hands:
            listed = {str(r.uri) for r in (await hands.client.list_resources()).resources}
            assert {f"desk://{desk}/{kind}" for kind in ("screenshot", "logs", "console")} <= listed
            templates = (await hands.client.list_resource_templates()).resource_templates
            assert "desk://{desk}/screenshot" in {t.uri_template for t in templates}
            [shot] = (await hands.client.read_resource(f"desk://{desk}/screenshot")).contents
            assert base64.b64decode(shot.blob).startswith(b"\x89PNG") and shot.mime_type == "image/png"
            [console] = (await hands.client.read_resource(f"desk://{desk}/console")).contents
            assert console.text
            for uri in (f"desk://{desk}/nothing", "desk://nobody/logs", "desk://"):
                with pytest.raises(Exception, match="nothing|nobody|desk"):
                    await hands.client.read_resource(uri)

    run(work())


@supports("keys", "a key sees through MCP what it sees through the API")
def test_keys_decide_what_is_seen(fleet, desk):
    made = fleet.request("POST", "/v1/keys", json={"name": "elsewhere", "scope": {"kind": "project", "project": "elsewhere"}}).json()

    async def work():
        async with over_http(fleet, key=made["secret"]) as hands:
            assert desk not in await hands.said("list_desks")
            said = await hands.refused("look", desk=desk)
            assert "1920" not in said
            fleet.request("DELETE", f"/v1/keys/{made['key']['id']}")
            with pytest.raises(Exception):
                await hands.said("list_desks")

    run(work())


@supports("hostile clients", "wrong keys, foreign origins, messages that are too large or no messages, clients who leave, 200 calls at once")
def test_hostile_clients(fleet, desk):
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    accept = {"Accept": "application/json, text/event-stream"}
    for key in (None, "hd_wrong"):
        assert fleet.request("POST", "/mcp", key=key, headers=accept, json=ping).status_code == 401
    assert fleet.request("POST", "/mcp", headers=accept, json=ping).json()["result"] == {}
    large = ping | {"params": {"x": "y" * (17 << 20)}}
    assert fleet.request("POST", "/mcp", headers=accept, json=large).status_code == 413
    for method in ("GET", "DELETE", "PUT"):
        answer = fleet.request(method, "/mcp", headers=accept)
        assert (answer.status_code, answer.headers["content-type"]) == (405, "application/problem+json"), method
    for body in (b"", b"[]", b"{", b'{"jsonrpc": "2.0"}', b"\xff" * 100, b"[" * 100_000):
        answer = fleet.request("POST", "/mcp", headers={**accept, "Content-Type": "application/json"}, content=body)
        assert 400 <= answer.status_code < 500, (body[:20], answer.status_code)
    foreign = {**accept, "Origin": "https://evil.example", "Host": "evil.example"}
    assert fleet.request("POST", "/mcp", key=None, headers=foreign, json=ping).status_code in (401, 403)
    # Clients that leave while their call runs take it with them, and nothing is left hanging.
    slow = {"jsonrpc": "2.0", "id": 2, "method": "tools/call"}
    slow["params"] = {"name": "run", "arguments": {"desk": desk, "command": "exec sleep 987", "seconds": 600}}
    for _ in range(5):
        with pytest.raises(httpx.TimeoutException):
            fleet.request("POST", "/mcp", headers=accept, json=slow, timeout=1)
    gone = "until ! pgrep -f 'sleep 98[7]' >/dev/null; do sleep 0.2; done; echo gone"

    async def work():
        async with over_http(fleet) as hands:
            assert "gone" in await hands.said("run", desk=desk, command=gone)
            # Many short calls at once.
            done = await asyncio.gather(*(hands.said("run", desk=desk, command=f"echo {n}") for n in range(200)))
            assert [f"\n{n}\n" in said for n, said in enumerate(done)] == [True] * 200

    run(work())


@supports("set-up", "what `hotdesk env mcp` prints is all of it")
def test_what_env_prints_is_all_the_set_up_there_is(fleet, desk):
    printed = fleet.hotdesk("env", "mcp").stdout
    assert f"export HOTDESK_MCP_URL={fleet.url}/mcp" in printed
    import json

    entry = json.loads(fleet.hotdesk("env", "mcp", "--json").stdout)["mcpServers"]["hotdesk"]
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    headers = entry["headers"] | {"Accept": "application/json, text/event-stream"}
    assert httpx.post(entry["url"], headers=headers, json=ping).json()["result"] == {}
