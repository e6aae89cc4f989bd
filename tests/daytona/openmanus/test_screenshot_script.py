"""A well-known script: a snapshot, a volume at /vm, and /screenshot asked for again and again with the token as bearer."""

from __future__ import annotations

from urllib.parse import urljoin

import httpx
import pytest
from daytona import CreateSandboxFromSnapshotParams, CreateSnapshotParams, Daytona, DaytonaConfig, Image, Resources, VolumeMount
from support import supports


@pytest.fixture
def client(url, key):
    return Daytona(DaytonaConfig(api_key=key, api_url=url, target="us"))


@supports("scripts for OSWorld", "a snapshot, a volume at `/vm`, and `/screenshot` asked for with the token as bearer")
def test_snapshot_volume_and_screenshot(client, tag, until):
    snapshot = client.snapshot.create(
        CreateSnapshotParams(name=tag("osworld"), image=Image.base("debian:12.9"), resources=Resources(cpu=1, memory=2, disk=5)),
        on_logs=print,
    )
    volume = client.volume.get(tag("disk"), create=True)
    until(lambda: client.volume.get(volume.name).state == "ready", what="the volume is ready")
    sandbox = client.create(
        CreateSandboxFromSnapshotParams(
            snapshot=snapshot.name,
            volumes=[VolumeMount(volumeId=volume.id, mountPath="/vm")],
            env_vars={"DISK_SIZE": "32G", "RAM_SIZE": "4G", "CPU_CORES": "4"},
            public=False,
        )
    )
    try:
        assert sandbox.process.exec("touch /vm/System.qcow2 && ls /vm").result.split() == ["System.qcow2"]
        link = sandbox.get_preview_link(5000)
        probe = urljoin(link.url, "/screenshot")
        assert httpx.get(probe, trust_env=False).status_code in (401, 404)

        def picture():
            reply = httpx.get(probe, headers={"Authorization": f"Bearer {link.token}"}, trust_env=False)
            return reply.content if reply.status_code == 200 else None

        assert until(picture, what="a screenshot").startswith(b"\x89PNG")
    finally:
        client.delete(sandbox)
        client.snapshot.delete(snapshot)
        client.volume.delete(volume)
