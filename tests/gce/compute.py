"""A stand-in for Compute Engine, driven by Google's own description of it.

Every request is held against the description (path, method, parameters, body) and every answer too; what does not fit is kept in
`wrong`, which tests look at in the end. Behind it is a state: instances that are real desks on addresses of loopback, disks that are
directories, operations that take their time. Faults are asked for by the method's name, or come by chance.
"""

from __future__ import annotations

import base64
import itertools
import json
import os
import random
import re
import shutil
import socket
import tempfile
import threading
import time
import traceback
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import discovery
import storage
from machine import Machine

PROJECT = "test-project"
ZONES = ("us-central1-a", "us-central1-b", "europe-west4-a")
BASE = "/compute/v1/"
ACCOUNT = "fleet@test-project.iam.gserviceaccount.com"
#: Either of these lets a token use the compute API.
SCOPES = {"https://www.googleapis.com/auth/compute", "https://www.googleapis.com/auth/cloud-platform"}
#: What the metadata server hands out.
MACHINE_TOKEN = "token-of-the-machine"
#: Google holds a request for the end of an operation for two minutes; here less, so that asking again is tried too.
HOLD_S = 1.0
#: Lists are cut into pages of so many.
PAGE = 2
#: Longer than the client waits (`request_limit_s` of the tests).
SLOW_S = 2.5


