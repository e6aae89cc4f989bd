"""Pictures as Pillow's, for those who have it."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL.Image import Image


def open_picture(data: bytes) -> Image:
    try:
        from PIL import Image
    except ImportError as e:
        raise ImportError("pictures need Pillow: pip install 'hotdesk[pictures]', or take the bytes of screenshot()") from e
    picture = Image.open(io.BytesIO(data))
    picture.load()
    return picture
