"""Vendors that exist for a test, and a fleet that rents from them."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "fleet"))

import daytona  # noqa: E402
import e2b  # noqa: E402
import seeds  # noqa: E402
import served  # noqa: E402


def pytest_configure(config):
    seeds.announce(config)


VENDORS = {"daytona": daytona.Daytona, "e2b": e2b.E2b}


@contextmanager
def opened(vendor):
    """A vendor until the end of the block; every request that it got must have been as described."""
    try:
        yield vendor
        assert not vendor.wrong, "\n".join(sorted(set(vendor.wrong)))
    finally:
        vendor.close()


@pytest.fixture(params=sorted(VENDORS))
def vendor(request):
    with opened(VENDORS[request.param]()) as one:
        yield one


def renting(vendor, **more):
    """A fleet whose desks live there."""
    settings = more.pop("settings", None) or vendor.settings()
    return served.fleet(provider=vendor.name, settings='template = "bare"\n' + settings, environment=vendor.environment | more.pop("environment", {}), **more)


@pytest.fixture
def fleet(vendor):
    with renting(vendor) as one:
        yield one
    assert vendor.alive() == [], "the vendor bills for what nobody knows of any more"


@pytest.fixture
def client(fleet):
    return fleet.client()
