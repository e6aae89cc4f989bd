"""A vendor that exists for a test: its API by its own description, sandboxes that are real desks, and an edge in front of them.

Every request is held to the description (path, method, parameters, body), and so is every answer; what does not fit is noted in `wrong`,
which a test looks at in the end. Faults are put in by `fail`: see `FAULTS`.
"""

from __future__ import annotations

import json
import os
import random
import re
import select
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import threading
import time
import urllib.parse
from pathlib import Path

import jsonschema
import referencing
import trustme
from ports import free_port

HERE = Path(__file__).resolve().parent
BINARY = os.environ.get("HOTDESK_BIN") or str(HERE.parents[1] / "target/release/hotdesk")
#: Sandboxes have names below this one; it is this machine, whatever a name server says.
DOMAIN = "sandbox.localhost"
#: busy: 429 and how long to wait; broken: 500; slow: an answer after a second; dropped: the connection ends before anything is done;
#: lost: what was asked is done, and the connection ends before the answer.
FAULTS = ("busy", "broken", "slow", "dropped", "lost")


class Refusal(Exception):
    def __init__(self, status: int, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.headers = status, message, headers or {}


class Description:
    """An OpenAPI 3.0 description, as far as requests and answers of JSON go."""

    def __init__(self, *files: str, more: dict | None = None) -> None:
        self.paths: list[tuple[re.Pattern, str, dict, dict]] = []
        for file in files:
            document = json.loads((HERE / "specs" / file).read_text())
            if more and file == files[0]:
                document["paths"].update(more)
            for path, operations in document["paths"].items():
                pattern = re.compile("^" + re.sub(r"\\\{[^}]+\\\}", "([^/]+)", re.escape(path)) + "$")
                self.paths.append((pattern, path, operations, document))
        # The most exact one first: `/snapshots/by-name` before `/snapshots/{id}`.
        self.paths.sort(key=lambda entry: entry[1].count("{"))

    def find(self, method: str, path: str):
        known = []
        for pattern, template, operations, document in self.paths:
            if found := pattern.match(path):
                if method.lower() in operations:
                    names = re.findall(r"\{([^}]+)\}", template)
                    values = dict(zip(names, (urllib.parse.unquote(v) for v in found.groups())))
                    return template, operations, operations[method.lower()], values, document
                known.append(template)
        raise ValueError(f"{method} {path} is not in the description" + (f" (its path is: {known})" if known else ""))

    def check_request(self, method: str, path: str, query: dict[str, str], body: bytes, kind: str):
        template, operations, operation, values, document = self.find(method, path)
        parameters = [resolved(p, document) for p in operations.get("parameters", []) + operation.get("parameters", [])]
        known = {p["name"]: p for p in parameters if p["in"] == "query"}
        for name, text in query.items():
            if name not in known:
                raise ValueError(f"{method} {template} has no parameter {name}")
            check(of_text(text, known[name], document), known[name]["schema"], document, f"parameter {name}")
        for parameter in parameters:
            if parameter["in"] == "query" and parameter.get("required") and parameter["name"] not in query:
                raise ValueError(f"{method} {template} lacks the parameter {parameter['name']}")
            if parameter["in"] == "path":
                value = of_text(values[parameter["name"]], parameter, document)
                check(value, parameter["schema"], document, f"parameter {parameter['name']}")
        wanted = resolved(operation.get("requestBody", {}), document)
        content = wanted.get("content", {})
        if "application/json" in content and body:
            if not kind.startswith("application/json"):
                raise ValueError(f"{method} {template} was sent a body of {kind or 'no kind'}")
            value = json.loads(body)
            schema = content["application/json"]["schema"]
            check(value, schema, document, "body")
            known_only(value, schema, document, "body")
        elif body and not any(kind.startswith(k) for k in content):
            raise ValueError(f"{method} {template} takes no body of {kind or 'no kind'}")
        elif wanted.get("required") and not body:
            raise ValueError(f"{method} {template} lacks its body")
        return template, operation, values, document

    def check_answer(self, operation: dict, document: dict, status: int, value) -> None:
        answer = operation["responses"].get(str(status))
        if answer is None:
            if status < 400:
                raise ValueError(f"{operation.get('summary')} is not answered with {status}")
            return
        content = resolved(answer, document).get("content", {}).get("application/json")
        if content and status < 400:
            check(value, content["schema"], document, "answer")


def resolved(value: dict, document: dict) -> dict:
    while "$ref" in value:
        place = document
        for part in value["$ref"].removeprefix("#/").split("/"):
            place = place[part]
        value = place
    return value


def of_text(text: str, parameter: dict, document: dict):
    schema = resolved(parameter["schema"], document)
    if schema.get("type") in ("number", "integer"):
        return json.loads(text)
    if schema.get("type") == "boolean":
        return {"true": True, "false": False}.get(text, text)
    if schema.get("type") == "array":
        return text.split(",")
    return text


def as_json_schema(value):
    """OpenAPI 3.0 says `nullable`, JSON Schema says null."""
    if isinstance(value, list):
        return [as_json_schema(v) for v in value]
    if not isinstance(value, dict):
        return value
    made = {k: as_json_schema(v) for k, v in value.items() if k not in ("nullable", "example", "discriminator")}
    if "$ref" in made:
        made["$ref"] = "urn:document" + made["$ref"] if made["$ref"].startswith("#") else made["$ref"]
    return {"anyOf": [made, {"type": "null"}]} if value.get("nullable") is True else made


_REGISTRIES: dict[int, referencing.Registry] = {}


def check(value, schema: dict, document: dict, what: str) -> None:
    if id(document) not in _REGISTRIES:
        resource = referencing.Resource(contents=as_json_schema(document), specification=referencing.jsonschema.DRAFT202012)
        _REGISTRIES[id(document)] = referencing.Registry().with_resource("urn:document", resource)
    validator = jsonschema.Draft202012Validator(as_json_schema(schema), registry=_REGISTRIES[id(document)])
    for error in validator.iter_errors(value):
        raise ValueError(f"{what}: {error.json_path} {error.message[:300]}")


def known_only(value, schema: dict, document: dict, what: str) -> None:
    """A property that the description does not know is a mistake, though JSON Schema would let it pass."""
    schema = resolved(schema, document)
    for part in schema.get("allOf", []):
        known_only(value, part, document, what)
    if isinstance(value, dict) and "properties" in schema and not schema.get("additionalProperties"):
        for name, inner in value.items():
            if name not in schema["properties"]:
                raise ValueError(f"{what} has {name}, which is not in the description")
            known_only(inner, schema["properties"][name], document, f"{what}.{name}")
    elif isinstance(value, list) and "items" in schema:
        for inner in value:
            known_only(inner, schema["items"], document, what)


class Desk:
    """What a sandbox is here: a directory that is its disk, and processes."""

    def __init__(self) -> None:
        self.folder = tempfile.mkdtemp(prefix="hotdesk-clouds-")
        self.home = os.path.join(self.folder, "home")
        os.makedirs(self.home)
        self.port = free_port()
        self.process: subprocess.Popen | None = None

    def run(self, command: list[str], env: dict[str, str]) -> None:
        # Desks end up on one machine here, so each listens on a port of its own instead of the image's.
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("HOTDESK_", "DISPLAY", "E2B_", "DAYTONA_"))}
        self.process = subprocess.Popen(
            command, env=clean | {"HOME": self.home} | env, cwd=self.home, stdin=subprocess.DEVNULL,
            stdout=open(os.path.join(self.folder, "log"), "ab"), stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip

    def log(self) -> str:
        try:
            return Path(self.folder, "log").read_text(errors="replace")
        except OSError:
            return ""

    def signal(self, number: int) -> None:
        for group in self.groups():
            try:
                os.killpg(group, number)
            except ProcessLookupError:
                pass

    def groups(self) -> set[int]:
        """Process groups of this sandbox: programs of a desk have sessions of their own, and all have its directory in their environment."""
        found = set()
        wanted = f"HOME={self.home}".encode()
        for entry in os.listdir("/proc"):
            if entry.isdigit():
                try:
                    if wanted in Path("/proc", entry, "environ").read_bytes().split(b"\0"):
                        found.add(os.getpgid(int(entry)))
                except OSError:
                    pass
        return found

    def stop(self) -> None:
        if self.process is None:
            return
        process, self.process = self.process, None
        # Asked first, so that displays are given back.
        try:
            os.killpg(process.pid, signal.SIGTERM)
            os.killpg(process.pid, signal.SIGCONT)
        except ProcessLookupError:
            pass
        end = time.monotonic() + 5
        while self.groups() and time.monotonic() < end:
            time.sleep(0.05)
            process.poll()
        self.signal(signal.SIGKILL)
        process.wait()

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


class Vendor:
    """The parts that all vendors have. A subclass has `handlers`: (method, path of the description) → function(values, query, body)."""

    key_header = "authorization"
    key = "secret-key-of-the-vendor"

    def __init__(self, description: Description) -> None:
        self.description = description
        self.lock = threading.RLock()
        self.wrong: list[str] = []
        self.calls: list[str] = []
        self.faults: list[tuple[str, str, int]] = []
        self.chaos: tuple[random.Random, float] | None = None
        self.key_is_good = True
        self.handlers: dict[tuple[str, str], object] = {}
        self.folder = tempfile.mkdtemp(prefix="hotdesk-vendor-")
        authority = trustme.CA()
        self.ca = os.path.join(self.folder, "ca.pem")
        authority.cert_pem.write_to_path(self.ca)
        self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("localhost", "127.0.0.1", f"*.{DOMAIN}").configure_cert(self.tls)
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=200)
        self.port = self.listener.getsockname()[1]
        self.url = f"https://localhost:{self.port}"
        threading.Thread(target=self.accept, daemon=True).start()

    # ── what tests say ──

    def fail(self, call: str, fault: str, times: int = 1) -> None:
        """The next `times` requests whose `METHOD PATH` begins so get a fault."""
        assert fault in FAULTS
        with self.lock:
            self.faults.append((call, fault, times))

    def close(self) -> None:
        self.listener.close()
        self.end()
        shutil.rmtree(self.folder, ignore_errors=True)

    def end(self) -> None:
        raise NotImplementedError

    # ── the server ──

    def accept(self) -> None:
        while True:
            try:
                plain, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.connection, args=(plain,), daemon=True).start()

    def connection(self, plain: socket.socket) -> None:
        try:
            plain.settimeout(300)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self.tls.wrap_socket(plain, server_side=True) as stream:
                rest = b""
                while (request := read_head(stream, rest)) is not None:
                    line, headers, rest = request
                    host = headers.get("host", "").split(":")[0]
                    if host.endswith("." + DOMAIN):
                        self.edge(stream, host.removesuffix("." + DOMAIN), line, headers, rest)
                        return
                    body, rest = read_body(stream, headers, rest)
                    if not self.one(stream, line, headers, body):
                        return
        except (OSError, ssl.SSLError, ValueError):
            pass

    def one(self, stream, line: str, headers: dict[str, str], body: bytes) -> bool:
        method, target, _ = line.split(" ", 2)
        path, _, text = target.partition("?")
        query = dict(urllib.parse.parse_qsl(text, keep_blank_values=True))
        fault = self.fault(f"{method} {path}")
        if fault == "dropped":
            return False
        if fault == "busy":
            return answer(stream, 429, {"message": "too many requests, slow down", "code": 429}, {"Retry-After": "1"})
        if fault == "broken":
            return answer(stream, 500, {"message": "something broke", "code": 500})
        if fault == "slow":
            time.sleep(1)
        more: dict[str, str] = {}
        try:
            status, value, more = self.handle(method, path, query, headers, body)
        except Refusal as refusal:
            status, value, more = refusal.status, {"message": refusal.message, "code": refusal.status}, refusal.headers
        if fault == "lost":
            return False
        return answer(stream, status, value, more)

    def fault(self, call: str) -> str | None:
        with self.lock:
            self.calls.append(call)
            for at, (prefix, fault, times) in enumerate(self.faults):
                if call.startswith(prefix):
                    self.faults[at:at + 1] = [(prefix, fault, times - 1)] if times > 1 else []
                    return fault
            if self.chaos and self.chaos[0].random() < self.chaos[1]:
                return self.chaos[0].choice(FAULTS)
        return None

    def handle(self, method: str, path: str, query: dict, headers: dict, body: bytes):
        if not self.key_is_good or headers.get(self.key_header, "").removeprefix("Bearer ") != self.key:
            raise Refusal(401, "Invalid credentials")
        try:
            found = self.description.check_request(method, path, query, body, headers.get("content-type", ""))
        except ValueError as e:
            self.wrong.append(str(e))
            raise Refusal(400, f"not as described: {e}") from None
        template, operation, values, document = found
        value = json.loads(body) if body and headers.get("content-type", "").startswith("application/json") else None
        with self.lock:
            made = self.handlers[method, template](values, query, value, headers)
        status, value, more = made if isinstance(made, tuple) else (200, made, {})
        try:
            self.description.check_answer(operation, document, status, value)
        except ValueError as e:
            self.wrong.append(f"the test's own answer to {method} {template}: {e}")
        return status, value, more

    # ── the edge: HTTP and WebSockets to a sandbox's port ──

    def edge(self, stream, name: str, line: str, headers: dict[str, str], rest: bytes) -> None:
        port, _, sandbox = name.partition("-")
        try:
            to, headers = self.admit(sandbox, int(port), headers)
        except Refusal as refusal:
            answer(stream, refusal.status, {"code": refusal.status, "message": refusal.message}, refusal.headers | {"Connection": "close"})
            return
        if callable(to):
            body, _ = read_body(stream, headers, rest)
            status, value = to(line, headers, body)
            answer(stream, status, value, {"Connection": "close"})
            return
        try:
            desk = socket.create_connection(("127.0.0.1", to), 5)
        except OSError:
            answer(stream, 502, {"code": 502, "message": "The sandbox is running but port is not open"}, {"Connection": "close"})
            return
        # One request for each connection, unless it becomes another protocol.
        if "upgrade" not in headers:
            headers["connection"] = "close"
        desk.settimeout(300)
        head = line + "\r\n" + "".join(f"{k}: {v}\r\n" for k, v in headers.items()) + "\r\n"
        with desk:
            desk.sendall(head.encode("latin-1") + rest)
            splice(stream, desk)

    def admit(self, sandbox: str, port: int, headers: dict[str, str]):
        """The port of this machine that a port of a sandbox is, and the headers that go on; or a refusal."""
        raise NotImplementedError


