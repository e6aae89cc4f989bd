"""What of a fleet is there, seen from the machine and not from the fleet: processes, mounts, cgroups, network, loop devices, containers."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from pathlib import Path

DESK = re.compile(r"\bd-[a-z2-7]{12}\b")
#: The kernel takes a moment to remove what a process held.
SETTLE_S = 15


def look(data: str, fleet: str) -> list[str]:
    """Everything that carries the fleet's name or lies in its data directory, in words."""
    found = []
    for pid, text in processes(data, fleet):
        found.append(f"process {pid} ({command(pid)}): {text}")
    found += [f"mount {line}" for line in _lines("/proc/self/mountinfo") if _within(data, line)]
    found += [f"cgroup {path}" for path in cgroups(fleet)]
    found += [f"network namespace {path}" for path in Path("/run/netns").glob(f"*{fleet}*")]
    found += [f"network interface {name}" for name in interfaces(fleet)]
    found += [f"packet filter rule {line.strip()}" for line in _run("nft", "list", "ruleset").splitlines() if fleet in line]
    found += [f"loop device {line}" for line in _run("losetup", "-n", "-O", "NAME,BACK-FILE").splitlines() if data in line]
    found += [f"container {line}" for line in containers(fleet)]
    found += [f"file {path}" for path in files(data)]
    return found


def settled(data: str, fleet: str) -> list[str]:
    """What is left when nothing goes away any more."""
    end = time.monotonic() + SETTLE_S
    while (found := look(data, fleet)) and time.monotonic() < end:
        time.sleep(0.2)
    return found


def processes(data: str, fleet: str) -> list[tuple[int, str]]:
    """Processes that live in a cgroup of the fleet, on a file system of its data directory, or were started with its paths."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        base = f"/proc/{entry}"
        group = next((line for line in _lines(f"{base}/cgroup") if f"/{fleet}" in line), None)
        if group:
            found.append((int(entry), f"cgroup {group}"))
            continue
        mount = next((line for line in _lines(f"{base}/mountinfo") if _within(data, line)), None)
        if mount and not _own_mounts(entry):
            found.append((int(entry), f"mount {mount[:200]}"))
            continue
        words = command(int(entry))
        if data in words and "pytest" not in words:
            found.append((int(entry), "its command line"))
    return found


def running_desks(data: str, fleet: str) -> set[str]:
    """Ids of desks that have processes."""
    found = set(desk_processes(data, fleet))
    for line in containers(fleet):
        if " Up " in line:
            found.update(DESK.findall(line)[:1])
    return found


def desk_processes(data: str, fleet: str) -> dict[str, list[int]]:
    """The processes of each desk."""
    found: dict[str, list[int]] = {}
    for pid, text in processes(data, fleet):
        ids = DESK.findall(text)
        if not ids:
            ids = [i for line in _lines(f"/proc/{pid}/mountinfo") if _within(data, line) for i in DESK.findall(line)]
        for one in ids[:1]:
            found.setdefault(one, []).append(pid)
    return found


def cgroups(fleet: str) -> list[str]:
    """Groups of desks, and the fleet's own if somebody is in it."""
    found = []
    for own in _fleet_groups(fleet):
        found += [str(path) for path in own.iterdir() if path.is_dir()]
        if _lines(f"{own}/cgroup.procs"):
            found.append(str(own))
    return found


def remove(data: str, fleet: str) -> None:
    """Takes away by force what a fleet left that could not tidy up itself, so that one failed test does not disturb the next."""
    for _ in range(3):
        for pid, _ in processes(data, fleet):
            try:
                os.kill(pid, 9)
            except OSError:
                pass
        time.sleep(0.2)
    for line in containers(fleet):
        _run("docker", "rm", "-f", line.split()[0])
    mounts = [line.split()[4] for line in _lines("/proc/self/mountinfo") if _within(data, line)]
    for mount in reversed(mounts):
        _run("umount", "-l", mount)
    for path in Path("/run/netns").glob(f"*{fleet}*"):
        _run("ip", "netns", "del", path.name)
    for name in interfaces(fleet):
        _run("ip", "link", "del", name)
    for group in cgroups(fleet):
        for top, _, _ in os.walk(group, topdown=False):
            try:
                os.rmdir(top)
            except OSError:
                pass
    forget(fleet)


def forget(fleet: str) -> None:
    """Removes the fleet's own empty groups, which it keeps for its next desk."""
    for own in _fleet_groups(fleet):
        try:
            own.rmdir()
        except OSError:
            pass


def _fleet_groups(fleet: str) -> list[Path]:
    found = []
    for top, directories, _ in os.walk("/sys/fs/cgroup"):
        if os.path.basename(top) == fleet:
            found.append(Path(top))
            directories.clear()
    return found


def interfaces(fleet: str) -> list[str]:
    names = []
    for path in Path("/sys/class/net").iterdir():
        alias = next(iter(_lines(f"{path}/ifalias")), "")
        if fleet in alias or fleet in path.name:
            names.append(path.name)
    return names


def containers(fleet: str) -> list[str]:
    if not shutil.which("docker"):
        return []
    wanted = "{{.ID}} {{.Status}}  {{.Names}} {{.Labels}}"
    return _run("docker", "ps", "-a", "--no-trunc", "--filter", f"label=hotdesk.fleet={fleet}", "--format", wanted).splitlines()


def files(data: str) -> list[str]:
    """What lies in the data directory under a desk's id."""
    found = []
    for top, directories, names in os.walk(data):
        for name in [*directories, *names]:
            if DESK.search(name):
                found.append(os.path.join(top, name))
        directories[:] = [d for d in directories if not DESK.search(d)]
    return found


def _within(data: str, line: str) -> bool:
    """Whether a line of mountinfo is about something below the data directory (which may be a mount itself)."""
    return f"{data}/" in line


def _own_mounts(pid: str) -> bool:
    """Whether a process shares our mounts: then what it sees is what we see, and says nothing about it."""
    try:
        return os.readlink(f"/proc/{pid}/ns/mnt") == os.readlink("/proc/self/ns/mnt")
    except OSError:
        return True


def command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()
    except OSError:
        return ""


def parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text("utf-8", "replace").splitlines()
    except OSError:
        return []


def _run(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=20).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""
