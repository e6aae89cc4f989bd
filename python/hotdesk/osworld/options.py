"""What OSWorld's desks should be like. OSWorld has no place to say it, so the environment does."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Mapping

from ..errors import SettingsError
from ..models import Policy, Resources

PREFIX = "HOTDESK_OSWORLD_"


@dataclass(frozen=True)
class Options:
    #: `HOTDESK_OSWORLD_TEMPLATE`
    template: str = "base"
    #: `HOTDESK_OSWORLD_PROJECT`, `HOTDESK_OSWORLD_PROVIDER`: the fleet's defaults unless said.
    project: str | None = None
    provider: str | None = None
    #: `HOTDESK_OSWORLD_LABELS`: `name=value,name=value`
    labels: dict[str, str] = field(default_factory=dict)
    #: `HOTDESK_OSWORLD_CPUS`, `HOTDESK_OSWORLD_MEMORY_MIB`, `HOTDESK_OSWORLD_DISK_MIB`
    resources: Resources = field(default_factory=Resources)
    #: `HOTDESK_OSWORLD_NETWORK`: whether desks reach the outside; the fleet's default unless said.
    network: bool | None = None
    #: `HOTDESK_OSWORLD_QUEUE_S`: how long to wait for a place when the fleet is full.
    queue_s: float = 600.0
    #: `HOTDESK_OSWORLD_START_S`: how long a desk may take to be ready; the first use of a template builds it.
    start_s: float = 600.0
    #: `HOTDESK_OSWORLD_IDLE_S`: a desk that a killed run left behind is stopped after so long without work, and deleted soon after.
    idle_s: int = 3600

    @property
    def policy(self) -> Policy:
        return Policy(auto_stop_s=self.idle_s, auto_archive_s=0, auto_delete_s=600 if self.idle_s else 0, ttl_s=0)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Options:
        said = {k[len(PREFIX) :].lower(): v for k, v in (environment or os.environ).items() if k.startswith(PREFIX) and v != ""}
        default = cls()
        try:
            return cls(
                template=said.get("template", default.template),
                project=said.get("project"),
                provider=said.get("provider"),
                labels=_labels(said.get("labels", "")),
                resources=Resources(
                    cpus=float(said["cpus"]) if "cpus" in said else None,
                    memory_mib=int(said["memory_mib"]) if "memory_mib" in said else None,
                    disk_mib=int(said["disk_mib"]) if "disk_mib" in said else None,
                ),
                network=_flag(said["network"]) if "network" in said else None,
                queue_s=float(said.get("queue_s", default.queue_s)),
                start_s=float(said.get("start_s", default.start_s)),
                idle_s=int(said.get("idle_s", default.idle_s)),
            )
        except ValueError as e:
            raise SettingsError(f"one of the variables {PREFIX}… has no good value: {e}") from e


def _labels(text: str) -> dict[str, str]:
    labels = {}
    for pair in filter(None, (p.strip() for p in text.split(","))):
        name, equals, value = pair.partition("=")
        if not equals:
            raise ValueError(f"{pair!r} is not of the form name=value")
        labels[name.strip()] = value.strip()
    return labels


def _flag(text: str) -> bool:
    if text.lower() in ("1", "true", "yes", "on"):
        return True
    if text.lower() in ("0", "false", "no", "off"):
        return False
    raise ValueError(f"{text!r} is neither true nor false")
