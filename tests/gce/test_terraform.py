"""deploy/gce, read by a parser: it is well formed, names only what it declares, and is as closed as docs/provider-gce.md says."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import discovery
import hcl2
import pytest

MODULE = Path(__file__).resolve().parents[2] / "deploy/gce"
PROVIDER = Path(__file__).resolve().parents[2] / "crates/provider/src/gce"


@cache
def blocks() -> dict[str, list[Any]]:
    """All files as one: kind of block to list of blocks."""
    found: dict[str, list[Any]] = {}
    for path in sorted(MODULE.glob("*.tf")):
        with path.open() as file:
            for kind, parts in hcl2.load(file).items():
                if isinstance(parts, list):
                    found.setdefault(kind, []).extend(parts)
    return found


def plain(value: Any) -> Any:
    """Texts without the quotes that some versions of the parser leave on."""
    if isinstance(value, str):
        return value[1:-1] if len(value) > 1 and value[0] == value[-1] == '"' else value
    if isinstance(value, list):
        return [plain(one) for one in value]
    if isinstance(value, dict):
        return {plain(key): plain(one) for key, one in value.items() if not str(key).startswith("__")}
    return value


@cache
def resources() -> dict[str, dict[str, Any]]:
    """`google_compute_firewall.closed` to what it says."""
    return {
        f"{kind}.{name}": body
        for kinds in plain(blocks()["resource"])
        for kind, names in kinds.items()
        for name, body in names.items()
    }


def one(value: Any) -> dict[str, Any]:
    """A block that comes once."""
    return value[0] if isinstance(value, list) else value


def of(kind: str) -> dict[str, dict[str, Any]]:
    return {name: body for name, body in resources().items() if name.startswith(kind + ".")}


def test_every_name_is_declared():
    text = "\n".join(path.read_text() for path in MODULE.glob("*.tf"))
    text = re.sub(r"#.*|description\s*=.*", "", text)
    variables = {name for block in plain(blocks()["variable"]) for name in block}
    assert set(re.findall(r"\bvar\.(\w+)", text)) == variables
    local = {name for block in plain(blocks()["locals"]) for name in block}
    assert set(re.findall(r"\blocal\.(\w+)", text)) == local
    data = {f"{kind}.{name}" for block in plain(blocks()["data"]) for kind, names in block.items() for name in names}
    assert set(re.findall(r"\bdata\.(\w+\.\w+)", text)) == data
    named = set(re.findall(r"(?<![\w.])((?:google|random)_\w+\.\w+)(?=[.\[\]])", text))
    assert named <= set(resources()), named - set(resources())


def test_what_is_counted_is_named_by_its_place():
    """A resource that may be there or not is a list."""
    text = "\n".join(path.read_text() for path in MODULE.glob("*.tf"))
    counted = [name for name, body in resources().items() if "count" in body]
    assert counted
    for name in counted:
        assert not re.search(re.escape(name) + r"\.\w", text), f"{name} is named without [0]"


def test_nothing_is_open():
    rules = of("google_compute_firewall")
    incoming = {name: rule for name, rule in rules.items() if rule["direction"] == "INGRESS"}
    for name, rule in incoming.items():
        assert "0.0.0.0/0" not in str(rule["source_ranges"]) and "allow" in rule and rule["target_tags"], name
    closed = rules["google_compute_firewall.closed"]
    assert closed["direction"] == "EGRESS" and one(closed["deny"])["protocol"] == "all" and closed["destination_ranges"] == ["0.0.0.0/0"]
    for template in of("google_compute_instance_template").values():
        assert "access_config" not in str(template) and "service_account" not in template
    bucket = resources()["google_storage_bucket.disks"]
    assert bucket["public_access_prevention"] == "enforced" and bucket["uniform_bucket_level_access"] is True


def test_the_group_begins_empty_and_heals():
    [group] = of("google_compute_region_instance_group_manager").values()
    assert group["target_size"] == 0
    assert "google_compute_health_check.desk" in str(one(group["auto_healing_policies"])["health_check"])
    check = one(resources()["google_compute_health_check.desk"]["http_health_check"])
    assert (check["port"], check["request_path"]) == (5000, "/health")


def test_the_rights_are_those_that_are_used():
    """Each method of the API that the provider calls has its permission in the role, and the role has no right over accounts or networks."""
    role = set(resources()["google_project_iam_custom_role.fleet"]["permissions"])
    code = "\n".join(path.read_text() for path in PROVIDER.glob("*.rs"))
    needed = {
        "instances.insert": "compute.instances.create", "instances.delete": "compute.instances.delete", "instances.get": "compute.instances.get",
        "instances.aggregatedList": "compute.instances.list", "instances.stop": "compute.instances.stop", "instances.start": "compute.instances.start",
        "instances.setLabels": "compute.instances.setLabels", "instances.getSerialPortOutput": "compute.instances.getSerialPortOutput",
        "disks.createSnapshot": "compute.disks.createSnapshot", "disks.aggregatedList": "compute.disks.list", "disks.delete": "compute.disks.delete",
        "snapshots.get": "compute.snapshots.get", "snapshots.list": "compute.snapshots.list", "snapshots.delete": "compute.snapshots.delete",
        "images.getFromFamily": "compute.images.getFromFamily", "images.get": "compute.images.get", "images.list": "compute.images.list",
        "images.insert": "compute.images.create", "images.delete": "compute.images.delete", "zoneOperations.wait": "compute.zoneOperations.get",
        "zoneOperations.list": "compute.zoneOperations.list", "globalOperations.wait": "compute.globalOperations.get", "zones.get": "compute.zones.get",
        "regions.get": "compute.regions.get", "firewalls.list": "compute.firewalls.list",
    }  # fmt: skip
    known = {method["id"].removeprefix("compute.") for _, _, method in discovery.methods()}
    assert set(needed) <= known
    assert set(needed.values()) <= role
    for part in ("serialPort", "setLabels", "createSnapshot", "aggregated/", "images/family"):
        assert part in code, f"the provider no longer asks for {part}"
    assert not [right for right in role if right.startswith(("iam.", "resourcemanager.")) or ".setIamPolicy" in right or "*" in right]
    assert not [right for right in role if right.startswith("compute.networks.") or right.startswith("compute.firewalls.") and right != "compute.firewalls.list"]


@pytest.mark.parametrize("path", sorted(MODULE.glob("*.tf")), ids=lambda path: path.name)
def test_the_files_are_formatted(path):
    """As far as it can be seen without terraform: no tabs, no trailing blanks, one line at the end."""
    text = path.read_text()
    assert "\t" not in text and text.endswith("\n") and not text.endswith("\n\n")
    assert not re.search(r"[ ]+$", text, re.MULTILINE)
