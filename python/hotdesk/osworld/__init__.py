"""OSWorld's own, unmodified `DesktopEnv` on a fleet.

    import hotdesk.osworld
    hotdesk.osworld.install()

    from desktop_env.desktop_env import DesktopEnv
    env = DesktopEnv(provider_name="docker", action_space="pyautogui")

`install()` puts our classes where OSWorld looks for its Docker provider, so `provider_name="docker"` gives desks of the fleet. A script
that can't be changed is run by `python -m hotdesk.osworld SCRIPT ARGUMENTS…`.
"""

from __future__ import annotations

from ._finder import install, installed, uninstall
from .options import Options

__all__ = ["Options", "install", "installed", "uninstall"]
