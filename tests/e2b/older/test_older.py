"""An older release that many programs still use."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from common import *  # noqa: E402,F403 - its tests run here
