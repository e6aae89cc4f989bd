"""The fleet: desks, snapshots, pools, keys, money, events."""

from __future__ import annotations

import asyncio
import json
import time
from types import TracebackType
from typing import Any, AsyncIterator, List, Mapping

import httpx

from .. import _requests, models, settings
from .._requests import Request, get, given, part, query
from ..errors import ConnectionFailed, Timeout
from .desk import AsyncDesk
from .http import AsyncHttp


class AsyncHotdesk:
    """The client of a fleet.

    Without arguments it talks to the fleet that `HOTDESK_URL` and `HOTDESK_KEY` name, else to the one of this machine.
    `verify` says what its certificate is checked against: a file, a context, or False; by default the file in `HOTDESK_CA`, else what
    the system trusts.
    """

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        *,
        verify: Any = None,
        http_client: httpx.AsyncClient | None = None,
    ) -> None:
        self.verify = settings.trust() if verify is None else verify
        self._http = AsyncHttp(settings.find(url, key), http_client, self.verify)
        self.desks = AsyncDesks(self._http, self)
        self.snapshots = AsyncSnapshots(self._http)
        self.pools = AsyncPools(self._http)
        self.keys = AsyncKeys(self._http)
        self.templates = AsyncTemplates(self._http)

    @property
    def url(self) -> str:
        return self._http.settings.url

    @property
    def key(self) -> str | None:
        return self._http.settings.key

    async def info(self) -> models.FleetInfo:
        return models.read(models.FleetInfo, await self._http.json(get("/v1/fleet")))

    async def costs(self) -> models.Costs:
        return models.read(models.Costs, await self._http.json(get("/v1/costs")))

    async def budgets(self) -> list[models.Budget]:
        return models.read(list[models.Budget], (await self._http.json(get("/v1/budgets")))["budgets"])

    async def set_budget(
        self,
        project: str,
        *,
        per_day: float | None = None,
        total: float | None = None,
        alert_at: float = 0.8,
        webhook: str | None = None,
    ) -> None:
        body = models.write(models.Budget(project, per_day, total, alert_at, webhook))
        await self._http.send(Request("PUT", "/v1/budgets", json=body, again=True))

    async def past_events(self, *, after: int = 0, desk: str | None = None, limit: int | None = None) -> list[models.Event]:
        answer = await self._http.json(get("/v1/events", {"after": after, "desk": desk, "limit": limit}))
        return models.read(list[models.Event], answer["events"])

    async def events(self, *, after: int | None = None, desk: str | None = None, timeout: float | None = None) -> AsyncIterator[models.Event]:
        """Events as they happen, for ever; from the one after number `after`, or from now on.

        A broken connection is made again without losing an event. With `timeout` the stream ends after so many silent seconds.
        """
        last = str(after) if after is not None else None
        broken: float | None = None
        while True:
            headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": last} if last is not None else {})
            request = get("/v1/events", {"desk": desk}, headers=headers, answer_s=timeout or 120.0)
            parser = _requests.MessageParser()
            try:
                async with self._http.stream(request) as response:
                    async for line in response.aiter_lines():
                        broken = None
                        message = parser.line(line)
                        if message is None:
                            continue
                        last = message.id or last
                        event = json.loads(message.data)
                        if isinstance(event, dict) and "number" in event:
                            yield models.read(models.Event, event)
            except Timeout:
                if timeout is not None:
                    return
            except ConnectionFailed:
                broken = broken or time.monotonic()
                if time.monotonic() - broken > _requests.RETRY_FOR_S:
                    raise
            await asyncio.sleep(_requests.FIRST_PAUSE_S)

    async def audit(self, *, limit: int | None = None) -> list[dict[str, Any]]:
        lines: list[dict[str, Any]] = (await self._http.json(get("/v1/audit", {"limit": limit})))["lines"]
        return lines

    async def aclose(self) -> None:
        await self._http.aclose()

    async def __aenter__(self) -> AsyncHotdesk:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.aclose()


