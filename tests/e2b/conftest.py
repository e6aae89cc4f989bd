"""E2B's SDK as it is on PyPI, pointed at a fleet as a user does it: by three variables."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests"))

import support  # noqa: E402


def pytest_configure(config):
    support.register(config, "e2b", f"`e2b` {importlib.metadata.version('e2b')}")
    binary = os.environ.get("HOTDESK_BIN", os.path.join(ROOT, "target", "release", "hotdesk"))
    lines = subprocess.run([binary, "env", "e2b", "--json"], check=True, capture_output=True, text=True).stdout
    # A sandbox waits for its template, but no client waits so long for a sandbox.
    for template in ("code", "desktop"):
        subprocess.run([binary, "template", "build", template], check=True, stdout=subprocess.DEVNULL)
    for name in ("E2B_DOMAIN", "E2B_DEBUG", "E2B_ACCESS_TOKEN"):
        os.environ.pop(name, None)
    os.environ.update(json.loads(lines))
    assert os.environ["E2B_API_KEY"].startswith("e2b_"), "some releases insist on keys of that form"


@pytest.fixture
def new_sandbox():
    """Makes sandboxes, and ends them after the test."""
    from e2b import Sandbox

    made = []

    def make(**options):
        options.setdefault("timeout", 120)
        made.append(Sandbox.create(**options))
        return made[-1]

    yield make
    for sandbox in made:
        sandbox.kill()


@pytest.fixture(scope="module")
def box():
    """One sandbox for the tests of a file."""
    from e2b import Sandbox

    with Sandbox.create(timeout=600) as sandbox:
        yield sandbox
