"""Requests as values, built the same for the sync and the async client: what is sent, whether it may be sent again, how long it may take."""

from __future__ import annotations

import base64
import uuid
from dataclasses import dataclass, field
from typing import Any, Mapping, Sequence
from urllib.parse import quote

from . import models

#: The longest that the fleet waits in one request.
LONGEST_WAIT_S = 600
#: Besides what a request itself waits for, an answer may take so long.
ANSWER_S = 30.0
CONNECT_S = 10.0
#: A fleet that is being restarted is back within seconds, so what may be sent again is sent for about so long.
RETRY_FOR_S = 15.0
FIRST_RETRY_FOR_S = 2.0
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 2.0
#: Pause between two looks at a desk whose change takes longer than one request may wait.
LOOK_S = 0.5
#: Answers that a proxy or a fleet that is just starting gives; what is safe to repeat is repeated after them.
PASSING_STATUS = frozenset({502, 503, 504})
CHUNK = 256 * 1024


@dataclass
class Request:
    method: str
    path: str
    params: list[tuple[str, str]] = field(default_factory=list)
    json: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    #: Whether sending it twice has the effect of sending it once.
    again: bool = False
    #: How long the answer may take, in seconds; None is for ever.
    answer_s: float | None = ANSWER_S


def get(path: str, params: Mapping[str, Any] | None = None, **more: Any) -> Request:
    return Request("GET", path, query(params or {}), again=True, **more)


def query(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Query parameters; what is None is left out, lists are repeated."""
    pairs: list[tuple[str, str]] = []
    for name, value in values.items():
        for one in value if isinstance(value, (list, tuple)) else [value]:
            if one is None:
                continue
            if isinstance(one, bool):
                one = "true" if one else "false"
            pairs.append((name, str(one)))
    return pairs


def part(text: str) -> str:
    """A piece of a path."""
    return quote(text, safe="")


def given(**values: Any) -> dict[str, Any]:
    """Only what was said, as JSON."""
    return {name: models.write(value) for name, value in values.items() if value is not None}


# ── desks ────────────────────────────────────────────────────────────────────


def new_desk(
    *,
    name: str | None,
    template: str | None,
    snapshot: str | None,
    provider: str | None,
    labels: Mapping[str, str] | None,
    env: Mapping[str, str] | None,
    resources: "models.Resources | Mapping[str, Any] | None",
    policy: "models.Policy | Mapping[str, Any] | None",
    screen: "models.Size | tuple[int, int] | None",
    vnc_password: str | None,
    network: bool | None,
    project: str | None,
    queue_s: float | None,
) -> dict[str, Any]:
    if isinstance(screen, tuple):
        screen = models.Size(*screen)
    return given(
        name=name, template=template, snapshot=snapshot, provider=provider,
        labels=dict(labels) if labels else None, env=dict(env) if env else None, resources=resources, policy=policy,
        screen=screen, vnc_password=vnc_password, network=network, project=project,
        queue_s=int(queue_s) if queue_s else None,
    )  # fmt: skip


def create(body: dict[str, Any], timeout: float, key: str | None) -> Request:
    """Has an idempotency key, so that it can be sent again and still makes one desk."""
    return Request(
        "POST", "/v1/desks", query({"wait": wait_s(timeout)}), json=body, again=True,
        headers={"Idempotency-Key": key or uuid.uuid4().hex}, answer_s=timeout + ANSWER_S,
    )  # fmt: skip


def verb(desk: str, name: str, timeout: float, *, method: str = "POST", body: Any = None, again: bool = True) -> Request:
    path = f"/v1/desks/{part(desk)}" + (f"/{name}" if name else "")
    return Request(method, path, query({"wait": wait_s(timeout)}), json=body, again=again, answer_s=timeout + ANSWER_S)


def wait_s(timeout: float) -> int:
    return max(0, min(LONGEST_WAIT_S, int(timeout)))


# ── actions ──────────────────────────────────────────────────────────────────

Action = Mapping[str, Any]


def point(x: int | None, y: int | None) -> dict[str, int] | None:
    if x is None and y is None:
        return None
    if x is None or y is None:
        raise ValueError("x and y go together: give both, or neither for where the pointer is")
    return {"x": int(x), "y": int(y)}


def action(do: str, **fields: Any) -> dict[str, Any]:
    return {"do": do, **{k: v for k, v in fields.items() if v is not None}}


def keys(names: Sequence[str]) -> list[str]:
    if not names:
        raise ValueError("no key was named")
    return list(names)


def batch(actions: Sequence[Action], settle: "bool | Mapping[str, int] | None", screenshot: "bool | Mapping[str, Any] | None") -> dict[str, Any]:
    body: dict[str, Any] = {"actions": [dict(a) for a in actions]}
    if settle:
        body["settle"] = {} if settle is True else dict(settle)
    if screenshot:
        body["screenshot"] = True if screenshot is True else dict(screenshot)
    return body


def performed(data: Mapping[str, Any]) -> models.Performed:
    picture = data.get("screenshot")
    result = models.read(models.Performed, {**data, "screenshot": None})
    if picture:
        result = models.Performed(result.actions, result.ms, result.settled, base64.b64decode(picture["data"]))
    return result


# ── programs ─────────────────────────────────────────────────────────────────


def command(argv: "str | Sequence[str]") -> dict[str, Any]:
    """A string is for the shell, a list is a program and its arguments."""
    return {"shell": argv} if isinstance(argv, str) else {"argv": [str(a) for a in argv]}


def run(argv: "str | Sequence[str]", *, cwd: str | None, env: "Mapping[str, str | None] | None", stdin: "str | bytes | None", timeout: float) -> dict[str, Any]:
    body = command(argv) | {"timeout_ms": int(timeout * 1000)}
    if cwd is not None:
        body["cwd"] = cwd
    if env:
        body["env"] = dict(env)
    if isinstance(stdin, bytes):
        body["stdin_base64"] = base64.b64encode(stdin).decode()
    elif stdin is not None:
        body["stdin"] = stdin
    return body


# ── server-sent events ───────────────────────────────────────────────────────


@dataclass
class Message:
    event: str = "message"
    data: str = ""
    id: str | None = None


class MessageParser:
    """Lines of an event stream in, messages out."""

    def __init__(self) -> None:
        self._event = "message"
        self._data: list[str] = []
        self._id: str | None = None

    def line(self, text: str) -> Message | None:
        if not text:
            whole = Message(self._event, "\n".join(self._data), self._id) if self._data else None
            self._event, self._data = "message", []
            return whole
        if text.startswith(":"):
            return None
        name, _, value = text.partition(":")
        value = value[1:] if value.startswith(" ") else value
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._event = value
        elif name == "id":
            self._id = value
        return None
