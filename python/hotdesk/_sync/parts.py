# Made by make_sync.py from hotdesk/_async/parts.py; change that one.
"""Parts of a desk: files, windows, clipboard, programs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import IO, Any, Iterator, List, Mapping, Sequence

from .. import _requests, models
from .._requests import ANSWER_S, CHUNK, Request, get, given, part, query
from .http import Http


class Part:
    def __init__(self, http: Http, desk: str) -> None:
        self._http = http
        self._base = f"/v1/desks/{part(desk)}"


class Files(Part):
    """Files of the desk. Paths may begin with `~`; relative ones begin at the desk's home."""

    def read(self, path: str) -> bytes:
        return (self._http.send(get(f"{self._base}/files/content", {"path": path}, answer_s=300.0))).content

    def read_text(self, path: str, encoding: str = "utf-8") -> str:
        return (self.read(path)).decode(encoding)

    def write(self, path: str, content: bytes | str, *, mode: str | None = None, make_parents: bool | None = True) -> int:
        """Writes a whole file and returns its size."""
        data = content.encode() if isinstance(content, str) else content
        return self._put(path, data, mode, make_parents, again=True)

    def upload(self, local: str | os.PathLike[str], path: str, *, mode: str | None = None, make_parents: bool | None = True) -> int:
        """A file of this machine, streamed."""
        with open(local, "rb") as file:
            return self._put(path, _pieces(file), mode, make_parents, again=False)

    def download(self, path: str, local: str | os.PathLike[str]) -> int:
        """To a file of this machine, streamed. The file is there as a whole or not at all."""
        target = Path(local)
        partial = target.with_name(f".{target.name}.{os.getpid()}.part")
        request = get(f"{self._base}/files/content", {"path": path}, answer_s=300.0)
        try:
            size = 0
            with self._http.stream(request) as response:
                with open(partial, "wb") as file:
                    for piece in response.iter_bytes(CHUNK):
                        size += file.write(piece)
            os.replace(partial, target)
            return size
        finally:
            partial.unlink(missing_ok=True)

    def list(self, path: str = "~", *, depth: int | None = None, hidden: bool | None = None) -> List[models.FileInfo]:
        answer = self._http.json(get(f"{self._base}/files", {"path": path, "depth": depth, "hidden": hidden}))
        return models.read(List[models.FileInfo], answer["entries"])

    def stat(self, path: str) -> models.FileInfo:
        return models.read(models.FileInfo, self._http.json(get(f"{self._base}/files/stat", {"path": path})))

    def mkdir(self, path: str, *, make_parents: bool | None = True, mode: str | None = None) -> models.FileInfo:
        body = given(path=path, make_parents=make_parents, mode=mode)
        return models.read(models.FileInfo, self._http.json(Request("POST", f"{self._base}/files/mkdir", json=body)))

    def move(self, source: str, target: str, *, overwrite: bool | None = None) -> models.FileInfo:
        body = {"from": source, "to": target} | given(overwrite=overwrite)
        return models.read(models.FileInfo, self._http.json(Request("POST", f"{self._base}/files/move", json=body)))

    def remove(self, path: str, *, recursive: bool | None = None) -> None:
        self._http.send(Request("DELETE", f"{self._base}/files", query({"path": path, "recursive": recursive})))

    def _put(self, path: str, content: Any, mode: str | None, make_parents: bool | None, *, again: bool) -> int:
        params = query({"path": path, "mode": mode, "make_parents": make_parents})
        headers = {"Content-Type": "application/octet-stream"}
        request = Request("PUT", f"{self._base}/files/content", params, headers=headers, again=again, answer_s=300.0)
        return int((self._http.send(request, content=content)).json()["size"])


