"""scripts/suite, which lets a few failed tests try once more: it must never make a failure look like a success."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SUITE = Path(__file__).parents[2] / "scripts" / "suite"

TESTS = """
import os, pathlib, pytest

def lives(name, times):
    mark = pathlib.Path(__file__).with_name(name)
    tries = len(mark.read_text()) if mark.exists() else 0
    mark.write_text("x" * (tries + 1))
    assert tries >= times

@pytest.mark.parametrize("way", ["a - b", "c/d"])
def test_ways(way):
    lives("ways", WAYS) if way == "c/d" else None

class TestClass:
    def test_in_it(self):
        lives("class", CLASS)

@pytest.mark.parametrize("n", range(6))
def test_many(n):
    assert n >= MANY
"""


@pytest.mark.parametrize(
    "ways, in_class, many, good, again",
    [(0, 0, 0, True, False), (1, 1, 0, True, True), (2, 0, 0, False, True), (1, 2, 0, False, True), (0, 0, 6, False, False)],
    ids=["all pass", "two pass at the second try", "one fails twice", "one of two fails twice", "too many fail"],
)
def test_second_tries(tmp_path, ways, in_class, many, good, again):
    text = TESTS.replace("WAYS", str(ways)).replace("CLASS", str(in_class)).replace("MANY", str(many))
    (tmp_path / "test_it.py").write_text(text)
    command = [sys.executable, str(SUITE), sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not slow", "."]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert (done.returncode == 0) == good, done.stdout + done.stderr
    assert ("once more:" in done.stdout) == again, done.stdout
    assert not again or "test_many" not in done.stdout.split("once more:")[1], "only what failed is tried again"


def test_what_is_no_failed_test_stays_as_it_is(tmp_path):
    (tmp_path / "test_broken.py").write_text("import no_such_module\n")
    for arguments in (["."], ["no-such-file.py"]):
        command = [sys.executable, str(SUITE), sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
        assert done.returncode > 1 and "once more:" not in done.stdout, done.stdout
