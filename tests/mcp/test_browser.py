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
<p id=state>Not settled</p>
<script>
setInterval(() => {
  const now = document.hasFocus() ? `Settled, as wide as ${innerWidth}` : "Without the keyboard";
  if (state.textContent !== now) state.textContent = now;
}, 50);
</script>
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
    # The page itself says when its window has its place and the keyboard: only then is a click where the tree says, and a key heard.
    tree = await hands.until("tree", "Settled, as wide as 1600", desk=desk, app="chromium")
    assert "What do you want?" in tree
    words = "Käsespätzle & 2 €"
    x, y = place(tree, r"entry.*Dish")
    # Chromium on a busy machine loses keys that come right after the click, before the field has the keyboard.
    await hands.call("act", desk=desk, steps=[{"do": "click", "x": x, "y": y}])
    await hands.until("tree", "editable focused", desk=desk, app="chromium")
    await hands.call("act", desk=desk, steps=[{"do": "type", "text": words}])
    tree = await hands.until("tree", words, desk=desk, app="chromium")
    x, y = place(tree, r"button \"Order now\"")
    await hands.call("act", desk=desk, steps=[{"do": "click", "x": x, "y": y}])
    await hands.until("tree", f"Ordered: {words}", desk=desk, app="chromium")
    seen = picture(await hands.call("look", desk=desk))
    assert seen.convert("RGB").getpixel((seen.width // 2, seen.height * 3 // 4)) == (0, 200, 0), "the page is green"


def place(tree: str, line: str) -> tuple[int, int]:
    found = re.search(line + r".* at \((\d+), (\d+)\)|" + line + r" at \((\d+), (\d+)\)", tree)
    assert found, f"{line} is not in\n{tree}"
    x, y = (n for n in found.groups() if n is not None)
    return int(x), int(y)