class Windows(Part):
    """Windows of the desk."""

    def list(self) -> List[models.Window]:
        return models.read(List[models.Window], (self._http.json(get(f"{self._base}/windows")))["windows"])

    def wait(
        self,
        title: str | None = None,
        *,
        class_: str | None = None,
        gone: bool | None = None,
        strict: bool | None = None,
        limit_ms: int = 10_000,
    ) -> models.Window | None:
        """Waits for a window by a part of its title or class (or, with `gone`, for its end)."""
        body = given(title=title, gone=gone, strict=strict, limit_ms=limit_ms) | ({"class": class_} if class_ is not None else {})
        request = Request("POST", f"{self._base}/windows/wait", json=body, again=True, answer_s=ANSWER_S + limit_ms / 1000)
        window = (self._http.json(request)).get("window")
        return models.read(models.Window, window) if window else None

    def activate(self, window: models.Window | int) -> None:
        self.change(window, "activate")

    def close(self, window: models.Window | int) -> None:
        self.change(window, "close")

    def change(self, window: models.Window | int, change: str) -> None:
        """`activate`, `close`, `minimize`, `maximize`, … as the desk's API names them."""
        self._http.send(Request("POST", f"{self._base}/windows/{_window(window)}/{part(change)}"))

    def place(
        self,
        window: models.Window | int,
        *,
        x: int | None = None,
        y: int | None = None,
        width: int | None = None,
        height: int | None = None,
    ) -> None:
        body = given(x=x, y=y, width=width, height=height)
        self._http.send(Request("PUT", f"{self._base}/windows/{_window(window)}/area", json=body, again=True))


class Clipboard(Part):
    """The clipboard of the desk."""

    def read(self) -> str:
        return (self.read_bytes()).decode("utf-8", "replace")

    def read_bytes(self, type: str | None = None, *, selection: str | None = None) -> bytes:
        return (self._http.send(get(f"{self._base}/clipboard", {"type": type, "selection": selection}))).content

    def types(self) -> List[str]:
        types: List[str] = (self._http.json(get(f"{self._base}/clipboard/types")))["types"]
        return types

    def write(self, content: str | bytes, *, type: str = "text/plain", selection: str | None = None) -> None:
        data = content.encode() if isinstance(content, str) else content
        params = query({"type": None if type == "text/plain" else type, "selection": selection})
        headers = {"Content-Type": type if type.startswith("text/plain") else "application/octet-stream"}
        self._http.send(Request("PUT", f"{self._base}/clipboard", params, headers=headers, again=True), content=data)

    def clear(self) -> None:
        self._http.send(Request("DELETE", f"{self._base}/clipboard", again=True))


class Lease(Part):
    """Who drives the desk. While a person does, actions raise `PersonDrives`; pictures and lists still come."""

    def get(self) -> models.Lease:
        return models.read(models.Lease, self._http.json(get(f"{self._base}/lease")))

    def take(
        self,
        name: str | None = None,
        *,
        viewer: str | None = None,
        idle_s: int | None = None,
        force: bool | None = None,
    ) -> models.Lease:
        """A person takes over; without `viewer` the desk is kept free for whoever looks at it first."""
        body = given(name=name, viewer=viewer, idle_s=idle_s, force=force)
        return models.read(models.Lease, self._http.json(Request("PUT", f"{self._base}/lease", json=body, again=True)))

    def give(self) -> models.Lease:
        """Gives the desk back to the agent, whoever drives."""
        return models.read(models.Lease, self._http.json(Request("DELETE", f"{self._base}/lease", again=True)))


