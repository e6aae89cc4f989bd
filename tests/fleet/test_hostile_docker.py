"""Hostile programs in desks of the provider `docker`: with a network, without one, and of a template whose user may become root.

Each probe has a name and is a shell script that ends with 0 if it got what it wanted. All of them are to be refused.
`docs/security.md` says which promise each of them holds.
"""

from __future__ import annotations

import json
import subprocess
import time

import dockerd
import pytest
import served
from served import TEMPLATE

import hotdesk

SMALL = {"provider": "docker", "resources": {"cpus": 1, "memory_mib": 512}}
SECRET_LABEL = "only-the-client-knows"
#: A world around the daemon's machine: what each address stands for.
OUTSIDE = "203.0.113.2"
WORLD = {
    "a private network": "10.77.0.2",
    "another private network": "192.168.77.2",
    "a tailnet": "100.64.7.7",
    "Amazon's and Google's credentials": "169.254.169.254",
    "Azure's credentials": "168.63.129.16",
    "Alibaba's credentials": "100.100.100.200",
}
#: The machine's own addresses.
MACHINE = {"the machine, from its outside": "203.0.113.1", "the machine, from its inside": "10.77.0.1"}
PORT = 8080

INSIDE = {
    "a mount": "mount -t tmpfs none /mnt",
    "a user namespace": "unshare -U true",
    "a device": "mknod /tmp/disk b 8 0",
    "a raw socket": "perl -e 'socket(my $s, 2, 3, 255) or exit 1'",
    "a packet socket": "perl -e 'socket(my $s, 17, 3, 0) or exit 1'",
    "a setting of the kernel": "echo 1 > /proc/sys/net/ipv4/ip_forward",
    "the kernel's memory": "head -c 1 /proc/kcore",
    "a right": "grep -q 'CapBnd:.*[1-9a-f]' /proc/self/status",
    "a right that a program gives": "grep -q 'NoNewPrivs:.*0' /proc/self/status",
    "a file of the system": "touch /usr/x",
    "the Engine": "test -S /var/run/docker.sock",
    "the host's processes": "test $(ls -d /proc/[0-9]* | wc -l) -gt 100",
}


@pytest.fixture(scope="module")
def place():
    with dockerd.daemon() as daemon:
        run = lambda words: subprocess.run([*daemon.before, "sh", "-euc", words], check=True)  # noqa: E731
        addresses = " ".join([f"{OUTSIDE}/24", *(f"{a}/32" for a in WORLD.values())])
        script = (
            "ip link set lo up; until ip link show out1 >/dev/null 2>&1; do sleep 0.05; done; "
            f"for a in {addresses}; do ip addr add $a dev out1; done; ip link set out1 up; ip route add default via 203.0.113.1; "
            f"exec python3 -m http.server {PORT} --bind 0.0.0.0"
        )
        world = subprocess.Popen([*daemon.before, "unshare", "--net", "--", "sh", "-c", script], stderr=subprocess.DEVNULL)
        machine = None
        try:
            ours = subprocess.run([*daemon.before, "readlink", "/proc/self/ns/net"], capture_output=True, text=True, check=True).stdout
            while subprocess.run(["readlink", f"/proc/{world.pid}/ns/net"], capture_output=True, text=True).stdout in ("", ours):
                assert world.poll() is None
                time.sleep(0.02)
            run(f"ip link add out0 type veth peer name out1 netns {world.pid}; ip addr add 203.0.113.1/24 dev out0; ip addr add 10.77.0.1/32 dev out0; ip link set out0 up")
            run("; ".join(f"ip route add {a} dev out0" for a in WORLD.values()))
            machine = subprocess.Popen([*daemon.before, "python3", "-m", "http.server", "8081", "--bind", "0.0.0.0"], stderr=subprocess.DEVNULL)
            for address, port in [*((a, PORT) for a in [OUTSIDE, *WORLD.values()]), *((a, 8081) for a in MACHINE.values())]:
                reached = f"until curl -s -o /dev/null -m 5 http://{address}:{port}/; do sleep 0.05; done"
                subprocess.run([*daemon.before, "timeout", "30", "sh", "-c", reached], check=True)
            with served.fleet(provider="docker", environment=daemon.environment, before=daemon.before, socket=True) as fleet:
                client = fleet.client()
                labels = {"note": SECRET_LABEL}
                fleet.desks = {
                    "open": client.desks.create(TEMPLATE, labels=labels, env={"SECRET": SECRET_LABEL}, timeout=300, **SMALL),
                    "closed": client.desks.create(TEMPLATE, network=False, timeout=300, **SMALL),
                }
                fleet.daemon = daemon
                yield fleet
                for desk in fleet.desks.values():
                    assert desk.exec("echo well").stdout == "well\n"
        finally:
            for process in filter(None, [machine, world]):
                process.kill()
                process.wait()


