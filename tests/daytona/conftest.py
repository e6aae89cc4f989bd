"""Daytona's SDK against a fleet; `scripts/test-dialects daytona` starts one and says where it is."""

from __future__ import annotations

import importlib.metadata
import os
import sys
import time
import uuid

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]

import support  # noqa: E402


def pytest_configure(config):
    support.register(config, "daytona", f"`daytona` {importlib.metadata.version('daytona')}")


@pytest.fixture(scope="session")
def url() -> str:
    return os.environ["HOTDESK_URL"] + "/daytona/api"


@pytest.fixture(scope="session")
def key() -> str:
    return os.environ["HOTDESK_KEY"]


@pytest.fixture(scope="session")
def tag():
    return lambda prefix="t": f"{prefix}-{uuid.uuid4().hex[:8]}"


@pytest.fixture(scope="session")
def until():
    """Waits for something to be true, and returns it."""

    def wait(check, limit: float = 30, what: str = ""):
        end = time.monotonic() + limit
        while True:
            if got := check():
                return got
            assert time.monotonic() < end, f"not within {limit} s: {what}"
            time.sleep(0.2)

    return wait
