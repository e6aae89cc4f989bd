"""Real desks on three real nodes: kubelets, containerd, runc; the gateway has the rights of `deploy/kubernetes` and no others."""

from __future__ import annotations

import io
import subprocess
import time

import cluster_of_its_own
import pytest
import served
from PIL import Image
from waiting import eventually

DESKS = 6
SETTINGS = """
max_desks = 50
template = "bare"
screen = {{ width = 1280, height = 800 }}

[resources]
cpus = 1.0
memory_mib = 512
disk_mib = 1024

[policy]
auto_stop_s = 0

[kubernetes]
kubeconfig = "{kubeconfig}"
namespace = "hotdesk"
pull_policy = "Never"
node_loss_s = 5
door = "{door}"
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with cluster_of_its_own.cluster(3) as one:
        if one.fresh:
            image = tmp_path_factory.mktemp("image") / "bare.tar"
            subprocess.run([served.BINARY, "template", "build", "bare", "--as", "oci", "-o", str(image)], check=True)
            one.script("image", str(image))
            image.unlink()
        one.gateway = one.furnish()
        yield one


def settings(cluster, door: str = "auto") -> str:
    return SETTINGS.format(kubeconfig=cluster.gateway, door=door)


def create(fleet: served.Serve, **more) -> dict:
    answer = fleet.request("POST", "/v1/desks?wait=300", json=more, timeout=330)
    assert answer.status_code == 201, answer.text
    return answer.json()


def picture(fleet: served.Serve, desk: str) -> Image.Image:
    answer = fleet.request("GET", f"/v1/desks/{desk}/screenshot")
    assert answer.status_code == 200, answer.text
    one = Image.open(io.BytesIO(answer.content))
    one.load()
    return one


def states(fleet: served.Serve) -> dict[str, str]:
    return {desk["id"]: desk["state"] for desk in fleet.request("GET", "/v1/desks").json()["desks"]}


def uids(cluster) -> dict[str, tuple[str, str]]:
    """Node and uid of each desk's pod."""
    return {p["metadata"]["labels"]["hotdesk.desk"]: (p["spec"]["nodeName"], p["metadata"]["uid"]) for p in cluster.pods()}


def test_desks_on_three_nodes(cluster):
    with served.fleet(provider="kubernetes", settings=settings(cluster)) as fleet:
        begun = time.monotonic()
        desks = [create(fleet, labels={"number": str(number)})["id"] for number in range(DESKS)]
        print(f"{DESKS} desks, one after another: {(time.monotonic() - begun) / DESKS:.2f} s each")
        assert {node for node, _ in uids(cluster).values()} == {"node-1", "node-2", "node-3"}
        for desk in desks:
            assert picture(fleet, desk).size == (1280, 800)
        inside(fleet, cluster, desks[0])
        policies(cluster, fleet)
        adopted(fleet, cluster)
        evicted(fleet, cluster, desks[0])
        node_lost(fleet, cluster, desks)
        for desk in desks:
            assert fleet.request("DELETE", f"/v1/desks/{desk}").status_code == 200
        assert cluster.pods() == []
        eventually(lambda: not cluster.secrets(), "secrets go with their pods", limit=60)


def inside(fleet, cluster, desk: str) -> None:
    """No root, no capabilities, no way to either, nothing of the cluster."""

    def sh(script: str) -> str:
        return fleet.hotdesk("exec", desk, "--", "sh", "-c", script).stdout.strip()

    assert sh("id -u") == "1000"
    status = dict(line.split(":\t", 1) for line in sh("cat /proc/self/status").splitlines() if ":\t" in line)
    assert int(status["CapEff"], 16) == int(status["CapBnd"], 16) == 0
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    assert sh("touch /x /usr/x 2>/dev/null || echo no") == "no"
    assert sh("echo kept > ~/file && cat ~/file") == "kept"
    assert sh("ls /var/run/secrets 2>/dev/null || echo none") == "none"
    token = [s for s in cluster.secrets() if s["metadata"]["labels"]["hotdesk.desk"] == desk]
    assert len(token) == 1 and token[0]["metadata"]["ownerReferences"][0]["kind"] == "Pod"
    pod = next(p for p in cluster.pods(desk=desk))
    assert pod["metadata"]["labels"]["hotdesk.label/number"] == "0"
    assert pod["spec"]["containers"][0]["resources"]["limits"]["memory"] == "512Mi"


