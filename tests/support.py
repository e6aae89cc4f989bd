"""A pytest plugin: which parts of a dialect were held, by the tests that say so with `@pytest.mark.supports(PART, WHAT)`.

Where HOTDESK_SUPPORT names a directory, a run writes what it saw there; `scripts/support-tables` makes the pages' tables of it.
"""

from __future__ import annotations

import json
import os

import pytest


class Support:
    """`client` is the SDK and its release: a column of the table."""

    def __init__(self, dialect: str, client: str) -> None:
        self.dialect, self.client = dialect, client
        self.rows: dict[str, dict] = {}

    def pytest_configure(self, config):
        config.addinivalue_line("markers", "supports(part, what): the test holds this row of the page's table")

    def pytest_collection_modifyitems(self, items):
        for item in items:
            for mark in item.iter_markers("supports"):
                part, what = mark.args
                self.rows[item.nodeid] = {"part": part, "what": what, "test": item.originalname, "held": False}

    def pytest_runtest_logreport(self, report):
        row = self.rows.get(report.nodeid)
        if row and report.when == "call":
            row["held"] = report.passed

    def pytest_sessionfinish(self):
        folder = os.environ.get("HOTDESK_SUPPORT")
        if not folder or not self.rows:
            return
        # A test of several ways holds its row if all of them do.
        rows: dict[tuple, dict] = {}
        for row in self.rows.values():
            known = rows.setdefault((row["part"], row["what"], row["test"]), row)
            known["held"] = known["held"] and row["held"]
        path = os.path.join(folder, f"{self.dialect} {self.client}.json".replace("/", "-"))
        earlier = []
        if os.path.exists(path):
            with open(path) as file:
                earlier = json.load(file)["rows"]
        with open(path, "w") as file:
            json.dump({"dialect": self.dialect, "client": self.client, "rows": earlier + list(rows.values())}, file, indent=1)


def register(config, dialect: str, client: str) -> None:
    """For the `pytest_configure` of a conftest."""
    plugin = Support(dialect, client)
    config.pluginmanager.register(plugin, f"support-{dialect}")


supports = pytest.mark.supports
