"""What is behind an instance of the stand-in for Google: a desk on an address of loopback, with its files in a directory."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BINARY = os.environ.get("HOTDESK_BIN") or str(ROOT / "target/release/hotdesk")


class Machine:
    """One machine. `disk` outlives its being switched off."""

    def __init__(self, disk: Path, address: str, metadata: dict[str, str]) -> None:
        self.disk, self.address, self.metadata = disk, address, metadata
        self.process: subprocess.Popen[bytes] | None = None

    def on(self) -> None:
        """As `hotdesk boot` does it: token and settings are those of the metadata."""
        self.off()
        home = self.disk / "home"
        home.mkdir(parents=True, exist_ok=True)
        token = self.disk.with_suffix(".token")
        token.write_text(self.metadata["hotdesk-token"])
        settings = tomllib.loads(self.metadata["hotdesk-settings"])
        # Displays and ports of a machine of its own would meet here.
        lines = [f"size = {json.dumps(settings['size'])}", "[env]"]
        lines += [f"{name} = {json.dumps(value)}" for name, value in settings.get("env", {}).items()]
        config = self.disk.with_suffix(".toml")
        config.write_text("\n".join(lines) + "\n")
        self.process = subprocess.Popen(
            [BINARY, "desk", "--listen", f"{self.address}:5000", "--display", "auto", "--token-file", token, "--config", config],
            env={"PATH": os.environ["PATH"], "HOME": str(home), "NO_COLOR": "1"}, cwd=home,
            stdin=subprocess.DEVNULL, stdout=open(self.disk.with_suffix(".log"), "ab"), stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip

    def off(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            self.process = None

    def console(self) -> str:
        log = self.disk.with_suffix(".log")
        return log.read_text(errors="replace") if log.exists() else ""

    def remove(self) -> None:
        self.off()
        shutil.rmtree(self.disk, ignore_errors=True)
        for ending in (".token", ".toml", ".log"):
            self.disk.with_suffix(ending).unlink(missing_ok=True)
