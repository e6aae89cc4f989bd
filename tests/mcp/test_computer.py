"""The actions of computer-use models, as their APIs send them and want them answered; shapes are checked by the makers' own SDKs."""

from __future__ import annotations

import asyncio
import base64
import io

import pytest
from anthropic.types.beta import BetaToolComputerUse20251124Param, BetaToolResultBlockParam
from conftest import over_http, picture, text
from openai.types.responses import ComputerUsePreviewTool, ResponseComputerToolCall
from openai.types.responses.response_input_item_param import ComputerCallOutput
from PIL import Image
from pydantic import TypeAdapter
from support import supports

RESULT = TypeAdapter(BetaToolResultBlockParam)
OUTPUT = TypeAdapter(ComputerCallOutput)


@pytest.fixture
def claude(fleet, desk):
    """Sends the input of Claude's tool in a block, as the model's message has it, and gives back the content."""

    def use(display: str = "", error: bool = False, **input):
        block = {"type": "tool_use", "id": "toolu_01", "name": "computer", "input": input}
        answer = fleet.request("POST", f"/v1/desks/{desk}/computer/anthropic{display}", json=block)
        assert answer.status_code == 200, answer.text
        result = answer.json()
        RESULT.validate_python(result, strict=False)
        assert result["tool_use_id"] == "toolu_01" and result.get("is_error", False) == error, result["content"][0]
        return result["content"]

    return use


def image(content) -> Image.Image:
    [block] = [block for block in content if block["type"] == "image"]
    assert block["source"]["media_type"] == "image/png"
    return Image.open(io.BytesIO(base64.b64decode(block["source"]["data"])))


def pointer(fleet, desk) -> tuple[int, int]:
    at = fleet.request("GET", f"/v1/desks/{desk}/input/pointer").json()
    return at["x"], at["y"]


@supports("models", "Anthropic's `computer` tool: pictures and coordinates in the model's own pixels")
def test_claude_sees_and_points_in_its_own_pixels(fleet, desk, claude):
    for display, size, half in [("?width=1280&height=800", (1280, 800), (640, 400)), ("?width=1024&height=768", (1024, 768), (512, 384)), ("", (1429, 804), (714, 402))]:
        assert image(claude(display, action="screenshot")).size == size
        claude(display, action="mouse_move", coordinate=half)
        x, y = pointer(fleet, desk)
        assert abs(x - 960) <= 1 and abs(y - 540) <= 1, display
        [block] = claude(display, action="cursor_position")
        assert block == {"type": "text", "text": f"X={half[0]},Y={half[1]}"}
    # Enlarged from the screen itself, whose shape is not that of this display.
    assert image(claude("?width=1280&height=800", action="zoom", region=[0, 0, 400, 200])).size == (1280, 576)


@supports("models", "all other actions of Anthropic's tool")
def test_every_other_action_of_claude(claude):
    assert image(claude(action="key", text="ctrl+a Delete")).size == (1429, 804)
    for input in [
        {"action": "type", "text": "grüße\n"},
        {"action": "hold_key", "text": "shift", "duration": 0.2},
        {"action": "wait", "duration": 0.1},
        {"action": "scroll", "coordinate": [10, 10], "scroll_direction": "down", "scroll_amount": 2, "text": "ctrl"},
        {"action": "left_click_drag", "start_coordinate": [10, 10], "coordinate": [60, 60]},
        {"action": "left_mouse_down"},
        {"action": "left_mouse_up"},
        {"action": "triple_click", "coordinate": [300, 300]},
        {"action": "right_click"},
        {"action": "key", "text": "Escape", "repeat": 2},
    ]:
        image(claude(**input))


def test_what_claude_gets_wrong_it_is_told(claude, fleet, desk):
    for input, words in [
        ({"action": "left_click", "coordinate": [1281, 5]}, "1280×800"),
        ({"action": "fly"}, "fly"),
        ({"action": "key", "text": "nosuchkey"}, "nosuchkey"),
        ({"action": "scroll", "coordinate": [1, 1]}, "scroll_amount"),
    ]:
        [block] = claude("?width=1280&height=800", error=True, **input)
        assert words in block["text"], block
    # What is not the model's fault is a problem, as everywhere.
    path = f"/v1/desks/{desk}/computer/anthropic"
    assert fleet.request("POST", path, json={"hello": 1}).status_code == 400
    assert fleet.request("POST", path + "?width=5", json={"action": "screenshot"}).status_code == 400
    assert fleet.request("POST", "/v1/desks/nobody/computer/anthropic", json={"action": "screenshot"}).status_code == 404
    assert fleet.request("POST", path, json={"action": "screenshot"}, key=None).status_code == 401


