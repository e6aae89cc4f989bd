"""pause_image.py PROGRAM OUT.tar: an image with one program in it, as `ctr images import` takes it."""

import hashlib
import io
import json
import sys
import tarfile

NAME = "hotdesk.test/pause:1"


def tar(files: dict[str, bytes], mode: int = 0o644) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), mode
            archive.addfile(entry, io.BytesIO(data))
    return out.getvalue()


def main() -> None:
    with open(sys.argv[1], "rb") as program:
        layer = tar({"pause": program.read()}, 0o755)
    digest = hashlib.sha256(layer).hexdigest()
    config = json.dumps({
        "architecture": "amd64", "os": "linux",
        "config": {"Entrypoint": ["/pause"], "User": "65535:65535"},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }).encode()
    name = hashlib.sha256(config).hexdigest()
    manifest = json.dumps([{"Config": f"{name}.json", "RepoTags": [NAME], "Layers": [f"{digest}/layer.tar"]}]).encode()
    with open(sys.argv[2], "wb") as out:
        out.write(tar({f"{name}.json": config, f"{digest}/layer.tar": layer, "manifest.json": manifest}))


main()
