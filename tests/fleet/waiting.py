"""Waiting for something to become true, with a limit that says what was waited for."""

from __future__ import annotations

import time
from typing import Callable, TypeVar

T = TypeVar("T")


def eventually(condition: Callable[[], T], what: str, *, limit: float = 30.0, pause: float = 0.1) -> T:
    end = time.monotonic() + limit
    last: BaseException | None = None
    while True:
        try:
            if result := condition():
                return result
            last = None
        except Exception as e:
            last = e
        if time.monotonic() > end:
            raise AssertionError(f"not within {limit} s: {what}") from last
        time.sleep(pause)
