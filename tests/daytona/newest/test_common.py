"""What every release of the SDK does alike, with this one."""

from common import *  # noqa: F403 - its tests run here
