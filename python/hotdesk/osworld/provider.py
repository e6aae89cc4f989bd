"""OSWorld's two plug-in classes, `VMManager` and `Provider`, on a fleet.

OSWorld makes one of each per `DesktopEnv`. A "path to a VM" is any text to it: the manager makes one up that carries the size of the
screen, and the provider makes a desk for it when it is started. The path `desk:NAME` stands for a desk that exists; it is used and never
deleted.

`get_ip_address` answers `127.0.0.1:SERVER:CHROMIUM:VNC:VLC`, five ports of this machine that lead into the desk and stay the same for as
long as the environment lives.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import uuid
import weakref
from typing import Any
from urllib.parse import quote

from .. import Hotdesk
from .._sync.desk import Desk
from ..errors import HotdeskError, NotFound, SettingsError
from ..forward import Forwarder, Gateway, HttpForwarder
from ..models import Size, State
from .options import Options

logger = logging.getLogger("desktopenv.providers.hotdesk")

#: What OSWorld calls the state that `reset` goes back to; for us it is the desk's template or snapshot.
FIRST_STATE = "init_state"
CHROMIUM_PORT = 9222
VLC_PORT = 8080


class DockerVMManager:
    """Hands out paths. There is nothing to register: the fleet knows its desks."""

    checked_and_cleaned = False

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def get_vm_path(self, os_type: str = "Ubuntu", region: str | None = None, screen_size: tuple[int, int] = (1920, 1080), **_: Any) -> str:
        if os_type != "Ubuntu":
            raise SettingsError(f"desks run Linux: os_type {os_type!r} can't be had, 'Ubuntu' can")
        return f"hotdesk:{screen_size[0]}x{screen_size[1]}:{uuid.uuid4().hex[:12]}"

    def initialize_registry(self, *_: Any, **__: Any) -> None:
        pass

    def add_vm(self, vm_path: str, *_: Any, **__: Any) -> None:
        pass

    def delete_vm(self, vm_path: str, *_: Any, **__: Any) -> None:
        pass

    def occupy_vm(self, vm_path: str, pid: int, *_: Any, **__: Any) -> None:
        pass

    def list_free_vms(self, *_: Any, **__: Any) -> list[str]:
        return []

    def check_and_clean(self, *_: Any, **__: Any) -> None:
        pass


class DockerProvider:
    """Starts, resets and deletes the desk of one `DesktopEnv`."""

    def __init__(self, region: str | None = None, *, fleet: Hotdesk | None = None, options: Options | None = None) -> None:
        self.region = region
        self._given = fleet
        self._options = options or Options.from_environment()
        self._clients: dict[int, Hotdesk] = {}
        self._rooms: dict[str, Room] = {}
        self._lock = threading.RLock()
        self._process = os.getpid()
        _alive.add(self)

    # ── what OSWorld calls ──

    def start_emulator(self, path_to_vm: str, headless: bool = True, os_type: str = "Ubuntu", *_: Any, **__: Any) -> None:
        """Returns when the desk runs. One that runs already costs a single small request."""
        if os_type not in ("Ubuntu", "Linux"):
            raise SettingsError(f"desks run Linux: os_type {os_type!r} can't be had, 'Ubuntu' can")
        with self._lock:
            room = self._rooms.get(path_to_vm)
            if room is not None:
                try:
                    desk = room.desk.refresh()
                    if desk.state in (State.STOPPED, State.ARCHIVED, State.STOPPING, State.ARCHIVING):
                        desk.start(timeout=self._options.start_s)
                    if desk.state is State.RUNNING:
                        return
                    logger.warning("desk %s is %s (%s): another is made for it", desk.id, desk.state, desk.info.reason)
                except NotFound:
                    logger.warning("desk %s is gone: another is made for it", room.desk.id)
                self._leave(path_to_vm)
            self._rooms[path_to_vm] = self._enter(path_to_vm)

    def get_ip_address(self, path_to_vm: str, *_: Any, **__: Any) -> str:
        with self._lock:
            room = self._rooms.get(path_to_vm)
            if room is None:
                raise SettingsError(f"{path_to_vm} was not started")
            return room.address

    def revert_to_snapshot(self, path_to_vm: str, snapshot_name: str = FIRST_STATE, *_: Any, **__: Any) -> None:
        """The fleet's reset: the same desk, back at its template, in a fraction of a second. The ports stay."""
        with self._lock:
            room = self._rooms.get(path_to_vm)
            if room is None:
                self.start_emulator(path_to_vm)
                return
            if snapshot_name == FIRST_STATE:
                room.desk.reset(timeout=self._options.start_s)
                return
            snapshot = self._snapshot(snapshot_name)
            self._leave(path_to_vm)
            self._rooms[path_to_vm] = self._enter(path_to_vm, snapshot)

    def save_state(self, path_to_vm: str, snapshot_name: str, *_: Any, **__: Any) -> None:
        """A snapshot of the fleet by this name; `revert_to_snapshot` with the same name starts from it."""
        with self._lock:
            self._rooms[path_to_vm].desk.snapshot(snapshot_name)

    def stop_emulator(self, path_to_vm: str, region: str | None = None, *_: Any, **__: Any) -> None:
        """Deletes the desk. Never raises: OSWorld calls this while it handles another error."""
        with self._lock:
            try:
                self._leave(path_to_vm)
            except Exception as e:
                logger.warning("desk of %s was not deleted, the fleet will do it when it has been idle: %s", path_to_vm, e)

    # ── details ──

    @property
    def _fleet(self) -> Hotdesk:
        if self._given is not None:
            return self._given
        process = os.getpid()  # connections must not be shared with the process that we were forked from
        if process not in self._clients:
            self._clients = {process: Hotdesk()}
        return self._clients[process]

    def desk(self, path_to_vm: str) -> Desk:
        """The desk behind a path, for what OSWorld does not know: files, windows, forks."""
        return self._rooms[path_to_vm].desk

    def _enter(self, path: str, snapshot: str | None = None) -> "Room":
        if path.startswith("desk:"):
            desk = self._fleet.desks.get(path.removeprefix("desk:"))
            if desk.state is not State.RUNNING:
                desk.start(timeout=self._options.start_s)
            return Room(self._fleet, desk, ours=False)
        wishes = self._options
        desk = self._fleet.desks.create(
            None if snapshot else wishes.template,
            snapshot=snapshot,
            provider=wishes.provider,
            project=wishes.project,
            labels={"client": "osworld", **wishes.labels},
            resources=wishes.resources,
            policy=wishes.policy,
            screen=_screen(path),
            network=wishes.network,
            queue=wishes.queue_s,
            timeout=wishes.start_s,
        )
        logger.info("desk %s runs", desk.id)
        return Room(self._fleet, desk, ours=True)

    def _leave(self, path: str) -> None:
        room = self._rooms.pop(path, None)
        if room is not None and self._process == os.getpid():
            room.close()

    def _snapshot(self, name: str) -> str:
        for one in self._fleet.snapshots.list():
            if name in (one.name, one.id):
                return one.id
        raise SettingsError(f"the fleet has no snapshot {name!r}; the first state is {FIRST_STATE!r}")

    def _close(self) -> None:
        with self._lock:
            for path in list(self._rooms):
                self.stop_emulator(path)


