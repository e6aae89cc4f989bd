"""`hotdesk provider check`: one desk's whole life at a vendor, told step by step, and nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess

import served
from waiting import eventually


def command(vendor, folder, *more: str) -> dict:
    settings = folder / "settings.toml"
    settings.write_text(vendor.settings())
    env = {k: v for k, v in os.environ.items() if not k.startswith("HOTDESK_")} | vendor.environment | {"NO_COLOR": "1"}
    arguments = [served.BINARY, "provider", "check", vendor.name, "--template", "bare", "--config", str(settings), "--data", str(folder), "--images", str(folder / "images"), *more]
    return {"args": arguments, "env": env, "text": True}


def test_a_whole_check(vendor, tmp_path):
    done = subprocess.run(**command(vendor, tmp_path, "--json"), capture_output=True, timeout=180)
    assert done.returncode == 0, done.stderr
    steps = json.loads(done.stdout)
    assert all(step["good"] for step in steps) and len(steps) >= 12, steps
    for words in ("make a desk", "start it again", "go back to what was saved", "nothing is left"):
        assert words in done.stderr, done.stderr
    assert vendor.alive() == [] and vendor.key not in done.stderr + done.stdout


def test_an_interrupted_check_leaves_nothing(vendor, tmp_path):
    process = subprocess.Popen(**command(vendor, tmp_path), stderr=subprocess.PIPE)
    eventually(lambda: len(vendor.alive()) == 1, "a sandbox is made", limit=60)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert "interrupted; removing what was made" in said and process.returncode == 130, said
    assert vendor.alive() == []


def test_a_wrong_key_is_told(vendor, tmp_path):
    vendor.key_is_good = False
    done = subprocess.run(**command(vendor, tmp_path), capture_output=True, timeout=60)
    assert done.returncode != 0 and "API_KEY" in done.stderr, done.stderr
    assert vendor.alive() == []
