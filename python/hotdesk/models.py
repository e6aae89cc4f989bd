"""The words of the fleet as dataclasses. Fields that a newer fleet adds are ignored, ones that an older lacks have defaults."""

from __future__ import annotations

import dataclasses
import sys
import types
import typing
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Mapping, TypeVar, Union

T = TypeVar("T")


class State(str, Enum):
    """The states of a desk."""

    CREATING = "creating"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"
    STARTING = "starting"
    RESETTING = "resetting"
    ARCHIVING = "archiving"
    ARCHIVED = "archived"
    RESTORING = "restoring"
    DELETING = "deleting"
    DELETED = "deleted"
    ERROR = "error"
    #: A state that this version of the package does not know.
    OTHER = "other"

    def __str__(self) -> str:
        return self.value

    @classmethod
    def _missing_(cls, value: object) -> "State":
        return cls.OTHER

    @property
    def passing(self) -> bool:
        """Whether the desk will leave this state by itself."""
        return self in _PASSING


_PASSING = {
    State.CREATING, State.STOPPING, State.STARTING, State.RESETTING,
    State.ARCHIVING, State.RESTORING, State.DELETING,
}  # fmt: skip


# ── desks ────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Point:
    x: int
    y: int


@dataclass(frozen=True)
class Size:
    width: int
    height: int