class Room:
    """A desk and the five ports that lead into it."""

    def __init__(self, fleet: Hotdesk, desk: Desk, *, ours: bool) -> None:
        self.desk = desk
        self._ours = ours
        gateway = Gateway(fleet._http.settings, fleet.verify)
        name = quote(desk.id, safe="")
        self._forwarders: list[Forwarder] = [
            HttpForwarder(gateway, f"/osworld/{name}"),
            desk.port(CHROMIUM_PORT).forward(),
            # what noVNC calls `/websockify` is the desk's live view
            HttpForwarder(gateway, f"/v1/desks/{name}/view"),
            desk.port(VLC_PORT).forward(),
        ]

    @property
    def address(self) -> str:
        return ":".join(["127.0.0.1", *(str(forwarder.port) for forwarder in self._forwarders)])

    def close(self) -> None:
        for forwarder in self._forwarders:
            forwarder.close()
        if self._ours:
            try:
                self.desk.delete()
            except NotFound:
                pass


def _screen(path: str) -> Size | None:
    parts = path.split(":")
    if len(parts) == 3 and parts[0] == "hotdesk":
        width, _, height = parts[1].partition("x")
        return Size(int(width), int(height))
    return None


# ── desks of a run that ends without closing its environments ────────────────

_alive: "weakref.WeakSet[DockerProvider]" = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for provider in list(_alive):
        if provider._process == os.getpid():
            try:
                provider._close()
            except HotdeskError as e:
                logger.warning("%s", e)


def _register() -> None:
    """`isinstance` says what OSWorld expects."""
    try:
        from desktop_env.providers.base import Provider, VMManager  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        return
    Provider.register(DockerProvider)
    VMManager.register(DockerVMManager)


_register()
