"""Golden images: uploaded, imported, in a family, with versions; desks are made from the newest."""

from __future__ import annotations

import io
import json
import os
import subprocess
import tarfile

import hotdesk
from conftest import fleet_at, settings
from machine import BINARY
from test_life import WAIT_S


def disk(path, content: bytes):
    """A disk as an import wants it, though small."""
    with tarfile.open(path, "w:gz", format=tarfile.GNU_FORMAT) as archive:
        head = tarfile.TarInfo("disk.raw")
        head.size = len(content)
        archive.addfile(head, io.BytesIO(content))
    return path


def publish(google, account, folder, file, *more):
    (folder / "hotdesk.toml").write_text(settings(google))
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "GOOGLE_APPLICATION_CREDENTIALS": str(account.file)}
    command = [BINARY, "image", "publish", "bare", "--file", str(file), "--data", str(folder), "--json", *more]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_versions(google, account, tmp_path):
    google.images.clear()
    published = []
    for version in range(4):
        # more than one part, so that parts are put together
        file = disk(tmp_path / "disk.tar.gz", os.urandom(20 << 20) if version == 0 else os.urandom(1 << 10))
        google.fail("images.insert", "lost")
        published.append(publish(google, account, tmp_path, file, "--keep", "2"))
    images = [one["image"] for one in published]
    assert len(set(images)) == 4 and all(one["family"] == "hotdesk-bare" and not one["old"] for one in published)
    assert set(google.images) == set(images[2:]), "two versions are kept"
    assert published[3]["pruned"] == [images[1]]
    assert google.bucket.objects == {} and len(google.bucket.imported) == 4, "uploads are removed"

    again = publish(google, account, tmp_path, file, "--keep", "2")
    assert again == {"image": images[3], "family": "hotdesk-bare", "old": True, "pruned": []}
    assert len(google.bucket.imported) == 4

    with fleet_at(google, account) as fleet:
        desk = fleet.client().desks.create(timeout=WAIT_S)
        assert desk.state == hotdesk.State.RUNNING
        asked = next(meant for meant, _ in google.requests.values() if "sourceImage" in meant)
        assert f"global/images/{images[3]}" in asked, "the version is pinned by its name"
