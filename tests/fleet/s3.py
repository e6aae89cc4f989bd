"""A real S3 server for the length of a block (scripts/s3)."""

from __future__ import annotations

import re
import subprocess
from contextlib import contextmanager
from pathlib import Path

from served import ROOT


@contextmanager
def server(place: Path):
    """Gives the settings and the environment of a fleet that archives there."""
    script, directory = ROOT / "scripts/s3", str(place / "s3")
    said = subprocess.run([script, "start", directory], check=True, capture_output=True, text=True, timeout=900).stdout
    environment = dict(re.findall(r"(AWS_\w+)=(\S+)", said))
    # a server on loopback has no certificate
    environment["AWS_ALLOW_HTTP"] = "true"
    try:
        yield 'archive = "s3://hotdesk/fleet"\n', environment
    finally:
        subprocess.run([script, "stop", directory], check=False)
