"""What can go wrong, as exceptions. The fleet tells what happened, why, and what to do next (`application/problem+json`)."""

from __future__ import annotations

import json
from typing import Any, Mapping


class HotdeskError(Exception):
    """Everything that this package raises by itself."""


class SettingsError(HotdeskError):
    """It is not known which fleet to talk to, or with which key."""


class ConnectionFailed(HotdeskError):
    """The fleet could not be reached, or the connection broke before its answer was whole."""


class Timeout(HotdeskError):
    """Something did not come to its end in the time that it was given."""


class Problem(HotdeskError):
    """The fleet or a desk refused a request, or failed at it."""

    def __init__(
        self,
        *,
        code: str,
        status: int,
        title: str,
        detail: str = "",
        hint: str | None = None,
        retry: bool = False,
        retry_after: float | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> None:
        self.code = code
        self.status = status
        self.title = title
        self.detail = detail
        self.hint = hint
        self.retry = retry
        #: Seconds after which asking again can help, if the fleet said so.
        self.retry_after = retry_after
        self.body: dict[str, Any] = dict(body or {})
        text = detail or title
        if hint:
            text += f" ({hint})"
        super().__init__(text)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.__dict__.copy())


class Invalid(Problem):
    """The request makes no sense to the fleet; sending it again can't help."""


class Unauthorized(Problem):
    """There is no key, or it is not known, expired or revoked."""


class Forbidden(Problem):
    """The key is good, but not for this."""


class NotFound(Problem):
    """There is no such desk, snapshot, file, …"""


class Conflict(Problem):
    """Not possible in the state that the desk is in."""


class LimitReached(Problem):
    """A limit is reached: desks, CPU, memory, disk or requests. `retry_after` says when asking again can help."""


class BudgetSpent(Problem):
    """The project's money is spent; nothing helps until the budget is raised or a new day begins."""


class Unavailable(Problem):
    """The fleet, or a part of the desk, can't answer right now."""


class DeskFailed(Problem):
    """A desk could not be made, started or reached; `desk` is its id where it is known."""

    @property
    def desk(self) -> str | None:
        found = self.body.get("desk")
        return found if isinstance(found, str) else None


class PersonDrives(Problem):
    """A person is driving the desk; nothing was done. `retry_after` says when it goes back at the latest, if they do nothing more."""


class ServerError(Problem):
    """The fleet failed in a way that it does not explain."""


def _rebuild(kind: type[Problem], state: dict[str, Any]) -> Problem:
    problem = kind(**{name: state[name] for name in ("code", "status", "title", "detail", "hint", "retry", "retry_after", "body")})
    return problem


_BY_CODE: dict[str, type[Problem]] = {
    "budget": BudgetSpent,
    "budget_spent": BudgetSpent,
    "limit": LimitReached,
    "limit_reached": LimitReached,
    "person_is_driving": PersonDrives,
    "rate_limited": LimitReached,
    "too_many_requests": LimitReached,
}

_BY_STATUS: dict[int, type[Problem]] = {
    400: Invalid,
    401: Unauthorized,
    402: BudgetSpent,
    403: Forbidden,
    404: NotFound,
    405: Invalid,
    409: Conflict,
    413: Invalid,
    415: Invalid,
    416: Invalid,
    422: Invalid,
    423: PersonDrives,
    429: LimitReached,
    502: DeskFailed,
    503: Unavailable,
    504: Unavailable,
}


def problem_from(status: int, headers: Mapping[str, str], content: bytes) -> Problem:
    """The exception for an answer that is not a success."""
    body: dict[str, Any] = {}
    try:
        parsed = json.loads(content)
        if isinstance(parsed, dict):
            body = parsed
    except ValueError:
        pass
    code = str(body.get("code") or "")
    location = headers.get("location") or ""
    if location.startswith("/v1/desks/"):
        body.setdefault("desk", location.split("/")[3])
    kind = _BY_CODE.get(code) or _BY_STATUS.get(status) or (Invalid if 400 <= status < 500 else ServerError)
    after = body.get("retry_after")
    retry_after = float(after) if isinstance(after, (int, float)) else _seconds(headers.get("retry-after"))
    return kind(
        code=code or str(status),
        status=status,
        title=str(body.get("title") or f"the fleet answered {status}"),
        detail=str(body.get("detail") or ("" if body else content[:500].decode("utf-8", "replace").strip())),
        hint=body.get("hint"),
        retry=bool(body.get("retry", False)),
        retry_after=retry_after,
        body=body,
    )


def _seconds(text: str | None) -> float | None:
    try:
        return max(0.0, float(text)) if text is not None else None
    except ValueError:
        return None
