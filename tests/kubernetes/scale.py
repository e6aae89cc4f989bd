#!/usr/bin/env python3
"""scale.py [--desks 5000] [--nodes 50] [--kill 2] [--out FILE.json]

Thousands of desks through `hotdesk serve` on a real API server, scheduler, controllers and etcd, and nodes that only say that they run
what they are given (`crates/provider/examples/fake-nodes.rs`): makes them all, kills nodes, kills the orchestrator, deletes them all, and looks
each time whether any was lost, doubled or left. Prints figures, and writes them with --out; plot.py draws them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import cluster_of_its_own  # noqa: E402
import httpx  # noqa: E402
import served  # noqa: E402
from waiting import eventually  # noqa: E402

#: Requests to the gateway at a time.
CLIENTS = 32
SETTINGS = """
max_desks = {most}
template = "bare"
restarts = 10

[resources]
cpus = 1.0
memory_mib = 512
disk_mib = 512

[policy]
auto_stop_s = 0

[gateway]
open_metrics = true

[gateway.rates]
control = {{ per_second = 5000, burst = 10000 }}

[kubernetes]
kubeconfig = "{kubeconfig}"
namespace = "hotdesk"
node_loss_s = 5
schedule_s = 240
door = "direct"
"""


class Run:
    def __init__(self, cluster: cluster_of_its_own.Cluster, fleet: served.Serve, nodes: subprocess.Popen) -> None:
        self.cluster, self.fleet, self.nodes = cluster, fleet, nodes
        self.begun = time.monotonic()
        self.samples: list[dict] = []
        self.marks: list[dict] = []
        self.latency: dict[str, list[float]] = {"create": [], "get": [], "delete": []}

    def now(self) -> float:
        return round(time.monotonic() - self.begun, 2)

    def mark(self, what: str) -> None:
        self.marks.append({"at": self.now(), "what": what})
        print(f"{self.now():8.1f} s  {what}", flush=True)

    def client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            base_url=self.fleet.url, timeout=300, headers={"Authorization": f"Bearer {self.fleet.key}"},
            limits=httpx.Limits(max_connections=CLIENTS + 4, max_keepalive_connections=CLIENTS + 4),
        )  # fmt: skip

    async def timed(self, kind: str, request) -> httpx.Response:
        begun = time.monotonic()
        answer = await request
        self.latency[kind].append(time.monotonic() - begun)
        return answer

    def memory(self) -> dict[str, float]:
        """Resident MiB of every part."""
        folder = self.cluster.admin.parent
        pids = {name: (folder / f"{name}.pid").read_text().strip() for name in ("etcd", "apiserver", "controller-manager", "scheduler")}
        if self.fleet.process is not None:
            pids["hotdesk"] = str(self.fleet.process.pid)
        sizes = {}
        for name, pid in pids.items():
            try:
                status = Path(f"/proc/{pid}/status").read_text()
            except OSError:
                continue
            sizes[name] = round(int(re.search(r"VmRSS:\s+(\d+)", status).group(1)) / 1024, 1)
        return sizes

    async def states(self, client: httpx.AsyncClient) -> Counter:
        desks = (await client.get("/v1/desks")).json()["desks"]
        return Counter(desk["state"] for desk in desks)

    async def sample(self, client: httpx.AsyncClient) -> Counter:
        counted = await self.states(client)
        self.samples.append({"at": self.now(), "states": counted, "memory": self.memory()})
        return counted

    async def until(self, client: httpx.AsyncClient, what: str, good, limit: float) -> None:
        end = time.monotonic() + limit
        while not good(counted := await self.sample(client)):
            if time.monotonic() > end:
                raise SystemExit(f"not within {limit} s: {what}; there are {dict(counted)}\n{self.fleet.tail()}")
            await asyncio.sleep(1)

    async def probe(self, client: httpx.AsyncClient, some: list[str]) -> None:
        """What somebody else notices of it."""
        while True:
            if some:
                await self.timed("get", client.get(f"/v1/desks/{some[0]}"))
            await asyncio.sleep(0.1)


async def spread(work: list, do) -> None:
    """Does all of it, so many at a time."""
    queue = list(reversed(work))

    async def worker() -> None:
        while queue:
            await do(queue.pop())

    await asyncio.gather(*(worker() for _ in range(CLIENTS)))


async def everything(run: Run, desks: int, kill: int) -> dict:
    figures: dict = {"desks": desks}
    made: list[str] = []
    async with run.client() as client:
        probing = asyncio.create_task(run.probe(client, made))

        async def create(_: int) -> None:
            while True:
                answer = await run.timed("create", client.post("/v1/desks?wait=0", json={}))
                if answer.status_code in (201, 202):
                    made.append(answer.json()["id"])
                    return
                if answer.status_code not in (429, 503):
                    raise SystemExit(f"a create was refused: {answer.status_code} {answer.text}")
                await asyncio.sleep(float(answer.headers.get("Retry-After", 1)))

        run.mark(f"making {desks} desks")
        begun = time.monotonic()
        making = asyncio.create_task(spread(list(range(desks)), create))
        await run.until(client, "all desks run", lambda counted: counted["running"] >= desks, 3600)
        await making
        figures["create_s"] = round(time.monotonic() - begun, 1)
        figures["create_rate"] = round(desks / figures["create_s"], 1)
        run.mark(f"all run: {figures['create_rate']} a second")
        figures["memory_running"] = run.memory()
        whole(run, made, set())

        dead = {f"fake-{number:03}" for number in range(kill)}
        lost = sum(pod["spec"].get("nodeName") in dead for pod in run.cluster.pods())
        for node in dead:
            run.nodes.stdin.write(f"kill {node}\n")
        run.nodes.stdin.flush()
        run.mark(f"{kill} nodes with {lost} desks died")
        begun = time.monotonic()
        while any(pod["spec"].get("nodeName") in dead for pod in run.cluster.pods()):
            await run.sample(client)
            if time.monotonic() - begun > 600:
                raise SystemExit(f"pods are still on the dead nodes\n{run.fleet.tail()}")
            await asyncio.sleep(1)
        await run.until(client, "all run again", lambda counted: counted["running"] == desks, 600)
        figures["lost"], figures["elsewhere_s"] = lost, round(time.monotonic() - begun, 1)
        run.mark(f"all of them run elsewhere, {figures['elsewhere_s']} s after")
        whole(run, made, dead)

        probing.cancel()
        before = {pod["metadata"]["uid"] for pod in run.cluster.pods()}
        figures |= of_metrics(run)
        run.fleet.kill()
        begun = time.monotonic()
        run.fleet.start()
        await run.until(client, "all are adopted", lambda counted: counted["running"] == desks, 120)
        figures["adopted_s"] = round(time.monotonic() - begun, 1)
        assert {pod["metadata"]["uid"] for pod in run.cluster.pods()} == before, "the same pods"
        run.mark(f"the orchestrator was killed; the next one has all desks after {figures['adopted_s']} s")

        async def delete(desk: str) -> None:
            answer = await run.timed("delete", client.delete(f"/v1/desks/{desk}?wait=0"))
            assert answer.status_code in (200, 202), answer.text

        begun = time.monotonic()
        deleting = asyncio.create_task(spread(list(made), delete))
        gone = lambda counted: not any(count for state, count in counted.items() if state != "deleted")  # noqa: E731
        await run.until(client, "all are deleted", gone, 1800)
        await deleting
        figures["delete_s"] = round(time.monotonic() - begun, 1)
        run.mark(f"all deleted: {desks / figures['delete_s']:.1f} a second")
        assert run.cluster.pods() == [], "nothing is left"
    figures["memory_peak"] = {name: max(s["memory"].get(name, 0) for s in run.samples) for name in run.samples[0]["memory"]}
    figures["latency_ms"] = {kind: quantiles(times) for kind, times in run.latency.items()}
    return figures


def whole(run: Run, made: list[str], dead: set[str]) -> None:
    """One pod for each desk, on a node that lives."""
    pods = [pod for pod in run.cluster.pods() if "deletionTimestamp" not in pod["metadata"]]
    owners = Counter(pod["metadata"]["labels"]["hotdesk.desk"] for pod in pods)
    assert set(owners) == set(made), f"lost {len(set(made) - set(owners))}, too many {len(set(owners) - set(made))}"
    assert set(owners.values()) == {1}, "a desk has two pods"
    assert not dead & {pod["spec"]["nodeName"] for pod in pods}


def quantiles(times: list[float]) -> dict[str, float]:
    if len(times) < 2:
        return {}
    cuts = statistics.quantiles(times, n=100)
    return {"p50": round(cuts[49] * 1000, 1), "p95": round(cuts[94] * 1000, 1), "p99": round(cuts[98] * 1000, 1), "n": len(times)}


def of_metrics(run: Run) -> dict:
    """What orchestrator and API server say of themselves."""
    own = run.fleet.request("GET", "/metrics").text
    server = run.cluster.http.get("/metrics").text
    return {
        "store_ms": histogram(own, "hotdesk_store_seconds", 'what="update"'),
        "reconcile_ms": histogram(own, "hotdesk_reconcile_seconds", ""),
        "step_create_ms": histogram(own, "hotdesk_step_seconds", 'step="creating"'),
        "api_server_create_ms": histogram(server, "apiserver_request_duration_seconds", 'resource="pods"', 'verb="POST"', 'subresource=""'),
    }


def histogram(text: str, name: str, *labels: str) -> dict[str, float]:
    """Quantiles out of buckets, by the upper bound of the bucket; of a summary as they are."""
    buckets: Counter = Counter()
    for line in text.splitlines():
        if line.startswith(f"{name}_bucket{{") and all(label in line for label in labels):
            bound = float(re.search(r'le="([^"]+)"', line).group(1).replace("+Inf", "inf"))
            buckets[bound] += float(line.rsplit(" ", 1)[1])
    total = buckets.get(float("inf"), 0)
    if not total:
        answer = {}
        for line in text.splitlines():
            share = re.search(r'quantile="([^"]+)"', line)
            if share and line.startswith(f"{name}{{") and all(label in line for label in labels):
                answer[f"p{float(share.group(1)) * 100:g}"] = round(float(line.rsplit(" ", 1)[1]) * 1000, 2)
        return answer
    answer = {"n": int(total)}
    for quantile in (0.5, 0.95, 0.99):
        bound = min(bound for bound, count in buckets.items() if count >= quantile * total)
        answer[f"p{quantile * 100:g}"] = round(bound * 1000, 2) if bound != float("inf") else float("inf")
    return answer


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("--desks", type=int, default=5000)
    words.add_argument("--nodes", type=int, default=50)
    words.add_argument("--kill", type=int, default=2)
    words.add_argument("--out", type=Path)
    said = words.parse_args()
    program = Path(served.BINARY).parent / "examples/fake-nodes"
    if not program.exists():
        raise SystemExit(f"there is no {program}: cargo build --release --workspace --examples")
    # All nodes are heard of by one process, which may be late on a busy machine.
    os.environ.setdefault("HOTDESK_NODE_GRACE", "20s")
    with cluster_of_its_own.cluster() as cluster:
        gateway = cluster.furnish()
        most = max(250, 2 * said.desks // said.nodes)
        nodes = subprocess.Popen([program, cluster.admin, str(said.nodes), str(most)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            assert nodes.stdout.readline() == "ready\n", "the nodes did not come up"
            # New nodes are closed until the controllers have heard of them.
            eventually(lambda: not any(node["spec"].get("taints") for node in cluster.get("/api/v1/nodes")["items"]), "all nodes are open", limit=120)
            settings = SETTINGS.format(kubeconfig=gateway, most=said.desks + 100)
            fleet = served.Serve(provider="kubernetes", settings=settings, environment={"HOTDESK_LOG": "warn"})
            fleet.start()
            run = Run(cluster, fleet, nodes)
            try:
                figures = asyncio.run(everything(run, said.desks, said.kill))
            finally:
                fleet.kill()
                fleet.remove()
        finally:
            nodes.kill()
            nodes.wait()
    figures |= {"nodes": said.nodes, "killed": said.kill, "cores": os.cpu_count(), "load": round(os.getloadavg()[0], 1)}
    print(json.dumps(figures, indent=1))
    if said.out:
        said.out.write_text(json.dumps({"figures": figures, "marks": run.marks, "samples": run.samples}) + "\n")


main()
