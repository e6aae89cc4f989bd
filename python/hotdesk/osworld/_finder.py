"""Gives our modules to whoever imports OSWorld's Docker provider. Imports nothing heavy: it may run at the start of every interpreter."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from types import ModuleType
from typing import Any, Sequence

#: What OSWorld's factory imports, and the class that it takes from it.
MODULES = {
    "desktop_env.providers.docker.manager": "DockerVMManager",
    "desktop_env.providers.docker.provider": "DockerProvider",
}


class _Loader(importlib.abc.Loader):
    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        from hotdesk.osworld import provider

        name = MODULES[module.__name__]
        setattr(module, name, getattr(provider, name))


class _Finder(importlib.abc.MetaPathFinder):
    hotdesk_osworld = True

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> Any:
        return importlib.machinery.ModuleSpec(fullname, _Loader(), origin="hotdesk.osworld") if fullname in MODULES else None


def install() -> None:
    """From now on `DesktopEnv(provider_name="docker")` gets its desktops from the fleet. Twice is as good as once."""
    if not installed():
        sys.meta_path.insert(0, _Finder())
    _forget(ours=False)


def uninstall() -> None:
    """Gives OSWorld its own Docker provider back."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if not getattr(finder, "hotdesk_osworld", False)]
    _forget(ours=True)


def installed() -> bool:
    # by a mark and not by the class: this file may be loaded twice, at the start of the interpreter and later
    return any(getattr(finder, "hotdesk_osworld", False) for finder in sys.meta_path)


def _forget(*, ours: bool) -> None:
    """Modules that were imported before are imported anew."""
    for name in MODULES:
        module = sys.modules.get(name)
        if module is not None and (getattr(module.__spec__, "origin", None) == "hotdesk.osworld") == ours:
            del sys.modules[name]
            parent = sys.modules.get(name.rpartition(".")[0])
            if parent is not None and hasattr(parent, name.rpartition(".")[2]):
                delattr(parent, name.rpartition(".")[2])