class AsyncDesks:
    """The desks of the fleet."""

    def __init__(self, http: AsyncHttp, fleet: AsyncHotdesk) -> None:
        self._http = http
        self._fleet = fleet

    async def create(
        self,
        template: str | None = None,
        *,
        name: str | None = None,
        snapshot: str | None = None,
        provider: str | None = None,
        labels: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
        resources: models.Resources | Mapping[str, Any] | None = None,
        policy: models.Policy | Mapping[str, Any] | None = None,
        screen: models.Size | tuple[int, int] | None = None,
        vnc_password: str | None = None,
        network: bool | None = None,
        project: str | None = None,
        queue: float | None = None,
        timeout: float = 120.0,
        idempotency_key: str | None = None,
    ) -> AsyncDesk:
        """Makes a desk and waits until it runs.

        With `timeout=0` it is returned as soon as it is written down. With `queue` the fleet waits so many seconds for a free place
        instead of refusing when a limit is reached.
        """
        body = _requests.new_desk(
            name=name, template=template, snapshot=snapshot, provider=provider, labels=labels, env=env, resources=resources,
            policy=policy, screen=screen, vnc_password=vnc_password, network=network, project=project, queue_s=queue,
        )  # fmt: skip
        end = time.monotonic() + timeout
        answer = await self._http.json(_requests.create(body, timeout + (queue or 0.0), idempotency_key))
        desk = AsyncDesk(self._http, self._fleet, models.read(models.DeskInfo, answer))
        if timeout > 0:
            await desk._settled(end, models.State.RUNNING)
        return desk

    async def get(self, desk: str) -> AsyncDesk:
        """A desk by its id or its name."""
        answer = await self._http.json(get(f"/v1/desks/{part(desk)}"))
        return AsyncDesk(self._http, self._fleet, models.read(models.DeskInfo, answer))

    async def list(
        self,
        *,
        project: str | None = None,
        state: models.State | str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> List[AsyncDesk]:
        wanted = {
            "project": project,
            "state": str(state) if state is not None else None,
            "label": [f"{k}={v}" for k, v in (labels or {}).items()],
        }
        answer = await self._http.json(get("/v1/desks", wanted))
        return [AsyncDesk(self._http, self._fleet, models.read(models.DeskInfo, one)) for one in answer["desks"]]


class AsyncSnapshots:
    """Saved desks. They are made by `desk.snapshot()` and used by `desks.create(snapshot=…)`."""

    def __init__(self, http: AsyncHttp) -> None:
        self._http = http

    async def list(self) -> List[models.Snapshot]:
        return models.read(list[models.Snapshot], (await self._http.json(get("/v1/snapshots")))["snapshots"])

    async def delete(self, snapshot: str) -> None:
        await self._http.send(Request("DELETE", f"/v1/snapshots/{part(snapshot)}", again=True))


class AsyncPools:
    """Desks kept ready, so that a claim costs nothing."""

    def __init__(self, http: AsyncHttp) -> None:
        self._http = http

    async def list(self) -> List[models.Pool]:
        return models.read(list[models.Pool], (await self._http.json(get("/v1/pools")))["pools"])

    async def set(
        self,
        template: str,
        *,
        min: int,
        max: int,
        provider: str | None = None,
        resources: models.Resources | Mapping[str, Any] | None = None,
    ) -> models.Pool:
        body = given(template=template, min=min, max=max, provider=provider, resources=resources)
        return models.read(models.Pool, await self._http.json(Request("PUT", "/v1/pools", json=body, again=True)))

    async def delete(self, template: str) -> None:
        await self._http.send(Request("DELETE", f"/v1/pools/{part(template)}", again=True))


class AsyncKeys:
    """Keys of the fleet. A secret is shown once, when it is made."""

    def __init__(self, http: AsyncHttp) -> None:
        self._http = http

    async def list(self) -> List[models.Key]:
        return models.read(list[models.Key], (await self._http.json(get("/v1/keys")))["keys"])

    async def create(
        self,
        name: str,
        *,
        project: str | None = None,
        desk: str | None = None,
        ttl: float = 0.0,
        max_desks: int | None = None,
    ) -> models.MadeKey:
        """A key for one project, for one desk, or, if neither is named, for everything."""
        if project is not None and desk is not None:
            raise ValueError("a key is for a project or for a desk, not for both")
        scope = {"kind": "project", "project": project} if project is not None else {"kind": "desk", "desk": desk} if desk is not None else {"kind": "admin"}
        body = given(name=name, scope=scope, ttl_s=int(ttl), max_desks=max_desks)
        return models.read(models.MadeKey, await self._http.json(Request("POST", "/v1/keys", json=body)))

    async def rotate(self, key: str) -> models.MadeKey:
        return models.read(models.MadeKey, await self._http.json(Request("POST", f"/v1/keys/{part(key)}/rotate")))

    async def revoke(self, key: str) -> None:
        await self._http.send(Request("DELETE", f"/v1/keys/{part(key)}", again=True))


class AsyncTemplates:
    """What desks are made of."""

    def __init__(self, http: AsyncHttp) -> None:
        self._http = http

    async def list(self) -> List[models.Template]:
        return models.read(list[models.Template], (await self._http.json(get("/v1/templates")))["templates"])

    async def build(self, template: str, *, timeout: float = 1800.0) -> None:
        """Builds a template unless it is built. The first time takes minutes."""
        await self._http.send(Request("POST", f"/v1/templates/{part(template)}/build", query({}), again=True, answer_s=timeout))
