"""A fleet, and the real MCP client from PyPI on it: over HTTP with a key in a header or in the path, and over stdio."""

from __future__ import annotations

import asyncio
import base64
import importlib.metadata
import io
import os
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parents[1] / "fleet")]

import httpx2  # noqa: E402
import served  # noqa: E402
import support  # noqa: E402
from mcp import Client, StdioServerParameters  # noqa: E402
from mcp.client.streamable_http import streamable_http_client  # noqa: E402
from PIL import Image  # noqa: E402

#: Longer than any tool takes on a busy machine.
PATIENCE = 300
# For what a program shows: shorter than a test may take, so that what it showed instead is told.
WAIT = 120


def pytest_configure(config):
    support.register(config, "mcp", f"`mcp` {importlib.metadata.version('mcp')}")


@pytest.fixture(scope="session")
def fleet():
    served.ensure_built("bare")
    with served.fleet() as one:
        yield one


@pytest.fixture(scope="session")
def desk(fleet):
    """A small desk that tests share; its screen is larger than what models see."""
    made = fleet.client().desks.create(template="bare", name="shared", screen=(1920, 1080), resources={"memory_mib": 1024})
    return made.id


class Hands:
    """The client, and its answers in short."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def call(self, tool: str, **arguments):
        """The result of a call that must succeed."""
        result = await self.client.call_tool(tool, arguments)
        assert not result.is_error, f"{tool} {arguments}: {text(result)}"
        return result

    async def said(self, tool: str, **arguments) -> str:
        return text(await self.call(tool, **arguments))

    async def refused(self, tool: str, **arguments) -> str:
        """What a call that must fail says."""
        result = await self.client.call_tool(tool, arguments)
        assert result.is_error, f"{tool} {arguments} was done: {text(result)}"
        return text(result)

    async def until(self, tool: str, word: str, **arguments) -> str:
        """Asks until the answer has the word."""
        said = "nothing"
        try:
            async with asyncio.timeout(WAIT):
                while word not in (said := await self.said(tool, **arguments)):
                    await asyncio.sleep(0.5)
        except TimeoutError:
            pytest.fail(f"{word!r} did not come; {tool} said last:\n{said}")
        return said


def text(result) -> str:
    return "\n".join(part.text for part in result.content if part.type == "text")


def picture(result) -> Image.Image:
    [one] = [part for part in result.content if part.type == "image"]
    image = Image.open(io.BytesIO(base64.b64decode(one.data)))
    assert one.mime_type == Image.MIME[image.format]
    image.load()
    return image


@asynccontextmanager
async def over_http(fleet, mode: str = "auto", key: str | None = None):
    headers = {"Authorization": f"Bearer {key or fleet.key}"}
    async with httpx2.AsyncClient(headers=headers, timeout=PATIENCE) as http:
        transport = streamable_http_client(f"{fleet.url}/mcp", http_client=http)
        async with Client(transport, mode=mode, read_timeout_seconds=PATIENCE) as client:
            yield Hands(client)


@asynccontextmanager
async def over_stdio(fleet, *flags: str):
    environment = {"HOTDESK_URL": fleet.url, "HOTDESK_KEY": fleet.key, "PATH": os.environ["PATH"]}
    server = StdioServerParameters(command=served.BINARY, args=["mcp", *flags], env=environment)
    async with Client(server, read_timeout_seconds=PATIENCE) as client:
        yield Hands(client)


@asynccontextmanager
async def over_path(fleet):
    """The key in the address, for clients that can set no headers."""
    async with Client(f"{fleet.url}/k/{fleet.key}/mcp", read_timeout_seconds=PATIENCE) as client:
        yield Hands(client)


WAYS = {
    "http": over_http,
    "http, handshake": lambda fleet: over_http(fleet, mode="legacy"),
    "key in the path": over_path,
    "stdio": over_stdio,
}


@pytest.fixture(params=WAYS)
def way(request, fleet):
    """Each way to connect, once."""
    return lambda: WAYS[request.param](fleet)
