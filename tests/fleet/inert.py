"""Stand-ins for heavy packages that OSWorld's metrics import and no test reaches.

`DesktopEnv` imports every metric, and those want OpenCV, torch behind easyocr, librosa, … A metric that is really called needs the real
package: those of the tests are in requirements.txt. OSWorld's own modules are never replaced.
"""

import importlib.machinery
import importlib.util
import sys
from types import ModuleType

HEAVY = ("acoustid", "borb", "cv2", "easyocr", "fastdtw", "fitz", "formulas", "imagehash", "librosa", "mutagen", "scipy", "skimage")


class _Anything:
    """A class for annotations and bases; using it is an error that names the package."""

    def __init__(self, *_, **__):
        raise RuntimeError("a package that tests/fleet only stands in for was used; add it to requirements.txt")


class _StandIn(ModuleType):
    __path__: list = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (_Anything,), {})


class _Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        return importlib.machinery.ModuleSpec(name, _Finder, is_package=True) if name.split(".")[0] in missing else None

    @staticmethod
    def create_module(spec):
        return _StandIn(spec.name)

    @staticmethod
    def exec_module(module):
        pass


missing = {name for name in HEAVY if importlib.util.find_spec(name) is None}


def install():
    if _Finder not in sys.meta_path:
        sys.meta_path.append(_Finder)