class Traces(Part):
    """Recordings of what is done on the desk."""

    def start(
        self,
        name: str | None = None,
        *,
        frames: str | None = None,
        tree: bool | None = None,
        mask: str | None = None,
        max_bytes: int | None = None,
    ) -> models.TraceInfo:
        """Begins to record. `frames` is `changed` or `none`, `mask` is `secrets`, `typed` or `nothing`."""
        body = given(name=name, frames=frames, tree=tree, mask=mask, max_bytes=max_bytes)
        return models.read(models.TraceInfo, self._http.json(Request("POST", f"{self._base}/trace", json=body)))

    def current(self) -> models.TraceInfo:
        """The trace that is being recorded; raises `NotFound` if none is."""
        return models.read(models.TraceInfo, self._http.json(get(f"{self._base}/trace")))

    def stop(self) -> models.TraceInfo:
        return models.read(models.TraceInfo, self._http.json(Request("DELETE", f"{self._base}/trace")))

    def list(self) -> List[models.TraceInfo]:
        """All traces, the newest first."""
        return models.read(List[models.TraceInfo], (self._http.json(get(f"{self._base}/traces")))["traces"])

    def get(self, trace: str) -> models.TraceInfo:
        return models.read(models.TraceInfo, self._http.json(get(f"{self._base}/traces/{part(trace)}")))

    def steps(self, trace: str, *, after: int = 0, limit: int | None = None) -> List[models.TraceStep]:
        answer = self._http.json(get(f"{self._base}/traces/{part(trace)}/steps", {"after": after, "limit": limit}))
        return models.read(List[models.TraceStep], answer["steps"])

    def frame(self, trace: str, name: str) -> bytes:
        """A picture as `before` and `after` of a step name it, as a PNG."""
        return (self._http.send(get(f"{self._base}/traces/{part(trace)}/frames/{part(name)}"))).content

    def download(self, trace: str, local: str | os.PathLike[str]) -> int:
        """The file of a trace, streamed to a file of this machine; returns its size."""
        size = 0
        with self._http.stream(get(f"{self._base}/traces/{part(trace)}/file", answer_s=300.0)) as response:
            with open(local, "wb") as file:
                for piece in response.iter_bytes(CHUNK):
                    size += file.write(piece)
        return size

    def remove(self, trace: str) -> None:
        self._http.send(Request("DELETE", f"{self._base}/traces/{part(trace)}"))


class Processes(Part):
    """Programs of the desk."""

    def run(
        self,
        command: str | Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str | None] | None = None,
        stdin: str | bytes | None = None,
        timeout: float = 60.0,
    ) -> models.RunResult:
        body = _requests.run(command, cwd=cwd, env=env, stdin=stdin, timeout=timeout)
        request = Request("POST", f"{self._base}/processes/run", json=body, answer_s=timeout + ANSWER_S)
        return models.read(models.RunResult, self._http.json(request))

    def start(
        self,
        command: str | Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str | None] | None = None,
    ) -> models.ProcessInfo:
        """Starts a program in the background."""
        body = _requests.command(command) | given(cwd=cwd, env=dict(env) if env else None)
        return models.read(models.ProcessInfo, self._http.json(Request("POST", f"{self._base}/processes", json=body)))

    def list(self) -> List[models.ProcessInfo]:
        return models.read(List[models.ProcessInfo], (self._http.json(get(f"{self._base}/processes")))["processes"])

    def get(self, process: models.ProcessInfo | int) -> models.ProcessInfo:
        return models.read(models.ProcessInfo, self._http.json(get(f"{self._base}/processes/{_process(process)}")))

    def output(self, process: models.ProcessInfo | int, *, follow: bool = True) -> Iterator[tuple[str, str]]:
        """What a program prints, as pairs of `stdout` or `stderr` and text; ends when the program does."""
        path = f"{self._base}/processes/{_process(process)}/output"
        parser = _requests.MessageParser()
        with self._http.stream(get(path, {"follow": follow}, answer_s=None)) as response:
            for line in response.iter_lines():
                message = parser.line(line)
                if message is not None and message.event in ("stdout", "stderr"):
                    yield message.event, json.loads(message.data)["data"]

    def end(self, process: models.ProcessInfo | int, *, grace_ms: int | None = None) -> models.ProcessInfo:
        """Ends a program and everything that it started."""
        request = Request("DELETE", f"{self._base}/processes/{_process(process)}", query({"grace_ms": grace_ms}))
        return models.read(models.ProcessInfo, self._http.json(request))


def _window(window: models.Window | int) -> int:
    return window.id if isinstance(window, models.Window) else window


def _process(process: models.ProcessInfo | int) -> int:
    return process.id if isinstance(process, models.ProcessInfo) else process


def _pieces(file: IO[bytes]) -> Iterator[bytes]:
    while piece := file.read(CHUNK):
        yield piece
