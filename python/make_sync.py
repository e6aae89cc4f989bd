#!/usr/bin/env python3
"""Makes `hotdesk/_sync` from `hotdesk/_async`, so that the client is written once. `--check` only says whether it is current."""

import re
import sys
from pathlib import Path

HERE = Path(__file__).parent / "hotdesk"
NOTE = "# Made by make_sync.py from hotdesk/_async/{name}; change that one.\n"
WORDS = {
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "aclose": "close",
    "aread": "read",
    "aiter_lines": "iter_lines",
    "aiter_bytes": "iter_bytes",
    "asynccontextmanager": "contextmanager",
    "AsyncIterator": "Iterator",
    "AsyncClient": "Client",
    "AsyncHTTPTransport": "HTTPTransport",
}


def sync(text: str) -> str:
    text = re.sub(r"\basync (def|with|for)\b", r"\1", text)
    text = re.sub(r"\bawait ", "", text)
    text = text.replace("asyncio.sleep", "time.sleep").replace("import asyncio\n", "")
    text = text.replace("The async client. `hotdesk._sync` is made from this by `make_sync.py`; change this one.", "The sync client.")
    for word, other in WORDS.items():
        text = re.sub(rf"\b{word}\b", other, text)
    return re.sub(r"\bAsync([A-Z]\w*)", r"\1", text)


def main() -> int:
    made = {source.name: NOTE.format(name=source.name) + sync(source.read_text()) for source in sorted((HERE / "_async").glob("*.py"))}
    target = HERE / "_sync"
    if "--check" in sys.argv:
        stale = [name for name, text in made.items() if not (target / name).exists() or (target / name).read_text() != text]
        if stale:
            print(f"hotdesk/_sync is not current ({', '.join(stale)}): run python/make_sync.py", file=sys.stderr)
        return bool(stale)
    target.mkdir(exist_ok=True)
    for name, text in made.items():
        (target / name).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