@dataclass(frozen=True)
class Rect:
    x: int
    y: int
    width: int
    height: int

    @property
    def center(self) -> Point:
        return Point(self.x + self.width // 2, self.y + self.height // 2)


@dataclass(frozen=True)
class Resources:
    """What a desk may use. In a request, what is left out is as the template or the fleet has it; an answer has all of it."""

    cpus: float | None = None
    memory_mib: int | None = None
    disk_mib: int | None = None


@dataclass(frozen=True)
class Policy:
    """When a desk is stopped, archived and deleted by itself, in seconds. Zero means never. In a request, what is left out is as the
    fleet has it; an answer has all of it."""

    auto_stop_s: int | None = None
    auto_archive_s: int | None = None
    auto_delete_s: int | None = None
    ttl_s: int | None = None
    end_stops: bool | None = None


@dataclass(frozen=True)
class DeskInfo:
    """A desk as the fleet knew it when it answered."""

    id: str
    state: State
    name: str | None = None
    project: str = "default"
    template: str = ""
    snapshot: str | None = None
    provider: str = ""
    reason: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    env: list[str] = field(default_factory=list)
    """The names of its variables; their values are not told."""
    resources: Resources = field(default_factory=Resources)
    policy: Policy = field(default_factory=Policy)
    screen: Size | None = None
    created_at: str = ""
    changed_at: str = ""
    expires_at: str | None = None
    idle_s: int | None = None
    busy: str | None = None
    cost: float = 0.0
    stage: str | None = None


@dataclass(frozen=True)
class Event:
    """A change of a desk or of the fleet."""

    number: int
    at: str = ""
    desk: str | None = None
    project: str | None = None
    kind: str = ""
    state: State | None = None
    reason: str = ""
    by: str = ""


@dataclass(frozen=True)
class Snapshot:
    """A saved desk that any number of desks can start from."""

    id: str
    name: str | None = None
    project: str = "default"
    desk: str = ""
    template: str = ""
    provider: str = ""
    memory: bool = False
    size_bytes: int = 0
    created_at: str = ""
    state: str = ""
    reason: str = ""


@dataclass(frozen=True)
class Usage:
    cpu_s: float = 0.0
    memory_bytes: int = 0
    disk_bytes: int = 0
    processes: int = 0


# ── the fleet ────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Template:
    name: str
    description: str = ""
    built: bool = False
    digest: str | None = None
    size_bytes: int | None = None


@dataclass(frozen=True)
class Pool:
    """Desks kept ready for a template."""

    template: str
    min: int
    max: int
    provider: str | None = None
    resources: Resources = field(default_factory=Resources)
    target: int = 0
    ready: int = 0
    filling: int = 0
    claims: int = 0
    misses: int = 0


@dataclass(frozen=True)
class Scope:
    """What a key may do: `admin`, or everything of one project, or one desk."""

    kind: str = "admin"
    project: str | None = None
    desk: str | None = None


@dataclass(frozen=True)
class Key:
    id: str
    name: str
    scope: Scope = field(default_factory=Scope)
    created_at: str = ""
    expires_at: str | None = None
    revoked_at: str | None = None
    last_used_at: str | None = None
    max_desks: int | None = None


@dataclass(frozen=True)
class MadeKey:
    """A key and its secret, which is shown once."""

    key: Key
    secret: str

    def __repr__(self) -> str:
        return f"MadeKey(key={self.key!r}, secret='…')"


@dataclass(frozen=True)
class Costs:
    currency: str = "USD"
    total: float = 0.0
    today: float = 0.0
    by_project: dict[str, float] = field(default_factory=dict)
    by_day: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Budget:
    project: str
    per_day: float | None = None
    total: float | None = None
    alert_at: float = 0.8
    webhook: str | None = None


@dataclass(frozen=True)
class Capabilities:
    reset: bool = False
    snapshot: bool = False
    live_fork: bool = False
    live_fork_reason: str = ""
    archive: bool = False
    network: bool = False
    cpu_limit: bool = False
    memory_limit: bool = False
    disk_limit: bool = False
    templates: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class ProviderInfo:
    name: str
    ready: bool = False
    reason: str = ""
    capabilities: Capabilities = field(default_factory=Capabilities)


@dataclass(frozen=True)
class FleetInfo:
    version: str = ""
    desks: dict[str, int] = field(default_factory=dict)
    max_desks: int = 0
    cpus: float = 0.0
    cpus_promised: float = 0.0
    memory_mib: int = 0
    memory_promised_mib: int = 0
    providers: list[ProviderInfo] = field(default_factory=list)
    default_policy: Policy = field(default_factory=Policy)


# ── inside a desk ────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class RunResult:
    """What a program left behind."""

    stdout: str
    stderr: str
    exit_code: int | None = None
    signal: str | None = None
    timed_out: bool = False
    truncated: bool = False
    duration_ms: int = 0

    @property
    def ok(self) -> bool:
        return self.exit_code == 0 and not self.timed_out


@dataclass(frozen=True)
class Exit:
    exit_code: int | None = None
    signal: str | None = None
    timed_out: bool = False


@dataclass(frozen=True)
class ProcessInfo:
    """A program that was started in the background."""

    id: int
    pid: int
    argv: list[str] = field(default_factory=list)
    running: bool = False
    started_ms: int = 0
    ended_ms: int | None = None
    output_bytes: int = 0
    exit: Exit | None = None


@dataclass(frozen=True)
class Receipt:
    index: int
    done: bool
    ms: float = 0.0


@dataclass(frozen=True)
class Performed:
    """What became of a list of actions; all of them were done."""

    actions: list[Receipt] = field(default_factory=list)
    ms: float = 0.0
    #: Whether the screen became quiet in time, if that was asked for.
    settled: bool | None = None
    #: The picture, if one was asked for.
    screenshot: bytes | None = None


@dataclass(frozen=True)
class Window:
    id: int
    title: str = ""
    instance: str = ""
    class_: str = ""
    desktop: int = 0
    area: Rect | None = None
    active: bool = False
    minimized: bool = False
    maximized: bool = False
    fullscreen: bool = False
    above: bool = False
    pid: int | None = None


@dataclass(frozen=True)
class Lease:
    """Who drives a desk: `agent` or `person`."""

    driver: str = "agent"
    name: str | None = None
    viewer: str | None = None
    since: str = ""
    idle_limit_s: int = 0
    returns_in_s: int | None = None

    @property
    def is_person(self) -> bool:
        return self.driver == "person"


@dataclass(frozen=True)
class TraceInfo:
    """A trace. `ended` is missing while it is being recorded; one that is not `complete` broke off."""

    id: str
    name: str | None = None
    desk: str | None = None
    started: str = ""
    ended: str | None = None
    steps: int = 0
    bytes: int = 0
    width: int = 0
    height: int = 0
    complete: bool = False
    note: str | None = None


@dataclass(frozen=True)
class By:
    driver: str = "agent"
    name: str | None = None


@dataclass(frozen=True)
class TraceStep:
    """One step of a trace; `before` and `after` name pictures."""

    number: int
    at: str = ""
    offset_ms: int = 0
    took_ms: float = 0.0
    by: By = field(default_factory=By)
    entrance: str = ""
    actions: list[dict[str, Any]] = field(default_factory=list)
    result: str = "done"
    message: str | None = None
    before: str | None = None
    after: str | None = None
    tree: bool = False
    snapshot: str | None = None


@dataclass(frozen=True)
class ElementAction:
    name: str
    description: str = ""
    keys: str = ""


@dataclass(frozen=True)
class ElementValue:
    current: float | None = None
    minimum: float | None = None
    maximum: float | None = None
    step: float | None = None


@dataclass(frozen=True)
class Element:
    """One element of a program: a window, a button, a text, a cell, …"""

    id: str
    role: str
    name: str | None = None
    states: list[str] | None = None
    text: str | None = None
    area: Rect | None = None
    value: ElementValue | None = None
    actions: list[ElementAction] = field(default_factory=list)
    attributes: dict[str, str] = field(default_factory=dict)
    app: str | None = None
    window: str | None = None
    children: list["Element"] = field(default_factory=list)
    children_left_out: int | None = None

    def walk(self) -> typing.Iterator["Element"]:
        """This element and everything below it, in the order of the tree."""
        yield self
        for child in self.children:
            yield from child.walk()


@dataclass(frozen=True)
class Tree:
    """The programs of a desk with their elements."""

    apps: list[Element] = field(default_factory=list)
    #: False if a program did not answer in time and is missing or cut off.
    complete: bool = True

    def walk(self) -> typing.Iterator[Element]:
        for app in self.apps:
            yield from app.walk()


@dataclass(frozen=True)
class FileInfo:
    path: str
    name: str = ""
    kind: str = "file"
    size: int = 0
    mode: str = ""
    user: int = 0
    group: int = 0
    modified_ms: int = 0
    target: str | None = None


# ── from and to JSON ─────────────────────────────────────────────────────────


def read(kind: type[T], data: Any) -> T:
    """A dataclass out of parsed JSON."""
    return typing.cast(T, _value(kind, data))


def write(value: Any) -> Any:
    """What the JSON encoder takes, out of a dataclass; names with a trailing underscore lose it."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name.rstrip("_"): write(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {k: write(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [write(v) for v in value]
    return value


_UNIONS = (Union, types.UnionType)
_hints: dict[type, dict[str, Any]] = {}


def _value(kind: Any, data: Any) -> Any:
    origin = typing.get_origin(kind)
    if origin in _UNIONS:
        inner = [a for a in typing.get_args(kind) if a is not type(None)]
        return None if data is None else _value(inner[0], data)
    if origin is list:
        return [_value(typing.get_args(kind)[0], item) for item in data or []]
    if origin is dict:
        return {k: _value(typing.get_args(kind)[1], v) for k, v in (data or {}).items()}
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        if kind not in _hints:
            _hints[kind] = typing.get_type_hints(kind, vars(sys.modules[kind.__module__]))
        hints = _hints[kind]
        known = {}
        for f in dataclasses.fields(kind):
            name = f.name.rstrip("_")
            if name in data and not (data[name] is None and _has_default(f)):
                known[f.name] = _value(hints[f.name], data[name])
        return kind(**known)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(data)
    return data


def _has_default(f: "dataclasses.Field[Any]") -> bool:
    return f.default is not dataclasses.MISSING or f.default_factory is not dataclasses.MISSING
