"""The whole of it: a real client opens Chromium on a page, reads the tree, clicks, types, and sees the result."""

from __future__ import annotations

import asyncio
import re

import pytest
import served
from conftest import over_http, over_stdio, picture
from support import supports

pytestmark = pytest.mark.browser

PAGE = """<!doctype html><title>Order</title>
<body style="margin:0;font:20px sans-serif;background:#fff">
<h1>What do you want?</h1>
<label>Dish <input id=dish></label>
<button onclick="done.textContent = 'Ordered: ' + dish.value; document.body.style.background = '#00c800'">Order now</button>
<p id=done></p>
"""


@pytest.fixture(scope="module", autouse=True)
def template():
    served.ensure_built("base")


@pytest.mark.parametrize("way", [over_http, over_stdio], ids=["http", "stdio"])
@supports("the whole", "Chromium opened on a page, its tree read, clicked, typed, the result seen")
def test_a_client_uses_a_web_page(fleet, way):
    async def work():
        async with way(fleet) as hands:
            made = await hands.said("create_desk", template="base", width=1600, height=900, network=False)
            desk = re.search(r"d-\w{12}", made)[0]
            await hands.until("list_desks", f"{desk}: running")
            try:
                await order(hands, desk)
            finally:
                await hands.call("delete_desk", desk=desk)

    asyncio.run(work())


async def order(hands, desk: str):
    await hands.call("write_file", desk=desk, path="page.html", text=PAGE)
    await hands.call("run", desk=desk, background=True, command="exec chromium --start-maximized file:///home/user/page.html")
    await hands.until("tree", "Order now", desk=desk)

    tree = await hands.said("tree", desk=desk, app="chromium")
    assert "What do you want?" in tree
    words = "Käsespätzle & 2 €"
    await until_seen(hands, desk, r"entry.*Dish", [{"do": "key", "keys": "ctrl+a"}, {"do": "type", "text": words}], words)
    await until_seen(hands, desk, r"button \"Order now\"", [], f"Ordered: {words}")
    seen = picture(await hands.call("look", desk=desk))
    assert seen.convert("RGB").getpixel((seen.width // 2, seen.height * 3 // 4)) == (0, 200, 0), "the page is green"


async def until_seen(hands, desk: str, element: str, steps: list, words: str):
    """Clicks an element, does the rest, and looks for what comes of it. A window that is new may still move, and a page that
    loads may swallow a key: then it is looked for and done again, as anybody would."""
    for _ in range(10):
        x, y = place(await hands.said("tree", desk=desk, app="chromium"), element)
        await hands.call("act", desk=desk, steps=[{"do": "click", "x": x, "y": y}, *steps])
        for _ in range(10):
            if words in (said := await hands.said("tree", desk=desk, app="chromium")):
                return
            await asyncio.sleep(0.5)
    raise AssertionError(f"{words} is not in\n{said}")


def place(tree: str, line: str) -> tuple[int, int]:
    found = re.search(line + r".* at \((\d+), (\d+)\)|" + line + r" at \((\d+), (\d+)\)", tree)
    assert found, f"{line} is not in\n{tree}"
    x, y = (n for n in found.groups() if n is not None)
    return int(x), int(y)
