"""Volumes from outside: files that outlive desks, in a directory and in a bucket."""

from __future__ import annotations

import json
from pathlib import Path

import s3
import served
from served import TEMPLATE
from waiting import eventually


def new(fleet, name: str, *volumes: str) -> None:
    mounts = [word for volume in volumes for word in ("--volume", volume)]
    fleet.hotdesk("new", "--template", TEMPLATE, "--name", name, "--cpus", "0.5", "--memory", "512M", *mounts)


def run(fleet, desk: str, script: str):
    return fleet.client().desks.get(desk).exec(script)


def test_what_one_desk_writes_the_next_one_reads(fleet):
    fleet.hotdesk("volume", "new", "data")
    new(fleet, "first", "data:/data/in")
    assert run(fleet, "first", "echo precious > /data/in/file").ok
    told = fleet.hotdesk("volume", "rm", "data", check=False)
    assert told.returncode == 4 and "is mounted in first" in told.stderr
    fleet.hotdesk("reset", "first")
    assert run(fleet, "first", "cat /data/in/file").stdout == "precious\n", "it lives through a reset"
    fleet.hotdesk("rm", "first")
    new(fleet, "second", "data:/vm:ro")
    assert run(fleet, "second", "cat /vm/file").stdout == "precious\n", "it outlives its desk"
    refused = run(fleet, "second", "rm -f /vm/file")
    assert not refused.ok and "Read-only" in refused.stderr
    fleet.hotdesk("rm", "second")
    fleet.hotdesk("volume", "rm", "data")
    assert json.loads(fleet.hotdesk("volume", "ls", "--json").stdout) == []


def test_refusals_are_clear(fleet):
    fleet.hotdesk("volume", "new", "one", "--exclusive")
    for mount, code, words in [
        ("one:/", 2, "can't be mounted at /"),
        ("one:/proc", 2, "the desk's own"),
        ("one:/a/../b", 2, "without . and .."),
        ("none:/vm", 5, "there is no volume none"),
    ]:
        told = fleet.hotdesk("new", "--template", TEMPLATE, "--volume", mount, check=False)
        assert told.returncode == code and words in told.stderr, told
    new(fleet, "owner", "one:/vm")
    told = fleet.hotdesk("new", "--template", TEMPLATE, "--volume", "one:/vm", check=False)
    assert told.returncode == 4 and "one desk at a time" in told.stderr, told
    told = fleet.hotdesk("volume", "new", "bucket", "--source", "s3://a,b:c/d", check=False)
    assert told.returncode == 2 and "s3://BUCKET/PREFIX" in told.stderr, told


def test_a_bucket(tmp_path: Path):
    with s3.server(tmp_path) as (_, environment):
        # rclone does not take one
        environment["AWS_CA_BUNDLE"] = ""
        with served.fleet(environment=environment) as fleet:
            fleet.hotdesk("volume", "new", "bucket", "--source", "s3://hotdesk/prefix")
            new(fleet, "writer", "bucket:/bucket")
            assert run(fleet, "writer", "echo far > /bucket/file").ok
            stored = tmp_path / "s3/data/hotdesk/prefix/file"
            eventually(lambda: stored.exists() and stored.read_text() == "far\n", "the file is in the bucket")
            fleet.hotdesk("rm", "writer")
            new(fleet, "reader", "bucket:/in:ro")
            assert run(fleet, "reader", "cat /in/file").stdout == "far\n"
            assert not run(fleet, "reader", "touch /in/x").ok
            fleet.hotdesk("rm", "reader")
            fleet.hotdesk("volume", "rm", "bucket")
            assert stored.read_text() == "far\n", "a bucket keeps what is in it"
            assert str(fleet.data) not in Path("/proc/mounts").read_text(), "no mount is left"
