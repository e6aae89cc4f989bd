"""`python -m hotdesk.osworld SCRIPT ARGUMENTS…` (or `-m MODULE ARGUMENTS…`) runs an unmodified OSWorld script on a fleet."""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path

from . import install

USAGE = """\
usage: python -m hotdesk.osworld SCRIPT [ARGUMENT...]
       python -m hotdesk.osworld -m MODULE [ARGUMENT...]

Runs an OSWorld script with provider "docker" replaced by the fleet at HOTDESK_URL (with HOTDESK_KEY),
or by the fleet of this machine. Desks are shaped by HOTDESK_OSWORLD_TEMPLATE, _PROJECT, _PROVIDER,
_LABELS, _CPUS, _MEMORY_MIB, _DISK_MIB, _NETWORK, _QUEUE_S, _START_S and _IDLE_S.
"""


def main() -> None:
    arguments = sys.argv[1:]
    if not arguments or arguments[0] in ("-h", "--help") or arguments == ["-m"]:
        sys.exit(USAGE if arguments[:1] not in (["-h"], ["--help"]) else print(USAGE))
    install()
    _install_in_children()
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        sys.path.insert(0, os.getcwd())
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        sys.path[0] = str(Path(arguments[0]).resolve().parent)
        runpy.run_path(arguments[0], run_name="__main__")


def _install_in_children() -> None:
    """Interpreters that the script starts (as multiprocessing's `spawn` does) get the substitution too."""
    here = str(Path(__file__).parent / "_site")
    package = str(Path(__file__).parents[2])
    paths = [here, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    if package not in paths and not _importable_elsewhere():
        paths.append(package)
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)


def _importable_elsewhere() -> bool:
    """Whether the package is installed, and not merely found beside the current directory."""
    import site

    places = [*site.getsitepackages(), site.getusersitepackages()]
    return any(Path(__file__).is_relative_to(place) for place in places)


if __name__ == "__main__":
    main()