def tried(desk, script: str):
    return desk.exec(["sh", "-c", script], timeout=60)


def refused(desk, script: str) -> None:
    out = tried(desk, script)
    assert out.exit_code != 0, f"it was done:\n{out.stdout}{out.stderr}"


def connect(address: str, port: int) -> str:
    return f"timeout 3 perl -MIO::Socket::INET -e 'IO::Socket::INET->new(PeerAddr => \"{address}\", PeerPort => {port}, Timeout => 2) or exit 1'"


@pytest.mark.parametrize("probe", INSIDE)
@pytest.mark.parametrize("name", ["open", "closed"])
def test_inside(place, name, probe):
    refused(place.desks[name], INSIDE[probe])


def test_the_outside_is_reached_by_who_may(place):
    assert tried(place.desks["open"], connect(OUTSIDE, PORT)).exit_code == 0, "else the probes of the network say nothing"
    refused(place.desks["closed"], connect(OUTSIDE, PORT))


@pytest.mark.parametrize("what", [*WORLD, *MACHINE])
@pytest.mark.parametrize("name", ["open", "closed"])
def test_networks(place, name, what):
    refused(place.desks[name], connect(WORLD[what], PORT) if what in WORLD else connect(MACHINE[what], 8081))


@pytest.mark.parametrize("flush", ["-F INPUT", "-F DOCKER-USER", "-F", "-I FORWARD -j ACCEPT"])
def test_what_guards_desks_comes_back_by_itself(place, flush):
    """As after `systemctl restart firewalld`: nobody tells, so the fleet looks."""
    guard = [*place.daemon.before, "sh", "-c"]
    subprocess.run([*guard, f"iptables {flush}"], check=True)
    inside, beyond = connect(MACHINE["the machine, from its inside"], 8081), connect(WORLD["a private network"], PORT)
    end = time.monotonic() + 60
    while any(tried(place.desks["open"], probe).exit_code == 0 for probe in (inside, beyond)):
        assert time.monotonic() < end, "the rules are not back"
    # Closed because of our rules, not for want of a way.
    def rules() -> str:
        return subprocess.run([*guard, "iptables -S INPUT; iptables -S DOCKER-USER; iptables -S FORWARD"], capture_output=True, text=True, check=True).stdout

    while f"-j HOTDESK-{place.name}" not in rules() or "--ctdir ORIGINAL -j DROP" not in rules():
        assert time.monotonic() < end, rules()
        time.sleep(0.2)


def test_the_engine_is_told_no_secret(place):
    told = subprocess.run(["docker", "inspect", f"hotdesk-{place.name}-{place.desks['open'].id}"], capture_output=True, text=True, check=True).stdout
    assert json.loads(told)[0]["State"]["Running"]
    assert SECRET_LABEL not in told, "labels and variables of a desk are shown by docker inspect"
    assert place.desks["open"].exec("echo $SECRET").stdout.strip() == SECRET_LABEL, "though the desk has them"


def test_root_that_would_be_the_machines_is_refused(place):
    with pytest.raises(hotdesk.HotdeskError) as refusal:
        place.client().desks.create("code", timeout=300, **SMALL)
    assert "userns-remap" in str(refusal.value), refusal.value
    for desk in place.client().desks.list():
        if desk.id not in {d.id for d in place.desks.values()}:
            desk.delete()
