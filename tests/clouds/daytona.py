"""Daytona, for a test: its API v0 by its description, sandboxes that are desks, preview links with tokens."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
import uuid

import vendor
from vendor import BINARY, DOMAIN, Desk, Refusal, Vendor, now

#: The port of the desk's server in our images.
PORT = 5000


class Sandbox:
    def __init__(self, body: dict, snapshot: dict) -> None:
        self.id = str(uuid.uuid4())
        self.body, self.snapshot = body, snapshot
        self.name = body.get("name") or self.id
        self.state, self.reason = "creating", None
        self.updated = now()
        self.token = ""
        self.desk = Desk()
        if snapshot.get("files"):
            shutil.copytree(snapshot["files"], self.desk.home, dirs_exist_ok=True, symlinks=True, ignore_dangling_symlinks=True)

    def become(self, state: str, reason: str | None = None) -> None:
        self.state, self.reason, self.updated = state, reason, now()

    def run(self) -> None:
        """Runs the entrypoint, on a port of its own and without the settings file that is in the image."""
        command = list(self.snapshot["entrypoint"])
        if command[0] != "/usr/local/bin/hotdesk" or command[-2:] != ["--listen", f"0.0.0.0:{PORT}"]:
            self.become("error", f"the entrypoint {command} can't be run")
            return
        self.token = uuid.uuid4().hex
        self.desk.run([BINARY, "desk", "--listen", f"127.0.0.1:{self.desk.port}", "--display", "auto"], self.body.get("env", {}))
        self.become("started")


class Daytona(Vendor):
    def __init__(self) -> None:
        super().__init__(vendor.Description("daytona.json"))
        self.sandboxes: dict[str, Sandbox] = {}
        self.snapshots: dict[str, dict] = {}
        self.volumes: dict[str, dict] = {}
        #: Of sandboxes that are up at once.
        self.quota = 100
        self.made = 0
        #: Why the next snapshot of an image fails.
        self.build_error: str | None = None
        at = "/sandbox/{sandboxIdOrName}"
        self.handlers = {
            ("GET", "/api-keys/current"): self.current_key,
            ("POST", "/sandbox"): self.create,
            ("GET", "/sandbox"): self.list,
            ("GET", at): lambda v, q, b, h: self.shown(self.find(v)),
            ("DELETE", at): self.delete,
            ("POST", at + "/start"): self.start,
            ("POST", at + "/stop"): self.stop,
            ("POST", at + "/snapshot"): self.save,
            ("GET", at + "/ports/{port}/preview-url"): self.preview,
            ("GET", "/sandbox/{sandboxId}/telemetry/metrics"): self.metrics,
            ("POST", "/snapshots"): self.make_snapshot,
            ("GET", "/snapshots"): self.list_snapshots,
            ("GET", "/snapshots/{id}"): lambda v, q, b, h: self.shown_snapshot(self.find_snapshot(v["id"])),
            ("DELETE", "/snapshots/{id}"): self.delete_snapshot,
            ("POST", "/snapshots/{id}/activate"): self.activate,
            ("GET", "/snapshots/{id}/build-logs-url"): lambda v, q, b, h: {"url": f"{self.url}/logs/{v['id']}"},
            ("GET", "/volumes/by-name/{name}"): self.volume,
            ("POST", "/volumes"): self.make_volume,
        }

    def handle(self, method, path, query, headers, body):
        # Not in the description: the log of a build, and the toolbox's of the entrypoint.
        if path.startswith("/logs/"):
            return 200, f"step 1\n{self.build_error}\n", {}
        if path.startswith("/toolbox/") and path.endswith("/process/session/entrypoint/logs"):
            sandbox = self.find({"sandboxIdOrName": path.split("/")[2]})
            return 200, {"stdout": "", "stderr": "", "output": sandbox.desk.log()}, {}
        return super().handle(method, path.removeprefix("/api"), query, headers, body)

    # ── sandboxes ──

    def find(self, values) -> Sandbox:
        wanted = values.get("sandboxIdOrName") or values["sandboxId"]
        for sandbox in self.sandboxes.values():
            # A name is free as soon as its sandbox is on its way out.
            if wanted == sandbox.id or (wanted == sandbox.name and not sandbox.state.startswith("destroy")):
                return sandbox
        raise Refusal(404, f"Sandbox with ID or name {wanted} not found")

    def shown(self, sandbox: Sandbox) -> dict:
        body, made_of = sandbox.body, sandbox.snapshot
        return {
            "id": sandbox.id, "organizationId": "org", "name": sandbox.name, "user": body.get("user", "daytona"), "env": body.get("env", {}),
            "labels": body.get("labels", {}), "public": body.get("public", False), "networkBlockAll": body.get("networkBlockAll", False),
            "target": body.get("target", "us"), "cpu": made_of["cpu"], "gpu": 0, "memory": made_of["mem"], "disk": made_of["disk"],
            "toolboxProxyUrl": f"{self.url}/toolbox", "state": sandbox.state, "snapshot": made_of["name"], "updatedAt": sandbox.updated,
            **({"errorReason": sandbox.reason} if sandbox.reason else {}),
        }  # fmt: skip

    def create(self, values, query, body, headers):
        name = body.get("name")
        if any(s.name == name and not s.state.startswith("destroy") for s in self.sandboxes.values()):
            raise Refusal(409, f"Sandbox with name {name} already exists")
        snapshot = self.snapshots.get(body.get("snapshot", ""))
        if snapshot is None or snapshot["state"] != "active":
            raise Refusal(400, f"Snapshot {body.get('snapshot')} not found")
        if {"cpu", "memory", "disk"} & set(body):
            raise Refusal(400, "Cannot specify Sandbox resources when using a snapshot")
        if sum(s.state in ("creating", "started") for s in self.sandboxes.values()) >= self.quota:
            raise Refusal(400, f"Total CPU limit exceeded. Maximum allowed: {self.quota}.")
        for mount in body.get("volumes", []):
            if self.volumes_by_id(mount["volumeId"])["state"] != "ready":
                raise Refusal(400, "Volume is not ready")
        sandbox = Sandbox(body, snapshot)
        self.sandboxes[sandbox.id] = sandbox
        self.made += 1
        self.later(0.3, sandbox, "creating", sandbox.run)
        return self.shown(sandbox)

    def later(self, seconds: float, sandbox: Sandbox, while_in: str, work) -> None:
        def wait():
            time.sleep(seconds)
            with self.lock:
                still = sandbox.state == while_in
            if still:
                work()

        threading.Thread(target=wait, daemon=True).start()

    def list(self, values, query, body, headers):
        labels = json.loads(query.get("labels", "{}"))
        fitting = [s for s in self.sandboxes.values() if s.state != "destroyed" and labels.items() <= s.body.get("labels", {}).items()]
        # Pages of two, so that every test turns one.
        start = int(query.get("cursor", 0))
        hidden = {"env", "volumes"}
        items = [{k: v for k, v in self.shown(s).items() if k not in hidden} for s in fitting[start:start + 2]]
        return {"items": items, "nextCursor": str(start + 2) if start + 2 < len(fitting) else None}

    def delete(self, values, query, body, headers):
        sandbox = self.find(values)
        if sandbox.state.startswith("destroy"):
            raise Refusal(404, "Sandbox not found")
        sandbox.become("destroying")

        def gone():
            sandbox.desk.remove()
            sandbox.become("destroyed")

        self.later(0.1, sandbox, "destroying", gone)
        return self.shown(sandbox)

    def start(self, values, query, body, headers):
        sandbox = self.find(values)
        if sandbox.state != "stopped":
            raise Refusal(409 if sandbox.state.endswith("ing") else 400, f"Sandbox is not in a startable state ({sandbox.state})")
        sandbox.become("starting")
        self.later(0.2, sandbox, "starting", sandbox.run)
        return self.shown(sandbox)

    def stop(self, values, query, body, headers):
        sandbox = self.find(values)
        if sandbox.state != "started":
            raise Refusal(409 if sandbox.state.endswith("ing") else 400, f"Sandbox is not started ({sandbox.state})")
        sandbox.become("stopping")

        def stopped():
            sandbox.desk.stop()
            sandbox.token = ""
            sandbox.become("stopped")

        self.later(0.1, sandbox, "stopping", stopped)
        return self.shown(sandbox)

    def preview(self, values, query, body, headers):
        sandbox = self.find(values)
        if sandbox.state != "started":
            raise Refusal(400, "Sandbox is not started. Is the Sandbox started?")
        url = f"https://{values['port']}-{sandbox.id}.{DOMAIN}:{self.port}"
        return {"sandboxId": sandbox.id, "url": url, "token": sandbox.token}

    def metrics(self, values, query, body, headers):
        self.find(values)
        point = {"timestamp": now(), "value": 1048576.0}
        return {"series": [{"metricName": "daytona.sandbox.memory.usage", "dataPoints": [point]}]}

    def current_key(self, values, query, body, headers):
        allowed = ["write:sandboxes", "delete:sandboxes", "write:snapshots", "delete:snapshots"]
        return {"name": "test", "value": "dtn_***", "createdAt": now(), "permissions": allowed, "lastUsedAt": None, "expiresAt": None, "userId": "u"}

    # ── snapshots and volumes ──

    def find_snapshot(self, wanted: str) -> dict:
        for snapshot in self.snapshots.values():
            if wanted in (snapshot["id"], snapshot["name"]):
                return snapshot
        raise Refusal(404, f"Snapshot {wanted} not found")

    def shown_snapshot(self, snapshot: dict) -> dict:
        return {k: v for k, v in snapshot.items() if k != "files"}

    def make_snapshot(self, values, query, body, headers):
        if body["name"] in self.snapshots:
            raise Refusal(409, f"Snapshot with name \"{body['name']}\" already exists for this organization")
        if ":" not in body["imageName"] or body["imageName"].endswith(":latest"):
            raise Refusal(400, "Image name must have a tag that is not latest")
        snapshot = self.new_snapshot(body["name"], "pulling", body["entrypoint"], body["cpu"], body["memory"], body["disk"])
        snapshot["imageName"] = body["imageName"]
        error = self.build_error

        def done():
            time.sleep(0.5)
            with self.lock:
                snapshot["state"] = "build_failed" if error else "active"
                snapshot["errorReason"] = error

        threading.Thread(target=done, daemon=True).start()
        return self.shown_snapshot(snapshot)

    def new_snapshot(self, name: str, state: str, entrypoint, cpu, memory, disk) -> dict:
        snapshot = {
            "id": str(uuid.uuid4()), "organizationId": "org", "general": False, "name": name, "state": state, "size": 0.5, "entrypoint": entrypoint,
            "cpu": cpu, "gpu": 0, "mem": memory, "disk": disk, "errorReason": None, "createdAt": now(), "updatedAt": now(), "lastUsedAt": None,
            "sourceSandboxId": None,
        }  # fmt: skip
        self.snapshots[name] = snapshot
        return snapshot

    def list_snapshots(self, values, query, body, headers):
        all_ = [self.shown_snapshot(s) for n, s in sorted(self.snapshots.items()) if query.get("name", "") in n]
        size, page = int(query.get("limit", 100)), int(query.get("page", 1))
        pages = max(1, -(-len(all_) // size))
        return {"items": all_[(page - 1) * size:page * size], "total": len(all_), "page": page, "totalPages": pages}

    def delete_snapshot(self, values, query, body, headers):
        snapshot = self.find_snapshot(values["id"])
        del self.snapshots[snapshot["name"]]
        shutil.rmtree(snapshot.get("files") or "/nonexistent", ignore_errors=True)
        return 200, None, {}

    def activate(self, values, query, body, headers):
        snapshot = self.find_snapshot(values["id"])
        snapshot["state"] = "active"
        return self.shown_snapshot(snapshot)

    def save(self, values, query, body, headers):
        sandbox = self.find(values)
        if body["name"] in self.snapshots:
            raise Refusal(409, "Snapshot with that name already exists")
        made_of = sandbox.snapshot
        saved = self.new_snapshot(body["name"], "active", made_of["entrypoint"], made_of["cpu"], made_of["mem"], made_of["disk"])
        saved["files"] = os.path.join(self.folder, saved["id"])
        saved["sourceSandboxId"] = sandbox.id
        shutil.copytree(sandbox.desk.home, saved["files"], symlinks=True, ignore=shutil.ignore_patterns(".cache", "*.sock"), ignore_dangling_symlinks=True)
        return self.shown(sandbox)

    def volumes_by_id(self, wanted: str) -> dict:
        for volume in self.volumes.values():
            if wanted == volume["id"]:
                return volume
        raise Refusal(404, f"Volume {wanted} not found")

    def volume(self, values, query, body, headers):
        if values["name"] not in self.volumes:
            raise Refusal(404, f"Volume with name {values['name']} not found")
        return self.volumes[values["name"]]

    def make_volume(self, values, query, body, headers):
        if body["name"] in self.volumes:
            raise Refusal(400, f"Volume with name {body['name']} already exists")
        volume = {"id": str(uuid.uuid4()), "name": body["name"], "organizationId": "org", "state": "creating", "createdAt": now(), "updatedAt": now(), "errorReason": None}
        self.volumes[body["name"]] = volume
        threading.Timer(0.5, lambda: volume.update(state="ready")).start()
        return dict(volume)

    # ── the edge ──

    def admit(self, name, port, headers):
        sandbox = self.sandboxes.get(name)
        # Daytona reads this one first, and for a key of its own.
        if "authorization" in headers:
            raise Refusal(401, "invalid bearer token")
        if sandbox is None or not sandbox.token or headers.pop("x-daytona-preview-token", None) != sandbox.token:
            raise Refusal(307, "log in", {"Location": "https://login.example/"})
        return (sandbox.desk.port if port == PORT else 1), headers

    # ── what tests ask ──

    def alive(self, **labels: str) -> list[Sandbox]:
        with self.lock:
            return [s for s in self.sandboxes.values() if not s.state.startswith("destroy") and labels.items() <= s.body.get("labels", {}).items()]

    def of_desk(self, desk: str) -> list[Sandbox]:
        return self.alive(**{"hotdesk.desk": desk})

    def end(self) -> None:
        for sandbox in list(self.sandboxes.values()):
            sandbox.desk.remove()

    def settings(self) -> str:
        return f'[daytona]\napi_url = "{self.url}/api"\nca_file = "{self.ca}"\nrequests_per_second = 500.0\nburst = 500\n[daytona.templates.bare]\nimage = "registry.example/hotdesk/bare:1"\n'

    environment = {"DAYTONA_API_KEY": Vendor.key}
    create_call = "POST /api/sandbox"
    name = "daytona"
