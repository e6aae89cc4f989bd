"""A Docker daemon of one's own (scripts/dockerd), which can be killed."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from contextlib import contextmanager

from served import ROOT

SCRIPT = str(ROOT / "scripts/dockerd")


class Daemon:
    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.environment = {"DOCKER_HOST": f"unix://{directory}/docker.sock"}
        #: The daemon's published ports are in its own network namespace, so whoever uses them has to be there too.
        self.before = [SCRIPT, "run", directory]

    def start(self) -> None:
        subprocess.run([SCRIPT, "start", self.directory], check=True, timeout=120)

    def kill(self) -> None:
        subprocess.run([SCRIPT, "kill", self.directory], check=True, timeout=60)


@contextmanager
def daemon():
    directory = tempfile.mkdtemp(prefix="hd-docker-", dir="/tmp")
    one = Daemon(directory)
    before = os.environ.get("DOCKER_HOST")
    try:
        one.start()
        os.environ["DOCKER_HOST"] = one.environment["DOCKER_HOST"]  # for our own look at its containers
        yield one
    finally:
        os.environ.pop("DOCKER_HOST", None)
        if before is not None:
            os.environ["DOCKER_HOST"] = before
        subprocess.run([SCRIPT, "stop", directory], check=False, timeout=120)
        shutil.rmtree(directory, ignore_errors=True)
