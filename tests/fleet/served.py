"""A fleet of one's own: `hotdesk serve` with a new data directory, on a free port, and an end that leaves nothing behind."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))

import httpx  # noqa: E402
import leftovers  # noqa: E402
from ports import free_port  # noqa: E402

import hotdesk  # noqa: E402

BINARY = os.environ.get("HOTDESK_BIN") or str(ROOT / "target/release/hotdesk")
#: What the tests make desks from: small, so many fit on a small machine.
TEMPLATE = "bare"
#: A fleet says that it is ready within so many seconds, on a machine that has other things to do.
READY_S = 60
STOP_S = 60
#: The first build of a template fetches packages.
BUILD_S = 1800


_ANY = ssl.create_default_context()
_ANY.check_hostname = False
_ANY.verify_mode = ssl.CERT_NONE


class Serve:
    """One `hotdesk serve`. It can be killed and started again; the data directory stays until `close`."""

    def __init__(
        self,
        *,
        data: str | None = None,
        settings: str = "",
        flags: list[str] | None = None,
        environment: dict[str, str] | None = None,
        provider: str = "local",
        before: list[str] | None = None,
        socket: bool = False,
    ) -> None:
        """`before` is a command that runs the fleet, such as nsenter; with `socket` it listens on a Unix socket instead of a port."""
        if not os.access(BINARY, os.X_OK):
            raise SystemExit(f"there is no binary at {BINARY}: build it, or say where it is with HOTDESK_BIN")
        self.own_data = data is None
        self.data = data or tempfile.mkdtemp(prefix="hotdesk-fleet-")
        self.log = tempfile.NamedTemporaryFile("w+b", prefix="hotdesk-serve-", suffix=".log", delete=False)
        self.port = free_port()
        self.socket = os.path.join(self.data, "test.sock") if socket else None
        self.listen = f"unix:{self.socket}" if socket else f"127.0.0.1:{self.port}"
        self.url = self.listen if socket else f"http://{self.listen}"
        self.before = before or []
        self.provider = provider
        self.flags = flags or []
        self.environment = environment or {}
        self.process: subprocess.Popen[bytes] | None = None
        self._clients: list[hotdesk.Hotdesk] = []
        # Tests build what they need; what nobody waits for would only take the machine from those that do.
        if data is None or settings:
            Path(self.data, "hotdesk.toml").write_text((settings if "build_ahead" in settings else f"build_ahead = []\n{settings}"))

    # ── life ──

    def start(self, *, wait: bool = True) -> Serve:
        env = {k: v for k, v in os.environ.items() if not k.startswith("HOTDESK_") or k in ("HOTDESK_IMAGES", "HOTDESK_BIN")}
        env.update(self.environment)
        self.process = subprocess.Popen(
            [*self.before, BINARY, "serve", "--listen", self.listen, "--data", self.data, "--provider", self.provider, *self.flags],
            env=env, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, start_new_session=True,
        )  # fmt: skip
        if wait:
            self.wait_ready()
        return self

    def wait_ready(self, limit: float = READY_S) -> None:
        end = time.monotonic() + limit
        said = "no answer"
        while time.monotonic() < end:
            if self.process is None or self.process.poll() is not None:
                break
            try:
                answer = self.get("/ready", timeout=5)
                if answer.status_code == 200:
                    return
                said = answer.text
            except httpx.HTTPError as e:
                said = repr(e)
            time.sleep(0.05)
        ended = self.process.poll() if self.process else None
        raise AssertionError(f"the fleet is not ready (exit {ended}): {said}\n{self.tail()}")

    def kill(self) -> None:
        """`kill -9`: it gets no chance to tidy up."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def stop(self) -> int:
        """SIGTERM; desks keep running."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"the fleet did not stop within {STOP_S} s of SIGTERM\n{self.tail()}") from None
        self.process = None
        return code

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    # ── ways in ──

    @property
    def key(self) -> str:
        return Path(self.data, "admin.key").read_text().strip()

    @property
    def name(self) -> str:
        """The fleet's name, which everything that it makes carries."""
        return Path(self.data, "fleet-id").read_text().strip()

    def client(self, key: str | None = None) -> hotdesk.Hotdesk:
        one = hotdesk.Hotdesk(self.url, key or self.key)
        self._clients.append(one)
        return one

    def get(self, path: str, **more) -> httpx.Response:
        return self.request("GET", path, key=None, **more)

    def request(self, method: str, path: str, *, key: str | None = "", headers: dict[str, str] | None = None, timeout: float = 60, **more) -> httpx.Response:
        """A plain request; the admin's key unless another or None is said."""
        headers = dict(headers or {})
        if key is not None:
            headers["Authorization"] = f"Bearer {key or self.key}"
        # the certificate of a test's own fleet is looked at by the tests of TLS alone
        plain = httpx.Client(transport=httpx.HTTPTransport(verify=_ANY, uds=self.socket), timeout=timeout)
        with plain:
            return plain.request(method, ("http://localhost" if self.socket else self.url) + path, headers=headers, **more)

    def hotdesk(self, *arguments: str, input: str | None = None, check: bool = True, environment: dict[str, str] | None = None, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        """The command line as a user of this fleet types it."""
        env = {k: v for k, v in os.environ.items() if not k.startswith("HOTDESK_") or k == "HOTDESK_IMAGES"}
        env |= {"HOTDESK_URL": self.url, "HOTDESK_KEY": self.key, "NO_COLOR": "1", **(environment or {})}
        done = subprocess.run([BINARY, *arguments], input=input, capture_output=True, text=True, env=env, timeout=timeout)
        if check:
            assert done.returncode == 0, f"hotdesk {' '.join(arguments)} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def tail(self, size: int = 6000) -> str:
        with open(self.log.name, "rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - size))
            return file.read().decode("utf-8", "replace")

    # ── the end ──

    def close(self, *, check: bool = True) -> None:
        """Deletes everything, stops, and looks whether anything is left, by itself and not by asking the fleet."""
        found: list[str] = []
        try:
            if not self.running:
                self.start()
            self.empty()
            self.stop()
            if check:
                found = leftovers.settled(self.data, self.name)
        finally:
            for client in self._clients:
                client.close()
            if self.running:
                self.kill()
            if found:
                self.remove()
                keep = f"log {self.log.name}"
                raise AssertionError("left behind:\n  " + "\n  ".join(found) + f"\n{keep}\n{self.tail(2000)}")
            os.unlink(self.log.name)
            leftovers.forget(self.name)
            if self.own_data:
                shutil.rmtree(self.data, ignore_errors=True)

    def remove(self) -> None:
        """By force, after a failure."""
        if self.running:
            self.kill()
        if os.path.exists(os.path.join(self.data, "fleet-id")):
            leftovers.remove(self.data, self.name)
        if self.own_data:
            shutil.rmtree(self.data, ignore_errors=True)

    def empty(self) -> None:
        with hotdesk.Hotdesk(self.url, self.key) as fleet:
            for pool in fleet.pools.list():
                fleet.pools.delete(pool.template)
            end = time.monotonic() + 120
            # Several rounds, because desks of a pool that was just filling may still appear; they are listed by their project only.
            while desks := [d for d in [*fleet.desks.list(), *fleet.desks.list(project="pool")] if d.state is not hotdesk.State.DELETED]:
                for desk in desks:
                    try:
                        desk.delete(timeout=60)
                    except (hotdesk.Conflict, hotdesk.NotFound, hotdesk.Timeout):
                        pass
                if time.monotonic() > end:
                    raise AssertionError(f"these desks can't be deleted: {[(d.id, d.state, d.info.reason) for d in desks]}\n{self.tail()}")
            for snapshot in fleet.snapshots.list():
                fleet.snapshots.delete(snapshot.id)


@contextmanager
def fleet(**more):
    """A fleet for the length of a block. A failure shows the end of its log."""
    one = Serve(**more)
    try:
        one.start()
        yield one
    except BaseException:
        print(f"\nthe fleet's log ends with:\n{one.tail()}", file=sys.stderr)
        try:
            one.close(check=False)
        except BaseException as e:
            print(f"and it could not tidy up: {e}", file=sys.stderr)
        one.remove()
        raise
    one.close()


def ensure_built(*templates: str) -> None:
    """Builds templates unless they are; one process at a time, the others wait."""
    lock_path = Path(tempfile.gettempdir()) / f"hotdesk-test-build-{os.getuid()}.lock"
    with open(lock_path, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with fleet() as one, one.client() as client:
            built = {t.name for t in client.templates.list() if t.built}
            for name in templates:
                if name not in built:
                    print(f"building template {name}; the first time takes minutes", file=sys.stderr, flush=True)
                    client.templates.build(name, timeout=BUILD_S)