def read_head(stream, data: bytes):
    while b"\r\n\r\n" not in data:
        more = stream.recv(65536)
        if not more:
            return None
        data += more
    head, rest = data.split(b"\r\n\r\n", 1)
    line, *fields = head.decode("latin-1").split("\r\n")
    headers = {}
    for field in fields:
        name, _, value = field.partition(":")
        headers[name.strip().lower()] = value.strip()
    return line, headers, rest


def read_body(stream, headers: dict[str, str], data: bytes):
    length = int(headers.get("content-length", 0))
    while len(data) < length:
        more = stream.recv(65536)
        if not more:
            raise ValueError("the request broke off")
        data += more
    return data[:length], data[length:]


def answer(stream, status: int, value, headers: dict[str, str] | None = None) -> bool:
    body = b"" if value is None or status == 204 else json.dumps(value).encode()
    kind = {} if not body else {"Content-Type": "application/json"}
    lines = {**kind, "Content-Length": str(len(body)), **(headers or {})}
    head = f"HTTP/1.1 {status} X\r\n" + "".join(f"{k}: {v}\r\n" for k, v in lines.items()) + "\r\n"
    stream.sendall(head.encode() + body)
    return True


def splice(stream, desk) -> None:
    """Bytes both ways, until the desk is done. In one thread: a TLS connection is not for two."""
    both = [stream, desk]
    try:
        while True:
            ready = [stream] if stream in both and stream.pending() else select.select(both, [], [], 300)[0]
            if not ready:
                return
            if stream in ready:
                if data := stream.recv(65536):
                    desk.sendall(data)
                else:
                    both.remove(stream)
                    desk.shutdown(socket.SHUT_WR)
            if desk in ready:
                if data := desk.recv(65536):
                    stream.sendall(data)
                else:
                    return
    except (OSError, ValueError):
        pass


def now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S.", time.gmtime()) + f"{time.time_ns() // 1_000_000 % 1000:03d}Z"