class Refusal(Exception):
    """An answer that is an error, in Google's form."""

    def __init__(self, status: int, reason: str, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.headers = status, headers or {}
        self.body = {"error": {"code": status, "message": message, "errors": [{"message": message, "domain": "global", "reason": reason}]}}


class Lost(Exception):
    """The connection ends without an answer."""


FAULTS = {
    "429": lambda: Refusal(429, "rateLimitExceeded", "Too many requests", {"Retry-After": "1"}),
    "rate": lambda: Refusal(403, "rateLimitExceeded", "Rate Limit Exceeded"),
    "500": lambda: Refusal(500, "backendError", "Internal error"),
    "503": lambda: Refusal(503, "backendError", "Service unavailable"),
    "quota": lambda: Refusal(403, "quotaExceeded", "Quota 'CPUS' exceeded.  Limit: 8.0 in region us-central1."),
    "forbidden": lambda: Refusal(403, "forbidden", "Required 'compute.instances.create' permission"),
}
#: Faults of an answer that a client has to live with, whatever it asked for.
PASSING = ("429", "rate", "500", "503", "drop", "lost", "slow")


class Google:
    """The stand-in. Its state is in public attributes, under `lock`."""

    def __init__(self, public_key: Any) -> None:
        self.public_key = public_key
        self.lock = threading.RLock()
        self.done = threading.Condition(self.lock)
        self.instances: dict[tuple[str, str], dict[str, Any]] = {}
        self.machines: dict[tuple[str, str], Machine] = {}
        self.disks: dict[tuple[str, str], dict[str, Any]] = {}
        self.snapshots: dict[str, dict[str, Any]] = {}
        self.images: dict[str, dict[str, Any]] = {}
        self.firewalls: list[dict[str, Any]] = []
        self.operations: dict[str, dict[str, Any]] = {}
        self.requests: dict[str, tuple[str, str]] = {}
        self.bucket = storage.Bucket()
        #: Every instance that was ever made: name, zone.
        self.made: list[tuple[str, str]] = []
        #: What was asked, as method names.
        self.asked: list[str] = []
        self.wrong: list[str] = []
        self.faults: list[tuple[str, str]] = []
        self.endings: list[tuple[str, str]] = []
        self.chance: tuple[random.Random, float] | None = None
        self.latency_s = 0.0
        self.unreachable: list[str] = []
        self.numbers = itertools.count(1)
        # Addresses of our own, so that two runs on one machine do not meet.
        self.hosts = (f"127.{77 + os.getpid() % 100}.{os.getpid() // 100 % 250}.{host}" for host in range(1, 250))
        self.folder = Path(tempfile.mkdtemp(prefix="hotdesk-google-"))
        self.server = Server(("127.0.0.1", 0), Handler)
        self.server.google = self
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        for machine in list(self.machines.values()):
            machine.remove()
        shutil.rmtree(self.folder, ignore_errors=True)

    # ── what tests do ──

    def fail(self, method: str, *kinds: str) -> None:
        """The next requests of a method (`instances.insert`) go wrong, one after another."""
        with self.lock:
            self.faults += [(method, kind) for kind in kinds]

    def end_with(self, method: str, *codes: str) -> None:
        """The next operations of a method end in an error."""
        with self.lock:
            self.endings += [(method, code) for code in codes]

    def add_image(self, name: str, family: str, features: tuple[str, ...] = ("GVNIC",)) -> None:
        with self.lock:
            self.images[name] = {
                "kind": "compute#image", "id": str(next(self.numbers)), "name": name, "family": family, "status": "READY",
                "creationTimestamp": now(), "diskSizeGb": "8", "guestOsFeatures": [{"type": one} for one in features], "labels": {"hotdesk-template": family.removeprefix("hotdesk-")},
            }  # fmt: skip

    def of_desk(self, desk: str) -> list[dict[str, Any]]:
        with self.lock:
            return [one for one in self.instances.values() if one["labels"].get("hotdesk-desk") == desk]

    def preempt(self, desk: str) -> None:
        """Takes a spot instance back."""
        [instance] = self.of_desk(desk)
        key = (instance["zone"].rsplit("/", 1)[1], instance["name"])
        operation = self.operation("compute.instances.preempted", key[0], instance)
        self.machines[key].off()
        with self.lock:
            instance["status"] = "TERMINATED"
            operation["status"] = "DONE"

    # ── requests ──

    def answer(self, method: str, path: str, query: dict[str, list[str]], body: Any) -> dict[str, Any]:
        found = discovery.find(method, path)
        if found is None:
            self.wrong.append(f"{method} {path}: there is no such method")
            raise Refusal(404, "notFound", f"there is no method {method} {path}")
        described, parameters = found
        name = described["id"].removeprefix("compute.")
        with self.lock:
            self.asked.append(name)
        wrong = discovery.wrong_with_request(described, parameters, query, body)
        if parameters.get("project") != PROJECT:
            wrong.append(f"the project {parameters.get('project')} is not ours")
        if wrong:
            self.wrong += [f"{name}: {text}" for text in wrong]
            raise Refusal(400, "invalid", "; ".join(wrong))
        fault = self.next_fault(name)
        if fault in FAULTS:
            raise FAULTS[fault]()
        if fault == "drop":
            raise Lost
        if fault == "slow":
            time.sleep(SLOW_S)
        answer = self.act(name, parameters, {key: values[0] for key, values in query.items()}, body)
        not_right = discovery.wrong_with(answer, described["response"], "answer", None)
        self.wrong += [f"our own answer to {name}: {text}" for text in not_right]
        if fault == "lost":
            raise Lost
        return answer

    def next_fault(self, name: str) -> str | None:
        with self.lock:
            for at, (method, kind) in enumerate(self.faults):
                if method == name:
                    del self.faults[at]
                    return kind
            if self.chance and self.chance[0].random() < self.chance[1]:
                return self.chance[0].choice(PASSING)
        return None

    def act(self, name: str, where: dict[str, str], query: dict[str, str], body: Any) -> dict[str, Any]:
        action = getattr(self, "do_" + name.replace(".", "_"), None)
        if action is None:
            raise Refusal(501, "notImplemented", f"the stand-in has no {name}")
        if "zone" in where and where["zone"] not in ZONES:
            raise Refusal(404, "notFound", f"The resource 'zones/{where['zone']}' was not found")
        with self.lock:
            if "requestId" not in query:
                if name.rsplit(".")[1] in ("insert", "delete", "stop", "start", "createSnapshot", "setLabels"):
                    self.wrong.append(f"{name}: a change without requestId")
                return action(where, query, body)
            request = query["requestId"]
            if not re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", request) or not request.strip("0-"):
                raise Refusal(400, "invalid", f"Invalid value for field 'requestId': '{request}'")
            meant = json.dumps([name, where, body], sort_keys=True)
            if request in self.requests:
                before, operation = self.requests[request]
                if before != meant:
                    self.wrong.append(f"{name}: the request id was used for something else")
                return self.operations[operation]
            answer = action(where, query, body)
            self.requests[request] = (meant, answer["name"])
            return dict(answer)

    # ── operations ──

    def operation(self, kind: str, zone: str | None, target: dict[str, Any]) -> dict[str, Any]:
        with self.lock:
            number = str(next(self.numbers))
            one = {
                "kind": "compute#operation", "id": number, "name": f"operation-{number}", "operationType": kind, "status": "RUNNING", "progress": 0,
                "targetId": target.get("id", "0"), "targetLink": target.get("selfLink", ""), "insertTime": now(), "user": ACCOUNT,
            }  # fmt: skip
            if zone:
                one["zone"] = self.link(f"zones/{zone}")
            self.operations[one["name"]] = one
            return one

    def begin(self, method: str, zone: str | None, target: dict[str, Any], work: Any, undo: Any = lambda: None) -> dict[str, Any]:
        """Does something meanwhile."""
        operation = self.operation(method.rsplit(".", 1)[1], zone, target)
        code = None
        for at, (wanted, ending) in enumerate(self.endings):
            if wanted == method:
                code = ending
                del self.endings[at]
                break

        def run() -> None:
            time.sleep(self.latency_s)
            try:
                undo() if code else work()
            except BaseException:
                self.wrong.append(f"{method} broke down: {traceback.format_exc()}")
            with self.lock:
                operation.update(status="DONE", progress=100, endTime=now())
                if code:
                    status = 503 if code.startswith("ZONE_") else 403 if code.startswith("QUOTA") else 500
                    operation.update(httpErrorStatusCode=status, httpErrorMessage="it failed", error={"errors": [{"code": code, "message": f"because of {code}"}]})
                self.done.notify_all()

        threading.Thread(target=run, daemon=True).start()
        return operation

    def do_zoneOperations_wait(self, where, query, body):
        operation = self.operations.get(where["operation"])
        if operation is None:
            raise Refusal(404, "notFound", f"The resource '{where['operation']}' was not found")
        self.done.wait_for(lambda: operation["status"] == "DONE", HOLD_S)
        return dict(operation)

    do_globalOperations_wait = do_zoneOperations_wait

    def do_zoneOperations_list(self, where, query, body):
        link = self.link(f"zones/{where['zone']}")
        return self.listed("compute#operationList", [one for one in self.operations.values() if one.get("zone") == link], query)

    # ── instances ──

    def do_instances_insert(self, where, query, body):
        zone, name = where["zone"], body["name"]
        key = (zone, name)
        if not re.fullmatch(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", name):
            raise Refusal(400, "invalid", f"Invalid value for field 'resource.name': '{name}'")
        if key in self.instances:
            raise Refusal(409, "alreadyExists", f"The resource 'zones/{zone}/instances/{name}' already exists")
        self.check_instance(zone, body)
        disk = body["disks"][0]["initializeParams"]
        folder = self.folder / f"{zone}-{name}-{next(self.numbers)}"
        if "sourceSnapshot" in disk:
            source = self.named(self.snapshots, disk["sourceSnapshot"])
            shutil.copytree(source["folder"], folder)
        else:
            self.named(self.images, disk["sourceImage"])
            folder.mkdir()
        number = str(next(self.numbers))
        instance = {
            **{key: body[key] for key in ("name", "labels", "tags", "metadata", "scheduling", "machineType")},
            "kind": "compute#instance", "id": number, "zone": self.link(f"zones/{zone}"), "status": "PROVISIONING", "creationTimestamp": now(),
            "selfLink": self.link(f"zones/{zone}/instances/{name}"), "labelFingerprint": "AAAA",
            "disks": [{"boot": True, "autoDelete": True, "source": self.link(f"zones/{zone}/disks/{name}")}],
            "networkInterfaces": [{**body["networkInterfaces"][0], "networkIP": next(self.hosts)}],
        }  # fmt: skip
        self.instances[key] = instance
        self.made.append((name, zone))
        self.disks[key] = {
            "kind": "compute#disk", "id": number, "name": name, "zone": self.link(f"zones/{zone}"), "labels": disk["labels"], "users": [instance["selfLink"]],
            "creationTimestamp": now(), "sizeGb": disk["diskSizeGb"], "status": "READY",
        }  # fmt: skip
        metadata = {item["key"]: item["value"] for item in body["metadata"]["items"]}
        machine = self.machines[key] = Machine(folder, instance["networkInterfaces"][0]["networkIP"], metadata)

        def undo() -> None:
            with self.lock:
                del self.instances[key], self.disks[key]
                self.made.remove((name, zone))
            machine.remove()

        return self.begin("instances.insert", zone, instance, lambda: self.switch_on(key, instance, machine), undo)

    def check_instance(self, zone: str, body: dict[str, Any]) -> None:
        """What Google checks beyond the description."""
        disk = body["disks"][0]["initializeParams"]
        for field, text in (("machineType", body["machineType"]), ("diskType", disk["diskType"])):
            if f"zones/{zone}/" not in text:
                raise Refusal(400, "invalid", f"Invalid value for field '{field}': '{text}'")
        for label in (body["labels"] | disk["labels"]).items():
            if not re.fullmatch(r"[a-z][a-z0-9_-]{0,62}", label[0]) or not re.fullmatch(r"[a-z0-9_-]{0,63}", label[1]):
                raise Refusal(400, "invalid", f"Invalid label {label}")
        if "shieldedInstanceConfig" in body:
            image = self.named(self.images, disk["sourceImage"])
            if {"type": "UEFI_COMPATIBLE"} not in image["guestOsFeatures"]:
                raise Refusal(400, "invalid", "Shielded VM Config can only be set when using a UEFI-compatible disk.")

    def switch_on(self, key: tuple[str, str], instance: dict[str, Any], machine: Machine) -> None:
        machine.on()
        with self.lock:
            instance.update(status="RUNNING", lastStartTimestamp=now())

    def do_instances_get(self, where, query, body):
        return dict(self.instance(where))

    def do_instances_aggregatedList(self, where, query, body):
        return self.everywhere("instances", self.instances, query)

    def do_instances_getSerialPortOutput(self, where, query, body):
        self.instance(where)
        return {"kind": "compute#serialPortOutput", "contents": self.machines[where["zone"], where["instance"]].console(), "start": "0", "next": "0"}

    def do_instances_stop(self, where, query, body):
        instance, key = self.instance(where), (where["zone"], where["instance"])
        if instance["status"] == "RUNNING":
            instance["status"] = "STOPPING"

        def work() -> None:
            self.machines[key].off()
            with self.lock:
                instance.update(status="TERMINATED", lastStopTimestamp=now())

        return self.begin("instances.stop", where["zone"], instance, work)

    def do_instances_start(self, where, query, body):
        instance, key = self.instance(where), (where["zone"], where["instance"])
        if instance["status"] != "TERMINATED":
            raise Refusal(400, "resourceNotReady", f"The resource is {instance['status']}")
        instance["status"] = "PROVISIONING"

        def undo() -> None:
            with self.lock:
                instance["status"] = "TERMINATED"

        return self.begin("instances.start", where["zone"], instance, lambda: self.switch_on(key, instance, self.machines[key]), undo)

    def do_instances_delete(self, where, query, body):
        instance, key = self.instance(where), (where["zone"], where["instance"])
        instance["status"] = "STOPPING"

        def work() -> None:
            self.machines.pop(key).remove()
            with self.lock:
                del self.instances[key], self.disks[key]

        return self.begin("instances.delete", where["zone"], instance, work)

    def do_instances_setLabels(self, where, query, body):
        instance = self.instance(where)
        if body["labelFingerprint"] != instance["labelFingerprint"]:
            raise Refusal(412, "conditionNotMet", "Labels fingerprint either invalid or resource labels have changed")
        instance.update(labels=body["labels"], labelFingerprint=base64.b64encode(os.urandom(6)).decode())
        return self.begin("instances.setLabels", where["zone"], instance, lambda: None)

    def instance(self, where: dict[str, str]) -> dict[str, Any]:
        found = self.instances.get((where["zone"], where["instance"]))
        if found is None:
            raise Refusal(404, "notFound", f"The resource 'zones/{where['zone']}/instances/{where['instance']}' was not found")
        return found

    # ── disks, snapshots, images, the rest ──

    def do_disks_aggregatedList(self, where, query, body):
        return self.everywhere("disks", self.disks, query)

    def do_disks_delete(self, where, query, body):
        disk = self.disks.get((where["zone"], where["disk"]))
        if disk is None:
            raise Refusal(404, "notFound", f"The resource '{where['disk']}' was not found")
        if disk["users"]:
            raise Refusal(400, "resourceInUseByAnotherResource", "The disk resource is already being used")
        del self.disks[where["zone"], where["disk"]]
        return self.begin("disks.delete", where["zone"], disk, lambda: None)

    def do_disks_createSnapshot(self, where, query, body):
        machine = self.machines.get((where["zone"], where["disk"]))
        if machine is None:
            raise Refusal(404, "notFound", f"The resource '{where['disk']}' was not found")
        if body["name"] in self.snapshots:
            raise Refusal(409, "alreadyExists", f"The resource '{body['name']}' already exists")
        folder = self.folder / f"snapshot-{next(self.numbers)}"
        shutil.copytree(machine.disk, folder, symlinks=True, ignore_dangling_symlinks=True, copy_function=copy_if_there)
        size = sum(file.lstat().st_size for file in folder.rglob("*") if file.is_file()) + 1
        snapshot = {
            **body, "kind": "compute#snapshot", "id": str(next(self.numbers)), "status": "READY", "diskSizeGb": "10", "storageBytes": str(size),
            "folder": folder,
        }  # fmt: skip
        self.snapshots[body["name"]] = snapshot
        return self.begin("disks.createSnapshot", where["zone"], snapshot, lambda: None)

    def do_snapshots_get(self, where, query, body):
        return shown(self.named(self.snapshots, where["snapshot"]))

    def do_snapshots_list(self, where, query, body):
        return self.listed("compute#snapshotList", [shown(one) for one in self.snapshots.values()], query)

    def do_snapshots_delete(self, where, query, body):
        snapshot = self.named(self.snapshots, where["snapshot"])
        shutil.rmtree(snapshot["folder"])
        del self.snapshots[where["snapshot"]]
        return self.begin("snapshots.delete", None, shown(snapshot), lambda: None)

    def do_images_insert(self, where, query, body):
        if body["name"] in self.images:
            raise Refusal(409, "alreadyExists", f"The resource '{body['name']}' already exists")
        self.bucket.import_disk(urlsplit(body["rawDisk"]["source"]).path)
        self.add_image(body["name"], body["family"], tuple(one["type"] for one in body["guestOsFeatures"]))
        return self.begin("images.insert", None, self.images[body["name"]], lambda: None)

    def do_images_get(self, where, query, body):
        return self.named(self.images, where["image"])

    def do_images_getFromFamily(self, where, query, body):
        versions = [one for one in self.images.values() if one["family"] == where["family"]]
        if not versions:
            raise Refusal(404, "notFound", f"The resource 'images/family/{where['family']}' was not found")
        return max(versions, key=lambda one: int(one["id"]))

    def do_images_list(self, where, query, body):
        return self.listed("compute#imageList", list(self.images.values()), query)

    def do_images_delete(self, where, query, body):
        image = self.named(self.images, where["image"])
        del self.images[where["image"]]
        return self.begin("images.delete", None, image, lambda: None)

    def do_firewalls_list(self, where, query, body):
        return self.listed("compute#firewallList", self.firewalls, query)

    def do_zones_get(self, where, query, body):
        return {"kind": "compute#zone", "name": where["zone"], "status": "UP"}

    def do_regions_get(self, where, query, body):
        quotas = [{"metric": "CPUS", "limit": 24.0, "usage": 4.0}, {"metric": "INSTANCES", "limit": 24.0, "usage": 2.0}]
        return {"kind": "compute#region", "name": where["region"], "status": "UP", "quotas": quotas}

    def named(self, things: dict[str, dict[str, Any]], path: str) -> dict[str, Any]:
        found = things.get(path.rsplit("/", 1)[-1])
        if found is None:
            raise Refusal(404, "notFound", f"The resource '{path}' was not found")
        return found

    def link(self, path: str) -> str:
        return f"{self.url}{BASE}projects/{PROJECT}/{path}"

    # ── lists ──

    def listed(self, kind: str, things: list[dict[str, Any]], query: dict[str, str]) -> dict[str, Any]:
        part, token = cut([one for one in things if fits(one, query.get("filter", ""))], query)
        return {"kind": kind, "id": "list", **({"items": part} if part else {}), **token}

    def everywhere(self, what: str, things: dict[tuple[str, str], dict[str, Any]], query: dict[str, str]) -> dict[str, Any]:
        part, token = cut([(zone, one) for (zone, _), one in sorted(things.items()) if fits(one, query.get("filter", ""))], query)
        items: dict[str, Any] = {}
        for zone in ZONES:
            inside = [dict(one) for where, one in part if where == zone]
            nothing = {"code": "NO_RESULTS_ON_PAGE", "message": f"There are no results for scope 'zones/{zone}' on this page."}
            items[f"zones/{zone}"] = {what: inside} if inside else {"warning": nothing}
        for zone in self.unreachable:
            items[f"zones/{zone}"] = {"warning": {"code": "UNREACHABLE", "message": "The scope can't be reached."}}
        return {"kind": f"compute#{what[:-1]}AggregatedList", "id": "list", "items": items, **token}


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64
    google: Google

    def handle_error(self, request, address) -> None:
        """Connections that a client ended are no news."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def handle_any(self) -> None:
        google, split = self.server.google, urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if split.path.startswith("/computeMetadata/"):
            return self.metadata(split.path)
        try:
            if self.command == "POST" and "Content-Length" not in self.headers:
                google.wrong.append(f"{self.path}: no length of the body")
                raise Refusal(411, "lengthRequired", "POST requests require a Content-length header.")
            self.admit()
            if split.path.startswith(BASE):
                content = json.loads(body) if body else None
                path = unquote(split.path.removeprefix(BASE))
                answer = google.answer(self.command, path, parse_qs(split.query, keep_blank_values=True), content)
                return self.reply(200, json.dumps(answer).encode(), {"Content-Type": "application/json"})
            query = {key: values[0] for key, values in parse_qs(split.query, keep_blank_values=True).items()}
            status, headers, content = google.bucket.answer(self.command, unquote(split.path), query, body)
            return self.reply(status, content, headers)
        except Refusal as refusal:
            return self.reply(refusal.status, json.dumps(refusal.body).encode(), {"Content-Type": "application/json", **refusal.headers})
        except Lost:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
        except (ConnectionError, BrokenPipeError):
            self.close_connection = True
        except Exception:
            google.wrong.append(f"{self.command} {self.path} broke the stand-in: {traceback.format_exc()}")
            self.reply(500, b"{}", {})

    do_GET = do_POST = do_DELETE = do_PUT = do_HEAD = do_PATCH = handle_any

    def admit(self) -> None:
        """A token that the service account signed for itself, or one of the metadata server."""
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        if token == MACHINE_TOKEN:
            return
        try:
            head, claims, signature = token.split(".")
            self.server.google.public_key.check(f"{head}.{claims}".encode(), decoded(signature))
            said = json.loads(decoded(claims))
            assert said["iss"] == ACCOUNT and said["exp"] > time.time(), said
            assert SCOPES & set(said.get("scope", "").split()) or said.get("aud"), said
        except Exception as e:
            self.server.google.wrong.append(f"{self.command} {self.path}: no valid token: {e!r}")
            raise Refusal(401, "authError", "Invalid Credentials") from None

    def metadata(self, path: str) -> None:
        if self.headers.get("Metadata-Flavor") != "Google":
            return self.reply(403, b"", {})
        if path.endswith("/token"):
            content = {"access_token": MACHINE_TOKEN, "expires_in": 3600, "token_type": "Bearer"}
            return self.reply(200, json.dumps(content).encode(), {"Content-Type": "application/json", "Metadata-Flavor": "Google"})
        return self.reply(404, b"", {"Metadata-Flavor": "Google"})

    def reply(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if "Content-Length" not in headers:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, *words: Any) -> None:
        pass


def fits(thing: dict[str, Any], expression: str) -> bool:
    """Google's filters as far as we write them: `field = "value"`, `field:*`, several in brackets."""
    parts = re.findall(r"\(([^()]*)\)", expression) or ([expression] if expression else [])
    for part in parts:
        match = re.fullmatch(r'\s*([\w.-]+)\s*(?:=\s*"([^"]*)"|:\*)\s*', part)
        if match is None:
            raise Refusal(400, "invalid", f"Invalid value for field 'filter': '{expression}'")
        value: Any = thing
        for name in match[1].split(".", 1):
            value = value.get(name) if isinstance(value, dict) else None
        if value is None or (match[2] is not None and value != match[2]):
            return False
    return True


def cut(things: list[Any], query: dict[str, str]) -> tuple[list[Any], dict[str, str]]:
    begin = int(query.get("pageToken", "0"))
    end = begin + min(PAGE, int(query.get("maxResults", "500")))
    return things[begin:end], {"nextPageToken": str(end)} if end < len(things) else {}


def shown(snapshot: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in snapshot.items() if key != "folder"}


def copy_if_there(source: str, target: str) -> None:
    """A desk that runs makes and removes files meanwhile; sockets are not kept."""
    if os.path.isfile(source):
        try:
            shutil.copy2(source, target)
        except FileNotFoundError:
            pass


def decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
