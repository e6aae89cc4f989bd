"""One seed for every random choice of a run of the tests: printed when it starts, taken from HOTDESK_SEED to have the choices again."""

from __future__ import annotations

import os
import random
import sys

#: In the environment, so that the workers of pytest-xdist have the same.
SEED = int(os.environ.setdefault("HOTDESK_SEED", str(random.SystemRandom().randrange(1 << 32))))


def rng() -> random.Random:
    """For one test. What it prints is shown when the test fails."""
    print(f"HOTDESK_SEED={SEED}", file=sys.stderr, flush=True)
    return random.Random(SEED)


def announce(config) -> None:
    """To be called from `pytest_configure`."""
    if not hasattr(config, "workerinput"):
        print(f"HOTDESK_SEED={SEED}", file=sys.stderr, flush=True)
