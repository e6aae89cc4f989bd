"""A hostile guest of the provider `qemu`, and a hostile user of the machine beside it. One machine for all probes: it boots in seconds.

Each probe has a name and is a shell script that ends with 0 if it got what it wanted. All of them are to be refused.
`docs/security.md` says which promise each of them holds.
"""

from __future__ import annotations

import os
import socket
import subprocess
import threading
from pathlib import Path

import pytest
import served
from served import TEMPLATE

SMALL = {"provider": "qemu", "resources": {"cpus": 1, "memory_mib": 512}}
NOBODY = 65534
#: What a guest must not reach; 10.0.2.x is its own little network, whose other addresses lead to this machine.
ADDRESSES = ["10.0.2.2", "10.0.2.3", "10.0.2.77", "10.0.2.100", "127.0.0.1", "169.254.169.254", "168.63.129.16", "100.100.100.200", "192.168.0.1", "172.17.0.1", "10.1.0.1"]


class Listener:
    """Takes connections on every address of this machine, and remembers how many there were."""

    def __init__(self) -> None:
        self.socket = socket.create_server(("0.0.0.0", 0))
        self.port = self.socket.getsockname()[1]
        self.came = 0
        threading.Thread(target=self._take, daemon=True).start()

    def _take(self) -> None:
        while True:
            try:
                one, _ = self.socket.accept()
            except OSError:
                return
            self.came += 1
            one.close()


@pytest.fixture(scope="module")
def place():
    with served.fleet(provider="qemu", settings='[qemu]\naccel = "tcg"\n') as fleet:
        fleet.desk = fleet.client().desks.create(TEMPLATE, timeout=600, **SMALL)
        yield fleet
        assert fleet.desk.exec("echo well").stdout == "well\n"


def processes(place) -> dict[str, int]:
    """The machine's processes, by what they are."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path("/proc", pid, "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if f"guest=hotdesk-{place.name}-{place.desk.id}".encode() in words:
            found["QEMU"] = int(pid)
        elif b"vm" in words and any(place.desk.id.encode() in word and word.endswith(b"plan.json") for word in words):
            found["keeper"] = int(pid)
    return found


def status(pid: int) -> dict[str, list[str]]:
    lines = Path("/proc", str(pid), "status").read_text().splitlines()
    return {line.split(":", 1)[0]: line.split(":", 1)[1].split() for line in lines}


@pytest.mark.parametrize("which", ["QEMU", "keeper"])
@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user's machines are that user's")
def test_its_processes_are_nobody_on_this_machine(place, which):
    told = status(processes(place)[which])
    assert all(int(uid) > 524_288 for uid in told["Uid"] + told["Gid"]), told["Uid"]
    assert told["NoNewPrivs"] == ["1"] and int(told["CapEff"][0], 16) == 0 and int(told["CapPrm"][0], 16) == 0


@pytest.mark.parametrize("which", ["QEMU", "keeper"])
@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user's machines are that user's")
def test_its_processes_see_no_files_but_their_own(place, which):
    root = Path("/proc", str(processes(place)[which]), "root")
    assert os.readlink(f"/proc/{processes(place)[which]}/ns/mnt") != os.readlink("/proc/self/ns/mnt")
    for hidden in ["etc/shadow", "etc/passwd", "root", "home", "var/lib", str(Path(place.data, "admin.key")).lstrip("/"), str(Path(place.data, "qemu/snapshots")).lstrip("/")]:
        assert not os.path.lexists(root / hidden), f"{hidden} is seen"


def test_nothing_of_the_guest_listens_on_this_machine(place):
    own = set(processes(place).values())
    assert len(own) == 2
    sockets = set()
    for pid in own:
        for number in os.listdir(f"/proc/{pid}/fd"):
            try:
                sockets.add(os.readlink(f"/proc/{pid}/fd/{number}"))
            except OSError:
                pass
    for table in ["tcp", "tcp6", "udp", "udp6"]:
        for line in Path("/proc/net", table).read_text().splitlines()[1:]:
            words = line.split()
            assert f"socket:[{words[9]}]" not in sockets or not (table.startswith("udp") or words[3] == "0A"), f"it listens: {line}"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_nobody_of_this_machine_gets_in(place):
    run = Path(place.data, "qemu/desks", place.desk.id, "run")
    as_nobody = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    for name in os.listdir(run):
        code = f"import socket; s = socket.socket(socket.AF_UNIX); s.connect({str(run / name)!r})"
        assert subprocess.run([*as_nobody, "python3", "-c", code], stderr=subprocess.DEVNULL).returncode != 0, name
        assert subprocess.run([*as_nobody, "cat", run / name], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode != 0, name


def test_nothing_of_this_machine_is_reached(place):
    listener = Listener()
    own = [a for a in subprocess.run(["hostname", "-I"], capture_output=True, text=True, check=True).stdout.split() if ":" not in a]
    # 127.0.0.1 is the guest's own: nothing listens there.
    for address in [*own, *ADDRESSES]:
        out = place.desk.exec(["timeout", "4", "bash", "-c", f"</dev/tcp/{address}/{listener.port}"], timeout=60)
        assert out.exit_code != 0, f"{address} was reached"
    assert listener.came == 0, "somebody came"
    with socket.create_connection(("127.0.0.1", listener.port)):
        pass


@pytest.mark.skipif(os.geteuid() != 0, reason="links matter where the fleet is root and its machines are not")
def test_links_that_a_broken_machine_leaves_are_not_followed(place):
    """Whoever broke out of QEMU owns its directory. What the fleet reads there as root is read without following links."""
    run = Path(place.data, "qemu/desks", place.desk.id, "run")
    secret = Path(place.data, "stolen")
    secret.write_text("of-the-host-alone\n")
    kept = run / "console-before.log"
    if kept.exists():
        kept.unlink()
    kept.symlink_to(secret)
    try:
        assert "of-the-host-alone" not in place.hotdesk("logs", place.desk.id).stdout
        kept.unlink()
        os.link(secret, kept)  # as root; the machine's user could not even do that
        assert "of-the-host-alone" not in place.hotdesk("logs", place.desk.id).stdout
    finally:
        kept.unlink()
    machine = run / "machine.json"
    told = machine.read_text()
    victim = subprocess.Popen(["sleep", "600"])
    try:
        started = Path(f"/proc/{victim.pid}/stat").read_text().rsplit(")", 1)[1].split()[19]
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        machine.write_text('{"qemu":{"pid":%d,"started":%s,"boot":"%s"},"guest":"desk"}' % (victim.pid, started, boot))
        place.desk.stop()
        assert victim.poll() is None, "root ended a process that is none of the machine's"
    finally:
        victim.kill()
        victim.wait()
    assert told
    place.desk.start()
