"""E2B, for a test: its API by its description, sandboxes that run the template's start command, its daemon for files, and an edge."""

from __future__ import annotations

import os
import re
import shutil
import signal
import threading
import time
import urllib.parse
import uuid

import vendor
from vendor import BINARY, DOMAIN, Desk, Description, Refusal, Vendor, now

PORT = 5000
ENVD = 49983


def additions() -> dict:
    """What E2B's own client has called since 2.51 and the description does not have: with the schemas of the older calls."""
    import json

    old = json.loads((vendor.HERE / "specs/e2b.json").read_text())["paths"]
    return {
        "/v2/sandboxes": {**old["/v2/sandboxes"], "post": old["/sandboxes"]["post"]},
        "/v2/sandboxes/{sandboxID}/connect": old["/sandboxes/{sandboxID}/connect"],
    }


class Sandbox:
    def __init__(self, body: dict, template: dict, tools: str) -> None:
        self.id = "i" + uuid.uuid4().hex[:20]
        self.body, self.template = body, template
        self.state = "running"
        self.envd_token, self.traffic_token = uuid.uuid4().hex, uuid.uuid4().hex
        self.started = now()
        self.end_at = 0.0
        self.desk = Desk()
        if template.get("files"):
            shutil.copytree(template["files"], self.desk.home, dirs_exist_ok=True, symlinks=True, ignore_dangling_symlinks=True)
        # In a template it runs since the build; the name `hotdesk` leads to the binary, on a port of this sandbox.
        start = template["start"].replace("/home/user", self.desk.home)
        env = {"PATH": f"{tools}:{os.environ['PATH']}", "SANDBOX_PORT": str(self.desk.port)}
        self.desk.run(["sh", "-c", start], env)

    def extend(self, seconds: int, only: bool = False) -> None:
        end = time.time() + seconds
        self.end_at = max(self.end_at, end) if only else end