@supports("models", "Anthropic's newest toolset")
def test_the_newest_toolset_of_claude(fleet, desk):
    block = {"type": "tool_use", "id": "toolu_02", "name": "mouse_move", "toolset_name": "computer", "input": {"coordinate": [714, 402]}}
    result = fleet.request("POST", f"/v1/desks/{desk}/computer/anthropic", json=block).json()
    RESULT.validate_python(result)
    assert result["toolset_name"] == "computer"
    assert pointer(fleet, desk) == (960, 540)
    tool = fleet.request("GET", f"/v1/desks/{desk}/computer/anthropic").json()
    TypeAdapter(BetaToolComputerUse20251124Param).validate_python(tool)
    assert (tool["display_width_px"], tool["display_height_px"]) == (1429, 804)
    tool = fleet.request("GET", f"/v1/desks/{desk}/computer/anthropic?version=computer_toolset_20260801").json()
    assert tool == {"type": "computer_toolset_20260801"}


def call(**more) -> dict:
    item = {"type": "computer_call", "id": "cu_1", "call_id": "call_1", "status": "completed", "pending_safety_checks": []} | more
    ResponseComputerToolCall.model_validate(item)
    return item


@supports("models", "OpenAI's computer actions")
def test_openai_clicks_and_sees(fleet, desk):
    path = f"/v1/desks/{desk}/computer/openai?width=1024&height=768"
    for item in [
        call(action={"type": "move", "x": 512, "y": 384}),
        call(actions=[{"type": "click", "button": "left", "x": 1, "y": 1}, {"type": "move", "x": 512, "y": 384}]),
        call(action={"type": "drag", "path": [{"x": 1, "y": 1}, {"x": 512, "y": 384}]}),
        call(actions=[
            {"type": "double_click", "x": 5, "y": 5, "keys": None}, {"type": "keypress", "keys": ["CTRL", "A"]}, {"type": "type", "text": "é"},
            {"type": "scroll", "x": 512, "y": 384, "scroll_x": 0, "scroll_y": 300}, {"type": "wait"}, {"type": "screenshot"},
        ]),
        call(action={"type": "screenshot"}),
    ]:  # fmt: skip
        answer = fleet.request("POST", path, json=item)
        assert answer.status_code == 200, answer.text
        output = answer.json()
        OUTPUT.validate_python(output)
        assert output["call_id"] == "call_1" and output["output"]["type"] == "computer_screenshot"
        kind, data = output["output"]["image_url"].split(",")
        assert kind == "data:image/png;base64" and Image.open(io.BytesIO(base64.b64decode(data))).size == (1024, 768)
        assert pointer(fleet, desk) == (960, 540), item


@supports("models", "a batch of OpenAI's is refused before anything of it is done")
def test_openai_is_refused_before_anything_is_done(fleet, desk):
    path = f"/v1/desks/{desk}/computer/openai"
    before = pointer(fleet, desk)
    wrong = call(actions=[{"type": "move", "x": 1, "y": 1}, {"type": "move", "x": 1, "y": 9999}])
    assert fleet.request("POST", path, json=wrong).status_code == 400
    check = {"id": "sc_1", "code": "malicious_instructions", "message": "look"}
    careful = call(action={"type": "move", "x": 1, "y": 1}, pending_safety_checks=[check])
    answer = fleet.request("POST", path, json=careful)
    assert (answer.status_code, answer.json()["code"]) == (409, "safety_checks")
    assert pointer(fleet, desk) == before
    answer = fleet.request("POST", path + "?acknowledge_safety_checks=true", json=careful).json()
    assert answer["acknowledged_safety_checks"] == [check] and pointer(fleet, desk) != before
    tool = fleet.request("GET", path + "?version=computer_use_preview").json()
    ComputerUsePreviewTool.model_validate(tool)


@supports("models", "both as tools of MCP")
def test_both_as_tools(fleet, desk):
    async def work():
        async with over_http(fleet) as hands:
            result = await hands.call("computer", desk=desk, action="mouse_move", coordinate=[714, 402])
            assert picture(result).size == (1429, 804) and pointer(fleet, desk) == (960, 540)
            assert text(await hands.call("computer", desk=desk, action="cursor_position")) == "X=714,Y=402"
            actions = [{"type": "move", "x": 0, "y": 0}, {"type": "screenshot"}]
            assert picture(await hands.call("computer_openai", desk=desk, actions=actions)).size == (1429, 804)
            assert pointer(fleet, desk) == (0, 0)

    asyncio.run(work())