def policies(cluster, fleet) -> None:
    found = cluster.get("/apis/networking.k8s.io/v1/namespaces/hotdesk/networkpolicies")["items"]
    closed = next(p for p in found if p["metadata"]["name"] == f"hotdesk-{fleet.name}-closed")["spec"]
    assert closed["policyTypes"] == ["Ingress", "Egress"] and "egress" not in closed
    assert closed["podSelector"]["matchLabels"] == {"hotdesk.fleet": fleet.name}
    assert closed["ingress"] == [{
        "from": [{"podSelector": {"matchLabels": {"app.kubernetes.io/name": "hotdesk"}}}],
        "ports": [{"port": 5000, "protocol": "TCP"}],
    }]  # fmt: skip


def adopted(fleet, cluster) -> None:
    """The orchestrator dies; the next one finds the same pods."""
    before = uids(cluster)
    fleet.kill()
    fleet.start()
    assert set(states(fleet).values()) == {"running"}
    assert uids(cluster) == before


def evicted(fleet, cluster, desk: str) -> None:
    node, uid = uids(cluster)[desk]
    name = next(p["metadata"]["name"] for p in cluster.pods(desk=desk))
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": "hotdesk"}}
    cluster.post(f"/api/v1/namespaces/hotdesk/pods/{name}/eviction", eviction)
    eventually(lambda: uids(cluster).get(desk, (node, uid))[1] != uid, "another pod is made", limit=60)
    eventually(lambda: states(fleet)[desk] == "running", "the desk runs again", limit=120)
    assert picture(fleet, desk).size == (1280, 800)


def node_lost(fleet, cluster, desks: list[str]) -> None:
    before = uids(cluster)
    dead = next(node for node, _ in before.values())
    hit = [desk for desk in desks if before[desk][0] == dead]
    cluster.script("kill", dead)
    begun = time.monotonic()

    def elsewhere() -> bool:
        now = uids(cluster)
        moved = all(now.get(desk, (dead, ""))[0] != dead for desk in desks)
        return moved and set(states(fleet).values()) == {"running"}

    eventually(elsewhere, f"the desks of {dead} run elsewhere", limit=180)
    print(f"{len(hit)} desks of {dead} run elsewhere {time.monotonic() - begun:.1f} s after its death")
    after = uids(cluster)
    assert {desk: after[desk] for desk in desks if desk not in hit} == {desk: before[desk] for desk in desks if desk not in hit}
    for desk in desks:
        assert picture(fleet, desk).size == (1280, 800)
    reasons = [e["reason"] for e in fleet.request("GET", f"/v1/events?desk={hit[0]}&limit=100").json()["events"]]
    assert any("found dead" in reason for reason in reasons), reasons


def test_a_gateway_outside_of_the_cluster(cluster):
    with served.fleet(provider="kubernetes", settings=settings(cluster, "forward")) as fleet:
        desk = create(fleet)["id"]
        assert picture(fleet, desk).size == (1280, 800)
        assert fleet.hotdesk("exec", desk, "--", "echo", "through the API server").stdout.strip() == "through the API server"
        fleet.kill()
        fleet.start()
        assert picture(fleet, desk).size == (1280, 800)


def test_a_pool(cluster):
    with served.fleet(provider="kubernetes", settings=settings(cluster)) as fleet:
        pool = {"template": "bare", "min": 2, "max": 2, "resources": {"cpus": 1.0, "memory_mib": 512, "disk_mib": 1024}}
        assert fleet.request("PUT", "/v1/pools", json=pool).status_code in (200, 201)
        eventually(lambda: fleet.request("GET", "/v1/pools").json()["pools"][0]["ready"] == 2, "two desks are kept ready", limit=180)
        begun = time.monotonic()
        desk = create(fleet)["id"]
        print(f"claimed in {(time.monotonic() - begun) * 1000:.0f} ms")
        assert picture(fleet, desk).size == (1280, 800)
        assert fleet.request("GET", "/v1/pools").json()["pools"][0]["claims"] == 1
