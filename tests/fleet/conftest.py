"""Black-box tests of `hotdesk serve`: each starts a fleet of its own, and looks afterwards whether anything is left of it."""

from __future__ import annotations

import pytest
import seeds
import served


def pytest_configure(config):
    seeds.announce(config)


@pytest.fixture(scope="session", autouse=True)
def template():
    """The template of the tests, built."""
    served.ensure_built(served.TEMPLATE)
    return served.TEMPLATE


@pytest.fixture
def fleet():
    """A fleet with the default settings."""
    with served.fleet() as one:
        yield one


@pytest.fixture(scope="module")
def shared():
    """A fleet for all tests of a file."""
    with served.fleet() as one:
        yield one


@pytest.fixture
def admin(fleet):
    return fleet.client()
