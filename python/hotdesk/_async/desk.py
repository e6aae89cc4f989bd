"""One desk: its life, its screen, its hands, its programs and files."""

from __future__ import annotations

import asyncio
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, AsyncIterator, Mapping, Sequence

from .. import _requests, models
from .._pictures import open_picture
from .._requests import ANSWER_S, Action, Request, action, get, given, keys, part, point
from ..errors import DeskFailed, NotFound, Timeout
from ..ports import Port
from .http import AsyncHttp
from .parts import AsyncClipboard, AsyncFiles, AsyncLease, AsyncProcesses, AsyncTraces, AsyncWindows

if TYPE_CHECKING:
    from PIL.Image import Image

    from .client import AsyncHotdesk

State = models.State


class AsyncDesk:
    """A desk. As a context manager it is deleted at the end of the block."""

    def __init__(self, http: AsyncHttp, fleet: AsyncHotdesk, info: models.DeskInfo) -> None:
        self._http = http
        self._fleet = fleet
        #: What the fleet said about the desk when it was asked last; `refresh()` asks again.
        self.info = info
        self.files = AsyncFiles(http, info.id)
        self.windows = AsyncWindows(http, info.id)
        self.clipboard = AsyncClipboard(http, info.id)
        self.processes = AsyncProcesses(http, info.id)
        self.lease = AsyncLease(http, info.id)
        self.trace = AsyncTraces(http, info.id)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} {self.state}>"

    @property
    def id(self) -> str:
        return self.info.id

    @property
    def name(self) -> str | None:
        return self.info.name

    @property
    def state(self) -> models.State:
        return self.info.state

    @property
    def labels(self) -> dict[str, str]:
        return self.info.labels

    async def __aenter__(self) -> AsyncDesk:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            await self.delete()
        except NotFound:
            pass

    # ── life ──

    async def refresh(self) -> AsyncDesk:
        """Asks the fleet how the desk is."""
        return self._now(await self._http.json(get(f"/v1/desks/{part(self.id)}")))

    async def update(
        self,
        *,
        name: str | None = None,
        labels: Mapping[str, str | None] | None = None,
        policy: models.Policy | Mapping[str, Any] | None = None,
    ) -> AsyncDesk:
        """Changes name, labels (None removes one) and policy; what is left out stays."""
        body = given(name=name, labels=dict(labels) if labels is not None else None, policy=policy)
        return self._now(await self._http.json(Request("PATCH", f"/v1/desks/{part(self.id)}", json=body, again=True)))

    async def start(self, *, timeout: float = 120.0) -> AsyncDesk:
        """Starts a stopped desk with the files that it had; brings an archived one back first."""
        return await self._verb("start", timeout, State.RUNNING)

    async def stop(self, *, timeout: float = 60.0) -> AsyncDesk:
        """Ends its programs, keeps its files."""
        return await self._verb("stop", timeout, State.STOPPED)

    async def reset(self, *, timeout: float = 60.0) -> AsyncDesk:
        """Back to its template or snapshot, running."""
        return await self._verb("reset", timeout, State.RUNNING)

    async def archive(self, *, timeout: float = 600.0) -> AsyncDesk:
        """Moves a stopped desk to object storage."""
        return await self._verb("archive", timeout, State.ARCHIVED)

    async def delete(self, *, timeout: float = 60.0) -> None:
        """Removes everything of the desk. One that is gone already is no error."""
        end = time.monotonic() + timeout
        try:
            self._now(await self._http.json(_requests.verb(self.id, "", timeout, method="DELETE")))
            if timeout > 0:
                await self._settled(end, State.DELETED)
        except NotFound:
            self.info = models.read(models.DeskInfo, {**models.write(self.info), "state": "deleted"})

    async def extend(self, seconds: float) -> AsyncDesk:
        """Moves the end of its life to so many seconds from now."""
        request = Request("POST", f"/v1/desks/{part(self.id)}/extend", json={"by_s": int(seconds)}, again=True)
        return self._now(await self._http.json(request))

    async def snapshot(self, name: str | None = None, *, memory: bool | None = None, timeout: float = 300.0) -> models.Snapshot:
        """Saves the desk; with `memory` its running programs too (by default where the provider can)."""
        request = Request("POST", f"/v1/desks/{part(self.id)}/snapshot", json=given(name=name, memory=memory), answer_s=timeout)
        return models.read(models.Snapshot, await self._http.json(request))

    async def fork(
        self,
        *,
        memory: bool | None = None,
        name: str | None = None,
        labels: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
        policy: models.Policy | Mapping[str, Any] | None = None,
        timeout: float = 120.0,
    ) -> AsyncDesk:
        """A new desk that goes on from where this one is."""
        end = time.monotonic() + timeout
        # None is "as in this desk"; an empty one is none at all
        body = given(memory=memory, name=name, labels=labels, env=env, policy=policy)
        answer = await self._http.json(_requests.verb(self.id, "fork", timeout, body=body, again=False))
        desk = type(self)(self._http, self._fleet, models.read(models.DeskInfo, answer))
        if timeout > 0:
            await desk._settled(end, State.RUNNING)
        return desk

    async def usage(self) -> models.Usage:
        """CPU, memory and disk in use."""
        return models.read(models.Usage, await self._http.json(get(f"/v1/desks/{part(self.id)}/usage")))

    async def console(self, lines: int | None = None) -> str:
        """What the desk's server printed."""
        return (await self._http.send(get(f"/v1/desks/{part(self.id)}/console", {"lines": lines}))).text

    async def events(self, *, after: int | None = None, timeout: float | None = None) -> AsyncIterator[models.Event]:
        """Events of this desk as they happen; see `Hotdesk.events`."""
        async for event in self._fleet.events(after=after, desk=self.id, timeout=timeout):
            yield event

    async def wait(self, state: models.State | str = State.RUNNING, *, timeout: float = 120.0) -> AsyncDesk:
        """Waits until the desk is in a state."""
        end = time.monotonic() + timeout
        wanted = State(state)
        while (await self.refresh()).state != wanted:
            if self.state is State.ERROR or (self.state is State.DELETED and wanted is not State.DELETED):
                raise self._failed()
            if time.monotonic() > end:
                raise Timeout(f"desk {self.id} was {self.state} and not {wanted} after {timeout} s: {self.info.reason}")
            await asyncio.sleep(_requests.LOOK_S)
        return self

    # ── eyes ──

    async def screenshot(
        self,
        *,
        format: str | None = None,
        region: tuple[int, int, int, int] | models.Rect | None = None,
        scale: float | None = None,
        max_width: int | None = None,
        quality: int | None = None,
        cursor: str | None = None,
        wait: str | None = None,
        quiet_ms: int | None = None,
        limit_ms: int | None = None,
    ) -> bytes:
        """A picture of the screen. `wait="settled"` waits until nothing changes; `region` is x, y, width, height."""
        if isinstance(region, models.Rect):
            region = (region.x, region.y, region.width, region.height)
        wanted = {
            "format": format, "region": ",".join(map(str, region)) if region else None, "scale": scale, "max_width": max_width,
            "quality": quality, "cursor": cursor, "wait": wait, "quiet_ms": quiet_ms, "limit_ms": limit_ms,
        }  # fmt: skip
        request = get(f"/v1/desks/{part(self.id)}/screenshot", wanted, answer_s=ANSWER_S + (limit_ms or 0) / 1000)
        return (await self._http.send(request)).content

    async def picture(self, **wanted: Any) -> Image:
        """The same as a picture of Pillow, which must be installed."""
        return open_picture(await self.screenshot(**wanted))

    async def tree(
        self,
        *,
        app: str | None = None,
        window: str | None = None,
        depth: int | None = None,
        visible_only: bool | None = None,
    ) -> models.Tree:
        """The accessibility tree: what is on the screen, as programs tell it."""
        wanted = {"app": app, "window": window, "depth": depth, "visible_only": visible_only}
        return models.read(models.Tree, await self._http.json(get(f"/v1/desks/{part(self.id)}/accessibility", wanted, answer_s=60.0)))

    async def find(
        self,
        *,
        role: str | None = None,
        name: str | None = None,
        name_contains: str | None = None,
        text: str | None = None,
        text_contains: str | None = None,
        app: str | None = None,
        window: str | None = None,
        states: Sequence[str] | None = None,
        hidden: bool | None = None,
        limit: int | None = None,
    ) -> list[models.Element]:
        """Elements of the tree; everything that is given must hold."""
        body = given(
            role=role, name=name, name_contains=name_contains, text=text, text_contains=text_contains, app=app, window=window,
            states=list(states) if states else None, hidden=hidden, limit=limit,
        )  # fmt: skip
        request = Request("POST", f"/v1/desks/{part(self.id)}/accessibility/find", json=body, again=True, answer_s=60.0)
        return models.read(list[models.Element], (await self._http.json(request))["found"])

    async def act(self, element: models.Element | str, do: str = "invoke", **fields: Any) -> dict[str, Any]:
        """Does something to an element without mouse and keyboard: `invoke`, `focus`, `set_value`, `set_text`, `scroll_to`."""
        body = {"id": element.id if isinstance(element, models.Element) else element, "do": do, **fields}
        answer: dict[str, Any] = await self._http.json(Request("POST", f"/v1/desks/{part(self.id)}/accessibility/act", json=body, answer_s=60.0))
        return answer

    async def settled(self, *, quiet_ms: int | None = None, limit_ms: int | None = None) -> bool:
        """Waits until nothing changes on the screen; False if it still did at the end."""
        body = given(quiet_ms=quiet_ms, limit_ms=limit_ms)
        request = Request("POST", f"/v1/desks/{part(self.id)}/screen/settled", json=body, again=True, answer_s=ANSWER_S + (limit_ms or 0) / 1000)
        return bool((await self._http.json(request))["settled"])

    # ── hands ──

    async def actions(
        self,
        actions: Sequence[Action],
        *,
        settle: bool | Mapping[str, int] | None = None,
        screenshot: bool | Mapping[str, Any] | None = None,
    ) -> models.Performed:
        """A list of actions without another one mixing in; then waits for a quiet screen and takes a picture, if asked."""
        body = _requests.batch(actions, settle, screenshot)
        # never sent again by itself: an action that was done must not be done twice
        request = Request("POST", f"/v1/desks/{part(self.id)}/input", json=body, headers={"Accept": "application/json"}, answer_s=180.0)
        return _requests.performed(await self._http.json(request))

    async def move(self, x: int, y: int, *, ms: int | None = None) -> None:
        await self.actions([action("move", to=point(x, y), ms=ms)])

    async def click(
        self,
        x: int | None = None,
        y: int | None = None,
        *,
        button: str | None = None,
        times: int | None = None,
        hold: Sequence[str] | None = None,
    ) -> None:
        """Clicks at a place, or where the pointer is; `hold` are keys that are down meanwhile."""
        await self.actions([action("click", at=point(x, y), button=button, times=times, hold=list(hold) if hold else None)])

    async def double_click(self, x: int | None = None, y: int | None = None, *, button: str | None = None) -> None:
        await self.click(x, y, button=button, times=2)

    async def drag(self, *path: tuple[int, int], button: str | None = None, ms: int | None = None, hold: Sequence[str] | None = None) -> None:
        """Drags along a path; of a single point: from where the pointer is."""
        points = [point(x, y) for x, y in path]
        await self.actions([action("drag", path=points, button=button, ms=ms, hold=list(hold) if hold else None)])

    async def scroll(self, dy: int = 0, dx: int = 0, *, x: int | None = None, y: int | None = None) -> None:
        """Turns the wheel: `dy` notches down, `dx` notches right."""
        await self.actions([action("scroll", dy=dy, dx=dx, at=point(x, y))])

    async def type(self, text: str, *, interval_ms: int | None = None, secret: bool | None = None) -> None:
        """Types text, whatever characters it holds; a `secret` one is not kept by traces."""
        await self.actions([action("type", text=text, interval_ms=interval_ms, secret=secret)])

    async def key(self, *names: str, times: int | None = None) -> None:
        """Presses keys together: `key("ctrl", "s")` or `key("ctrl+s")`."""
        await self.actions([action("key", keys=keys(names), times=times)])

    # ── programs ──

    async def exec(
        self,
        command: str | Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str | None] | None = None,
        stdin: str | bytes | None = None,
        timeout: float = 60.0,
    ) -> models.RunResult:
        """Runs a program to its end. A string is for the shell, a list is a program and its arguments."""
        return await self.processes.run(command, cwd=cwd, env=env, stdin=stdin, timeout=timeout)

    # ── ways in ──

    def port(self, number: int) -> Port:
        """A port of the desk: its address at the gateway, and a forwarder to it on this machine."""
        return Port(self._http.settings, self.id, number, self._fleet.verify)

    @property
    def osworld_url(self) -> str:
        """An OSWorld base URL of the desk, the key included."""
        return self._http.url(f"/osworld/{part(self.id)}", with_key=True)

    @property
    def view_url(self) -> str:
        """The live view (RFB in WebSocket messages, as noVNC speaks it), the key included."""
        url = self._http.url(f"/v1/desks/{part(self.id)}/view", with_key=True)
        return "ws" + url.removeprefix("http")

    # ── details ──

    def _now(self, answer: Any) -> AsyncDesk:
        self.info = models.read(models.DeskInfo, answer)
        return self

    async def _verb(self, name: str, timeout: float, wanted: models.State) -> AsyncDesk:
        end = time.monotonic() + timeout
        self._now(await self._http.json(_requests.verb(self.id, name, timeout)))
        if timeout > 0:
            await self._settled(end, wanted)
        return self

    async def _settled(self, end: float, wanted: models.State) -> None:
        """Waits until the desk has left every state between, and says why if it is not in the one that was wanted."""
        while self.state.passing and self.state is not wanted:
            if time.monotonic() > end:
                raise Timeout(f"desk {self.id} is still {self.state} ({self.info.stage or self.info.reason})")
            await asyncio.sleep(_requests.LOOK_S)
            await self.refresh()
        if self.state is not wanted:
            raise self._failed()

    def _failed(self) -> DeskFailed:
        return DeskFailed(
            code="desk_failed",
            status=502,
            title=f"desk {self.id} is {self.state}",
            detail=f"desk {self.id} is {self.state}: {self.info.reason}",
            body={"desk": self.id},
        )


