"""The TypeScript SDK, which most desktop clients are made with."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
import served
from support import supports
from test_tools import TOOLS

HERE = Path(__file__).parent / "node"


@pytest.fixture(scope="session")
def packages() -> Path:
    """A folder with the SDK, made once."""
    if not shutil.which("npm"):
        pytest.fail("npm is missing: scripts/test-mcp puts the one of scripts/node on the path")
    wanted = (HERE / "package.json").read_bytes()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hotdesk"
    folder = cache / f"node-{hashlib.sha256(wanted).hexdigest()[:12]}"
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "ready").exists():
            (folder / "package.json").write_bytes(wanted)
            subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts"], cwd=folder, check=True, timeout=600)
            (folder / "ready").touch()
    return folder


@supports("ways in", "the TypeScript SDK 1.32.2")
def test_the_typescript_sdk(fleet, desk, packages):
    command = ["node", str(HERE / "client.mjs"), fleet.url, fleet.key, served.BINARY, desk]
    done = subprocess.run(command, cwd=packages, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["http"] == seen["stdio"], "both ways in are the same"
    for one in seen.values():
        assert set(one["tools"]) == TOOLS
        assert one["kinds"] == ["text", "image"] and one["run"] == "exit code 0\nstdout:\nhello\n"
        assert one["wrong"][0] is True and "nobody" in one["wrong"][1]
        assert f"desk://{desk}/screenshot" in one["resources"]
