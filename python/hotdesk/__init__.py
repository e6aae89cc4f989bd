"""Desktops for computer-use agents: the client of a hotdesk fleet.

    from hotdesk import Hotdesk

    with Hotdesk() as fleet, fleet.desks.create() as desk:
        desk.click(640, 360)
        desk.type("hello")
        picture = desk.screenshot(wait="settled")
"""

from ._async.client import AsyncHotdesk
from ._async.desk import AsyncDesk
from ._sync.client import Hotdesk
from ._sync.desk import Desk
from .errors import (
    BudgetSpent,
    Conflict,
    ConnectionFailed,
    DeskFailed,
    Forbidden,
    HotdeskError,
    Invalid,
    LimitReached,
    NotFound,
    PersonDrives,
    Problem,
    ServerError,
    SettingsError,
    Timeout,
    Unauthorized,
    Unavailable,
)
from .models import Budget, Costs, DeskInfo, Event, Policy, Resources, RunResult, Size, Snapshot, State

__version__ = "0.1.0"

__all__ = [
    "AsyncDesk", "AsyncHotdesk", "Budget", "BudgetSpent", "Conflict", "ConnectionFailed", "Costs", "Desk", "DeskFailed", "DeskInfo",
    "Event", "Forbidden", "Hotdesk", "HotdeskError", "Invalid", "LimitReached", "NotFound", "PersonDrives", "Policy", "Problem", "Resources",
    "RunResult", "ServerError", "SettingsError", "Size", "Snapshot", "State", "Timeout", "Unauthorized", "Unavailable",
]  # fmt: skip