class E2b(Vendor):
    key_header = "x-api-key"

    def __init__(self, old: bool = False) -> None:
        """`old`: a server that does not know the second version of create and connect, nor idempotency."""
        super().__init__(Description("e2b.json", more=None if old else additions()))
        self.files = Description("e2b-envd.json")
        self.old = old
        self.sandboxes: dict[str, Sandbox] = {}
        self.templates: dict[str, dict] = {}
        self.remembered: dict[str, dict] = {}
        self.ends: list[threading.Thread] = []
        self.quota = 100
        self.made = 0
        self.build_error: str | None = None
        self.tools = os.path.join(self.folder, "bin")
        os.makedirs(self.tools)
        with open(os.path.join(self.tools, "hotdesk"), "w") as tool:
            tool.write(
                '#!/bin/sh\n[ "$*" = "desk --config /etc/hotdesk/desk.toml --listen 0.0.0.0:5000" ] || { echo "not as in the image: $*"; exit 1; }\n'
                f'exec {BINARY} desk --listen "127.0.0.1:$SANDBOX_PORT" --display auto\n'
            )
        os.chmod(os.path.join(self.tools, "hotdesk"), 0o755)
        at = "/sandboxes/{sandboxID}"
        self.handlers = {
            ("POST", "/sandboxes"): self.create,
            ("POST", "/v2/sandboxes"): self.create_once,
            ("GET", "/v2/sandboxes"): self.list,
            ("DELETE", at): self.kill,
            ("POST", at + "/pause"): self.pause,
            ("POST", at + "/connect"): self.connect,
            ("POST", "/v2" + at + "/connect"): self.connect,
            ("POST", at + "/timeout"): self.timeout,
            ("GET", at + "/metrics"): self.metrics,
            ("GET", "/v2" + at + "/logs"): self.logs,
            ("POST", at + "/snapshots"): self.save,
            ("GET", "/snapshots"): self.snapshots,
            ("POST", "/v3/templates"): self.new_build,
            ("POST", "/v2/templates/{templateID}/builds/{buildID}"): self.start_build,
            ("GET", "/templates/{templateID}/builds/{buildID}/status"): self.build_status,
            ("GET", "/templates/aliases/{alias}"): self.alias,
            ("GET", "/templates/{templateID}"): self.builds,
            ("DELETE", "/templates/{templateID}"): self.delete_template,
        }
        threading.Thread(target=self.clock, daemon=True).start()

    def handle(self, method, path, query, headers, body):
        if self.old and (method, path) == ("POST", "/v2/sandboxes") or self.old and re.match("/v2/sandboxes/[^/]+/connect", path):
            raise Refusal(405 if path == "/v2/sandboxes" else 404, "no matching operation was found")
        return super().handle(method, path, query, headers, body)

    def clock(self) -> None:
        while self.listener.fileno() >= 0:
            time.sleep(0.1)
            with self.lock:
                for sandbox in list(self.sandboxes.values()):
                    if sandbox.state == "running" and sandbox.end_at < time.time():
                        if sandbox.body.get("autoPause"):
                            self.freeze(sandbox)
                        else:
                            self.remove(sandbox)

    # ── sandboxes ──

    def find(self, values) -> Sandbox:
        sandbox = self.sandboxes.get(values["sandboxID"])
        if sandbox is None:
            raise Refusal(404, f"sandbox {values['sandboxID']} not found")
        return sandbox

    def access(self, sandbox: Sandbox) -> dict:
        return {
            "templateID": sandbox.template["id"], "sandboxID": sandbox.id, "clientID": "c", "envdVersion": "0.6.13",
            "envdAccessToken": sandbox.envd_token, "trafficAccessToken": sandbox.traffic_token, "domain": f"{DOMAIN}:{self.port}",
        }  # fmt: skip

    def create(self, values, query, body, headers):
        template = self.template(body["templateID"])
        if template is None or not template["start"]:
            raise Refusal(404, f"template '{body['templateID']}' not found")
        if body.get("timeout", 15) <= 0:
            raise Refusal(400, "timeout must be positive")
        if sum(s.state == "running" for s in self.sandboxes.values()) >= self.quota:
            raise Refusal(429, f"you have reached the maximum number of concurrent E2B sandboxes ({self.quota})")
        if not body.get("secure") or body.get("network", {}).get("allowPublicTraffic", True):
            self.wrong.append("a sandbox is open to everybody")
        sandbox = Sandbox(body, template, self.tools)
        sandbox.extend(body.get("timeout", 15))
        self.sandboxes[sandbox.id] = sandbox
        self.made += 1
        return 201, self.access(sandbox), {}

    def create_once(self, values, query, body, headers):
        key = headers.get("idempotency-key", "")
        if not re.fullmatch("[a-z0-9-]{1,255}", key):
            self.wrong.append(f"the idempotency key {key!r} is none")
        if key not in self.remembered:
            self.remembered[key] = self.create(values, query, body, headers)[1]
        return 201, self.remembered[key], {}

    def list(self, values, query, body, headers):
        wanted = {}
        for pair in filter(None, query.get("metadata", "").split("&")):
            name, _, value = pair.partition("=")
            wanted[urllib.parse.unquote(name)] = urllib.parse.unquote(value)
        states = query.get("state", "running,paused").split(",")
        fitting = [s for s in reversed(self.sandboxes.values()) if s.state in states and wanted.items() <= s.body.get("metadata", {}).items()]
        start = int(query.get("nextToken", 0))
        items = [
            {"templateID": s.template["id"], "sandboxID": s.id, "clientID": "c", "startedAt": s.started, "endAt": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(s.end_at)),
             "cpuCount": 2, "memoryMB": 4096, "diskSizeMB": 10240, "state": s.state, "envdVersion": "0.6.13", "metadata": s.body.get("metadata", {})}
            for s in fitting[start:start + 2]
        ]  # fmt: skip
        return 200, items, {"X-Next-Token": str(start + 2)} if start + 2 < len(fitting) else {}

    def remove(self, sandbox: Sandbox) -> None:
        self.sandboxes.pop(sandbox.id, None)
        sandbox.desk.signal(signal.SIGCONT)
        end = threading.Thread(target=sandbox.desk.remove)
        end.start()
        self.ends.append(end)

    def kill(self, values, query, body, headers):
        self.remove(self.find(values))
        return 204, None, {}

    def freeze(self, sandbox: Sandbox) -> None:
        sandbox.state = "paused"
        sandbox.desk.signal(signal.SIGSTOP)

    def pause(self, values, query, body, headers):
        sandbox = self.find(values)
        if sandbox.state == "paused":
            raise Refusal(409, "sandbox is already paused")
        self.freeze(sandbox)
        return 204, None, {}

    def connect(self, values, query, body, headers):
        sandbox = self.find(values)
        was = sandbox.state
        if was == "paused":
            sandbox.desk.signal(signal.SIGCONT)
            sandbox.state = "running"
        sandbox.extend(body["timeout"], only=was == "running")
        return 200 if was == "running" else 201, self.access(sandbox), {}

    def timeout(self, values, query, body, headers):
        self.find(values).extend(body["timeout"])
        return 204, None, {}

    def metrics(self, values, query, body, headers):
        self.find(values)
        return [{"timestamp": now(), "timestampUnix": int(time.time()), "cpuCount": 2, "cpuUsedPct": 50.0, "memUsed": 1 << 20, "memTotal": 1 << 32, "memCache": 0, "diskUsed": 1 << 21, "diskTotal": 1 << 33}]

    def logs(self, values, query, body, headers):
        lines = self.find(values).desk.log().splitlines()[-int(query["limit"]):]
        return {"logs": [{"timestamp": now(), "message": line, "level": "info", "fields": {}} for line in lines]}

    # ── templates and snapshots ──

    def template(self, wanted: str) -> dict | None:
        bare = wanted.split("/")[-1].split(":")[0]
        return next((t for t in self.templates.values() if bare in (t["id"], t["name"])), None)

    def new_build(self, values, query, body, headers):
        template = self.template(body["name"])
        if template is None:
            template = {"id": uuid.uuid4().hex[:20], "name": body["name"], "start": "", "builds": {}, "snapshot": False}
            self.templates[template["id"]] = template
        build = str(uuid.uuid4())
        template["builds"][build] = {"status": "waiting", "logs": []}
        return 202, {"templateID": template["id"], "buildID": build, "public": False, "names": [body["name"]], "tags": [], "aliases": [body["name"]]}, {}

    def start_build(self, values, query, body, headers):
        template = self.templates[values["templateID"]]
        build = template["builds"][values["buildID"]]
        if build["status"] != "waiting":
            raise Refusal(400, "build is not in waiting state")
        build["status"] = "building"
        build["logs"].append("pulling " + body["fromImage"])
        error = self.build_error

        def done():
            time.sleep(0.5)
            with self.lock:
                build["logs"].append(error or "built")
                build["status"] = "error" if error else "ready"
                if not error:
                    template["start"] = body["startCmd"]

        threading.Thread(target=done, daemon=True).start()
        return 202, None, {}

    def build_status(self, values, query, body, headers):
        template = self.template(values["templateID"]) or {"builds": {}}
        build = template["builds"].get(values["buildID"])
        if build is None:
            raise Refusal(404, "build not found")
        entries = [{"timestamp": now(), "message": line, "level": "info"} for line in build["logs"][int(query.get("logsOffset", 0)):]]
        reason = {"reason": {"message": build["logs"][-1]}} if build["status"] == "error" else {}
        return {"templateID": values["templateID"], "buildID": values["buildID"], "status": build["status"], "logs": [], "logEntries": entries, **reason}

    def alias(self, values, query, body, headers):
        template = self.template(values["alias"])
        if template is None:
            raise Refusal(404, "template not found")
        return {"templateID": template["id"], "public": False}

    def builds(self, values, query, body, headers):
        template = self.template(values["templateID"])
        builds = [
            {"buildID": i, "status": b["status"], "createdAt": now(), "updatedAt": now(), "cpuCount": 2, "memoryMB": 4096}
            for i, b in template["builds"].items()
        ]
        return {"templateID": template["id"], "public": False, "aliases": [template["name"]], "names": [template["name"]], "createdAt": now(), "updatedAt": now(),
                "lastSpawnedAt": None, "spawnCount": 0, "builds": builds}  # fmt: skip

    def save(self, values, query, body, headers):
        sandbox = self.find(values)
        saved = {"id": uuid.uuid4().hex[:20], "name": body["name"], "start": sandbox.template["start"], "builds": {}, "snapshot": True}
        saved["files"] = os.path.join(self.folder, saved["id"])
        shutil.copytree(sandbox.desk.home, saved["files"], symlinks=True, ignore=shutil.ignore_patterns(".cache", "*.sock"), ignore_dangling_symlinks=True)
        self.templates[saved["id"]] = saved
        return 201, self.shown(saved), {}

    def shown(self, saved: dict) -> dict:
        return {"snapshotID": f"team/{saved['name']}:default", "names": [f"team/{saved['name']}:default"]}

    def snapshots(self, values, query, body, headers):
        return [self.shown(t) for t in self.templates.values() if t["snapshot"] and query.get("name", "") in t["name"]]

    def delete_template(self, values, query, body, headers):
        template = self.template(values["templateID"])
        if template is None:
            raise Refusal(404, "template not found")
        del self.templates[template["id"]]
        shutil.rmtree(template.get("files") or "/nonexistent", ignore_errors=True)
        return 204, None, {}

    # ── the edge ──

    def admit(self, name, port, headers):
        sandbox = self.sandboxes.get(name)
        if sandbox is None or sandbox.state != "running":
            raise Refusal(502, f"The sandbox {name} was not found")
        if port == ENVD:
            return lambda line, headers, body: self.envd(sandbox, line, headers, body), headers
        if headers.pop("e2b-traffic-access-token", None) != sandbox.traffic_token:
            raise Refusal(403, "sandbox needs a traffic access token")
        return (sandbox.desk.port if port == PORT else 1), headers

    def envd(self, sandbox: Sandbox, line: str, headers: dict, body: bytes):
        method, target, _ = line.split(" ", 2)
        path, _, text = target.partition("?")
        query = dict(urllib.parse.parse_qsl(text))
        if headers.get("x-access-token") != sandbox.envd_token:
            return 401, {"code": 401, "message": "wrong token"}
        try:
            self.files.check_request(method, path, query, body, headers.get("content-type", ""))
        except ValueError as e:
            self.wrong.append(str(e))
            return 400, {"code": 400, "message": str(e)}
        boundary = headers["content-type"].split("boundary=")[1].encode()
        part = body.split(b"--" + boundary)[1].split(b"\r\n\r\n", 1)[1].removesuffix(b"\r\n")
        place = query["path"].replace("/home/user", sandbox.desk.home)
        os.makedirs(os.path.dirname(place), exist_ok=True)
        # In two goes: what is half there must not be read.
        with open(place, "wb") as file:
            file.write(part[: len(part) // 2])
            file.flush()
            time.sleep(0.15)
            file.write(part[len(part) // 2 :])
        return 200, [{"name": os.path.basename(place), "type": "file", "path": query["path"]}]

    # ── what tests ask ──

    def alive(self, **metadata: str) -> list[Sandbox]:
        with self.lock:
            return [s for s in self.sandboxes.values() if metadata.items() <= s.body.get("metadata", {}).items()]

    def of_desk(self, desk: str) -> list[Sandbox]:
        return self.alive(hotdesk_desk=desk)

    def end(self) -> None:
        with self.lock:
            for sandbox in list(self.sandboxes.values()):
                self.remove(sandbox)
        for end in self.ends:
            end.join()

    def settings(self, timeout: int = 60) -> str:
        return f'[e2b]\napi_url = "{self.url}"\ndomain = "{DOMAIN}:{self.port}"\nca_file = "{self.ca}"\ntimeout_s = {timeout}\nrequests_per_second = 500.0\nburst = 500\n[e2b.templates.bare]\nimage = "registry.example/hotdesk/bare:1"\n'

    environment = {"E2B_API_KEY": Vendor.key}
    create_call = "POST /"
    name = "e2b"
