"""Runs at the start of interpreters that `python -m hotdesk.osworld` has among its descendants; then hands over to the next of its name."""

import importlib.machinery
import importlib.util
import os
import sys
from typing import Any

_HERE = os.path.dirname(os.path.abspath(__file__))


def _run(name: str, path: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_run("_hotdesk_osworld_finder", os.path.join(os.path.dirname(_HERE), "_finder.py")).install()

_next = importlib.machinery.PathFinder.find_spec("sitecustomize", [p for p in sys.path if os.path.abspath(p) != _HERE])
if _next is not None and _next.origin:
    _run("sitecustomize", _next.origin)
