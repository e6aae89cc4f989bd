"""What a fleet's certificate is checked against."""

from __future__ import annotations

import os
import ssl
from typing import Any


def tls_context(verify: Any) -> ssl.SSLContext:
    """True: what the system trusts. A file: what it holds. False: anything. A context is taken as it is."""
    if isinstance(verify, ssl.SSLContext):
        return verify
    if isinstance(verify, (str, os.PathLike)):
        return ssl.create_default_context(cafile=os.fspath(verify))
    context = ssl.create_default_context()
    if verify is False:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
