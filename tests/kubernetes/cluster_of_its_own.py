"""A cluster for the length of a block (`scripts/kubernetes`), and its API as tests use it: as somebody who may do everything."""

from __future__ import annotations

import os
import ssl
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Iterator

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/fleet"))

import httpx  # noqa: E402
import yaml  # noqa: E402

SCRIPT = str(ROOT / "scripts/kubernetes")
DEPLOY = ROOT / "deploy/kubernetes"
NAMESPACE = "hotdesk"


class Cluster:
    #: Whether it was made for this run.
    fresh = True

    def __init__(self, admin: Path) -> None:
        self.admin = admin
        config = yaml.safe_load(admin.read_text())
        self.server = config["clusters"][0]["cluster"]["server"]
        self.authority = config["clusters"][0]["cluster"]["certificate-authority"]
        self.http = httpx.Client(
            base_url=self.server, verify=ssl.create_default_context(cafile=self.authority), timeout=60,
            headers={"Authorization": f"Bearer {config['users'][0]['user']['token']}"},
        )  # fmt: skip

    def get(self, path: str, **query: Any) -> dict[str, Any]:
        answer = self.http.get(path, params=query)
        assert answer.status_code == 200, f"{path}: {answer.text}"
        return answer.json()

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        answer = self.http.post(path, json=body)
        assert answer.status_code in (200, 201), f"{path}: {answer.text}"
        return answer.json()

    def pods(self, **labels: str) -> list[dict[str, Any]]:
        selector = ",".join(f"hotdesk.{key}={value}" for key, value in labels.items()) or "hotdesk.desk"
        return self.get(f"/api/v1/namespaces/{NAMESPACE}/pods", labelSelector=selector)["items"]

    def secrets(self) -> list[dict[str, Any]]:
        return self.get(f"/api/v1/namespaces/{NAMESPACE}/secrets", labelSelector="hotdesk.desk")["items"]

    def furnish(self) -> Path:
        """Makes namespace and account as `kubectl apply -k` does; the kubeconfig of the gateway's account."""
        for file in ("namespace.yaml", "account.yaml"):
            for thing in yaml.safe_load_all((DEPLOY / file).read_text()):
                kind, name = thing["kind"].lower() + "s", thing["metadata"]["name"]
                group = "/api/v1" if thing["apiVersion"] == "v1" else f"/apis/{thing['apiVersion']}"
                place = "" if kind == "namespaces" else f"/namespaces/{NAMESPACE}"
                answer = self.http.patch(
                    f"{group}{place}/{kind}/{name}", params={"fieldManager": "tests", "force": "true"},
                    content=yaml.safe_dump(thing), headers={"Content-Type": "application/apply-patch+yaml"},
                )  # fmt: skip
                assert answer.status_code in (200, 201), f"{file}: {answer.text}"
        wish = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 14400}}
        token = self.post(f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/hotdesk/token", wish)["status"]["token"]
        config = yaml.safe_load(self.admin.read_text())
        config["users"][0]["user"]["token"] = token
        path = self.admin.with_name("gateway.conf")
        path.write_text(yaml.safe_dump(config))
        return path

    def script(self, *words: str) -> None:
        run(*words)


def run(*words: str) -> str:
    done = subprocess.run([SCRIPT, *words], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"scripts/kubernetes {' '.join(words)} ended with {done.returncode}")
    return done.stdout.strip()


@contextmanager
def cluster(nodes: int = 0) -> Iterator[Cluster]:
    """With HOTDESK_KEEP=1 it stays for the next run, which takes it as it is."""
    keep = bool(os.environ.get("HOTDESK_KEEP"))
    there = Path(os.environ.get("HOTDESK_KUBERNETES", "/tmp/hotdesk-kubernetes"), "admin.conf")
    if keep and there.exists():
        one = Cluster(there)
        one.fresh = False
        yield one
        return
    run("down")
    try:
        yield Cluster(Path(run("up", str(nodes)).splitlines()[-1]))
    finally:
        if not keep:
            run("down")
