"""Hostile programs in desks of the provider `local`: one of an ordinary template, and one whose user may become root.

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

from hotdesk import Resources

SMALL = Resources(cpus=1, memory_mib=512, disk_mib=1024)
#: Its user may become root by `sudo`.
ROOTED = "code"

#: As the desk's user, in both desks. Perl is in every template.
OF_THE_USER = {
    "the desk's secret in a file": "cat /run/hotdesk/token",
    "a file in the directory that lies on the host": "touch /run/hotdesk/x",
    "the desk's socket is replaced": "rm -f /run/hotdesk/desk.sock && ! test -e /run/hotdesk/desk.sock",
    "a new token by the socket for programs": "ask /v1/thaw '{\"token\":\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"}' | grep -q ' 2..'",
    "everybody sent away by the socket for programs": "ask /v1/freeze '{}' | grep -q ' 2..'",
    "a raw socket": "perl -e 'socket(my $s, 2, 3, 255) or exit 1'",
    "a packet socket": "perl -e 'socket(my $s, 17, 3, 0) or exit 1'",
    "a socket to the host of a virtual machine": "perl -e 'socket(my $s, 40, 1, 0) or exit 1'",
    "a pair of sockets of a family that loads a module": "perl -e 'socketpair(my $a, my $b, 30, 1, 0) or exit 1'",
    "a call that is newer than the list": 'perl -e \'syscall(467, -1, 0, 0, 0, 0); exit($!{ENOSYS} ? 1 : 0)\'',
    "a mount": "mount -t tmpfs none /mnt",
    "a user namespace": "unshare -U true",
    "a setting of the kernel": "echo 1 > /proc/sys/net/ipv4/ip_forward",
    "the kernel's memory": "head -c 1 /proc/kcore",
    "a device": "mknod /tmp/disk b 8 0",
    "no end of processes": "perl -e 'my @all; for (1..5000) { my $p = fork; unless (defined $p) { kill 9, @all; exit 1 } unless ($p) { sleep 60; exit } push @all, $p } kill 9, @all; exit 0'",
    "a change of the packet filter": "perl -e 'socket(my $s, 16, 3, 12) or exit 1; bind($s, pack(\"SSLL\", 16, 0, 0, 0)) or exit 1; "
    "send($s, pack(\"LSSLLCCn\", 20, 0x10, 1, 0, 0, 0, 0, 10) . pack(\"LSSLLCCnSSa8\", 32, 0xa02, 5, 0, 0, 1, 0, 0, 12, 1, \"hotdesk\") . "
    "pack(\"LSSLLCCn\", 20, 0x11, 1, 0, 0, 0, 0, 10), 0) or exit 1; recv($s, my $r, 8192, 0); exit(unpack(\"x16l\", $r) == 0 ? 0 : 1)'",
}  # fmt: skip

#: As the desk's root, where there is one.
OF_ROOT = {
    "a link in place of a name that the host looks at":
        "cd /run/hotdesk; for n in *; do mv $n .$n && exit 0; rm -f $n; test -e $n || exit 0; ln -sfn /etc/shadow $n && exit 0; ln -s /etc/shadow l-$n && exit 0; done; exit 1",
    "a listener in place of the desk's server": "cd /run/hotdesk; rm -f server.sock; perl -MIO::Socket::UNIX -e 'IO::Socket::UNIX->new(Local => \"/run/hotdesk/server.sock\", Listen => 1) or exit 1'",
    "the host's disk is filled": "dd if=/dev/zero of=/run/hotdesk/fill bs=1M count=16 || dd if=/dev/zero of=/run/hotdesk/desk.toml bs=1M count=16",
    "the directory of the host changes its owner": "chown 0:0 /run/hotdesk || chmod 777 /run/hotdesk || chown 0 /run/hotdesk/desk.toml",
    "the directory of the host is writable again": "mount -o remount,rw /run/hotdesk || mount --bind /tmp /run/hotdesk",
    "a raw socket, as root": OF_THE_USER["a raw socket"],
    "a packet socket, as root": OF_THE_USER["a packet socket"],
    "a raw socket of ICMP, as root": "perl -e 'socket(my $s, 2, 3, 1) or exit 1'",
    "a change of the packet filter, as root": OF_THE_USER["a change of the packet filter"],
    "a change of the routes": "ip route del unreachable 169.254.0.0/16 || ip addr add 10.9.9.9/32 dev lo || ip link set tap0 down",
    "a device, as root": "mknod /tmp/disk b 8 0",
    "a file that gives rights": "python3 -c 'import os; open(\"/tmp/f\", \"w\"); os.setxattr(\"/tmp/f\", \"security.capability\", bytes([1, 0, 0, 2] + [255] * 16))'",
    "a mount, as root": "mount -t tmpfs none /mnt",
    "another root directory": "chroot / true",
    "a user namespace, as root": "unshare -U true",
    "the host's processes": "test $(ls -d /proc/[0-9]* | wc -l) -gt 60",
    "a setting of the kernel, as root": "echo 1 > /proc/sys/net/ipv4/ip_forward || echo x > /proc/sys/kernel/core_pattern",
    "the host's name": "hostname other",
}  # fmt: skip

#: What must not be reached over the network; `PORT` listens on every address of the host, its loopback included.
ADDRESSES = ["10.0.2.2", "169.254.169.254", "168.63.129.16", "100.100.100.200", "192.168.0.1", "172.17.0.1", "10.0.0.1"]

#: Asks the desk's server by the socket that needs no token.
ASK = r"""ask() { perl -MIO::Socket::UNIX -e 'my $s = IO::Socket::UNIX->new(Peer => "/run/user/1000/hotdesk.sock") or die;
print $s "POST $ARGV[0] HTTP/1.1\r\nhost: d\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: " . length($ARGV[1]) . "\r\n\r\n$ARGV[1]"; print scalar <$s>' "$1" "$2"; }
"""


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
            one.sendall(b"the host\n")
            one.close()


@pytest.fixture(scope="module")
def place():
    served.ensure_built(TEMPLATE, ROOTED)
    with served.fleet() as fleet:
        admin = fleet.client()
        desks = {
            "ordinary": admin.desks.create(TEMPLATE, name="ordinary", resources=SMALL),
            "rooted": admin.desks.create(ROOTED, name="rooted", resources=SMALL),
        }
        fleet.desks = desks
        yield fleet
        # Whatever they tried, both desks are as they were: open to their keeper, and to nobody else.
        for desk in desks.values():
            assert desk.exec("echo well").stdout == "well\n"


def refused(desk, script: str, *, root: bool = False) -> None:
    words = ["sh", "-c", ASK + script]
    out = desk.exec(["sudo", *words] if root else words, timeout=60)
    assert out.exit_code != 0, f"it was done:\n{out.stdout}{out.stderr}"


def own_addresses() -> list[str]:
    out = subprocess.run(["hostname", "-I"], capture_output=True, text=True, check=True)
    return [address for address in out.stdout.split() if ":" not in address]


@pytest.mark.parametrize("probe", OF_THE_USER)
@pytest.mark.parametrize("name", ["ordinary", "rooted"])
def test_of_the_user(place, name, probe):
    refused(place.desks[name], OF_THE_USER[probe])


@pytest.mark.parametrize("probe", OF_ROOT)
def test_of_root(place, probe):
    assert place.desks["rooted"].exec(["sudo", "id", "-u"]).stdout == "0\n"
    refused(place.desks["rooted"], OF_ROOT[probe], root=True)


@pytest.mark.parametrize("name", ["ordinary", "rooted"])
def test_nothing_of_the_host_is_reached(place, name):
    listener = Listener()
    desk = place.desks[name]
    for address in [*own_addresses(), *ADDRESSES, "127.0.0.1", "0.0.0.0"]:
        refused(desk, f"timeout 2 bash -c '</dev/tcp/{address}/{listener.port}'")
    for address in [*own_addresses(), *ADDRESSES, "127.0.0.1"]:
        # Past the routes: by a socket that is bound to the device.
        bound = f'use Socket; socket(my $s, 2, 2, 17) or die; setsockopt($s, 1, 25, "tap0\\0") or die; exit(send($s, "x", 0, pack_sockaddr_in({listener.port}, inet_aton("{address}"))) ? 0 : 1)'
        refused(desk, f"perl -e '{bound}'")
    assert listener.came == 0, "somebody came"
    with socket.create_connection(("127.0.0.1", listener.port)) as one:
        assert one.recv(100) == b"the host\n", "and whoever may come is heard"


def test_a_snapshot_with_memory_tells_root_nothing(place):
    """C1 of the review: what the host reads and sends while it saves a desk, after its root did what it could."""
    desk = place.desks["rooted"]
    key = Path(place.data, "admin.key")
    script = f"""cd /run/hotdesk; mv token t; ln -s {key} token; mv server.sock s; cat > /tmp/l.py <<'END'
import socket
s = socket.socket(socket.AF_UNIX); s.bind("/run/hotdesk/server.sock"); s.listen(); c, _ = s.accept()
open("/tmp/got", "wb").write(c.recv(65536)); c.sendall(b"HTTP/1.1 200 OK\\r\\ncontent-length: 2\\r\\n\\r\\n{{}}")
END
setsid python3 /tmp/l.py >/dev/null 2>&1 &"""
    desk.exec(["sudo", "sh", "-c", script])
    desk.snapshot("after", memory=True)
    refused(desk, "test -e /tmp/got", root=True)
    copy = desk.fork(memory=True)
    copy = copy[0] if isinstance(copy, list) else copy
    for probe in ["a link in place of a name that the host looks at", "a listener in place of the desk's server", "the host's disk is filled"]:
        refused(copy, OF_ROOT[probe], root=True)
    copy.delete()
    secret = Path(place.data, "local/desks", desk.id, "secret")
    assert secret.stat().st_mode & 0o777 == 0o600 and os.stat(secret.parent / "run").st_uid == os.getuid()
