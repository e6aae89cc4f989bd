"""Google's own description of the compute API: which requests there are, and what a request or an answer may look like."""

from __future__ import annotations

import importlib.util
import json
import re
from functools import cache
from pathlib import Path
from typing import Any


@cache
def document() -> dict[str, Any]:
    """The description in the package google-api-python-client; the package itself is not loaded."""
    found = importlib.util.find_spec("googleapiclient")
    if found is None or not found.submodule_search_locations:
        raise SystemExit("google-api-python-client is missing: scripts/test-gce installs it")
    path = Path(found.submodule_search_locations[0], "discovery_cache/documents/compute.v1.json")
    return json.loads(path.read_text())


@cache
def methods() -> list[tuple[str, re.Pattern[str], dict[str, Any]]]:
    """Every method: HTTP method, pattern of the path, description."""
    found = []

    def collect(resources: dict[str, Any]) -> None:
        for resource in resources.values():
            for method in resource.get("methods", {}).values():
                path = method.get("flatPath") or method["path"]
                pattern = re.sub(r"\\{(\w+)\\}", r"(?P<\1>[^/]+)", re.escape(path))
                found.append((method["httpMethod"], re.compile(pattern + r"\Z"), method))
            collect(resource.get("resources", {}))

    collect(document()["resources"])
    return found


def find(http_method: str, path: str) -> tuple[dict[str, Any], dict[str, str]] | None:
    """The method that a request is for, and the parameters in its path."""
    for verb, pattern, method in methods():
        if verb == http_method and (match := pattern.match(path)):
            return method, match.groupdict()
    return None


def wrong_with_request(method: dict[str, Any], path: dict[str, str], query: dict[str, list[str]], body: Any) -> list[str]:
    """Everything in a request that the description does not allow."""
    found = []
    known = method.get("parameters", {}) | document()["parameters"]
    for name, value in path.items():
        found += _wrong_with_parameter(name, value, known.get(name))
    for name, values in query.items():
        if name in known and len(values) > 1 and not known[name].get("repeated"):
            found.append(f"the parameter {name} comes {len(values)} times")
        for value in values:
            found += _wrong_with_parameter(name, value, known.get(name))
    for name, parameter in method.get("parameters", {}).items():
        if parameter.get("required") and name not in path and name not in query:
            found.append(f"the parameter {name} is missing")
    if "request" not in method:
        if body is not None:
            found.append("there is a body, but the method has none")
    elif body is None:
        found.append("the body is missing")
    else:
        found += wrong_with(body, method["request"], "body", method["id"])
    return found


def _wrong_with_parameter(name: str, value: str, parameter: dict[str, Any] | None) -> list[str]:
    if parameter is None:
        return [f"the parameter {name} is not known"]
    if "pattern" in parameter and not re.fullmatch(parameter["pattern"], value):
        return [f"the parameter {name} is {value!r}, which does not match {parameter['pattern']}"]
    if "enum" in parameter and value not in parameter["enum"]:
        return [f"the parameter {name} is {value!r}, which is none of {parameter['enum']}"]
    if parameter.get("type") == "integer":
        if not re.fullmatch(r"-?\d+", value):
            return [f"the parameter {name} is {value!r}, which is no number"]
        if "minimum" in parameter and int(value) < int(parameter["minimum"]) or "maximum" in parameter and int(value) > int(parameter["maximum"]):
            return [f"the parameter {name} is {value}, beyond its bounds"]
    if parameter.get("type") == "boolean" and value not in ("true", "false"):
        return [f"the parameter {name} is {value!r}, neither true nor false"]
    return []


def wrong_with(value: Any, schema: dict[str, Any], where: str, method: str | None) -> list[str]:
    """Everything in a value that its schema does not allow. `method` is the request that it is part of; none: an answer."""
    if "$ref" in schema:
        return wrong_with(value, document()["schemas"][schema["$ref"]], where, method)
    if method and schema.get("readOnly"):
        return [f"{where} is for answers only"]
    kind = schema.get("type", "any")
    if kind == "object":
        return _wrong_with_object(value, schema, where, method)
    if kind == "array":
        if not isinstance(value, list):
            return [f"{where} is no list"]
        return [text for at, item in enumerate(value) for text in wrong_with(item, schema["items"], f"{where}[{at}]", method)]
    if kind == "string":
        if not isinstance(value, str):
            return [f"{where} is {value!r}, which is no text"]
        if schema.get("format") in ("int64", "uint64") and not re.fullmatch(r"-?\d+", value):
            return [f"{where} is {value!r}, which is no number"]
        if "enum" in schema and value not in schema["enum"]:
            return [f"{where} is {value!r}, which is none of {schema['enum']}"]
        if "pattern" in schema and not re.fullmatch(schema["pattern"], value):
            return [f"{where} is {value!r}, which does not match {schema['pattern']}"]
    if kind == "boolean" and not isinstance(value, bool):
        return [f"{where} is {value!r}, neither true nor false"]
    if kind == "integer" and (not isinstance(value, int) or isinstance(value, bool)):
        return [f"{where} is {value!r}, which is no whole number"]
    if kind == "number" and (not isinstance(value, int | float) or isinstance(value, bool)):
        return [f"{where} is {value!r}, which is no number"]
    return []


def _wrong_with_object(value: Any, schema: dict[str, Any], where: str, method: str | None) -> list[str]:
    if not isinstance(value, dict):
        return [f"{where} is no object"]
    found = []
    properties, others = schema.get("properties", {}), schema.get("additionalProperties")
    for name, part in value.items():
        if name in properties:
            found += wrong_with(part, properties[name], f"{where}.{name}", method)
        elif others is not None:
            found += wrong_with(part, others, f"{where}.{name}", method)
        else:
            found.append(f"{where}.{name} is not known")
    for name, part in properties.items():
        if method and method in part.get("annotations", {}).get("required", []) and name not in value:
            found.append(f"{where}.{name} is missing")
    return found
