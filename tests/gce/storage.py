"""The part of Cloud Storage that uploads of disks use: whole objects, put together from parts."""

from __future__ import annotations

import hashlib
import io
import itertools
import tarfile
from email.utils import formatdate
from xml.etree import ElementTree

NAME = "test-bucket"


class Bucket:
    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.uploads: dict[str, dict[int, bytes]] = {}
        self.imported: list[str] = []
        self.numbers = itertools.count(1)

    def answer(self, method: str, path: str, query: dict[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        bucket, _, key = path.lstrip("/").partition("/")
        if bucket != NAME:
            return 404, {}, b"<Error><Code>NoSuchBucket</Code></Error>"
        match method:
            case "POST" if "uploads" in query:
                upload = str(next(self.numbers))
                self.uploads[upload] = {}
                return 200, {}, xml("InitiateMultipartUploadResult", Bucket=bucket, Key=key, UploadId=upload)
            case "PUT" if "uploadId" in query:
                self.uploads[query["uploadId"]][int(query["partNumber"])] = body
                return 200, {"ETag": tag(body)}, b""
            case "POST" if "uploadId" in query:
                parts = self.uploads.pop(query["uploadId"])
                named = [int(one.text or "0") for one in ElementTree.fromstring(body).iter() if one.tag.endswith("PartNumber")]
                self.objects[key] = b"".join(parts[number] for number in named)
                return 200, {}, xml("CompleteMultipartUploadResult", Key=key, ETag=tag(self.objects[key]))
            case "HEAD" | "GET" if key in self.objects:
                content = self.objects[key]
                head = {"ETag": tag(content), "Last-Modified": formatdate(usegmt=True), "Content-Length": str(len(content)), "x-goog-generation": "1"}
                return 200, head, content
            case "DELETE" if key in self.objects:
                del self.objects[key]
                return 204, {}, b""
        return 404, {}, b"<Error><Code>NoSuchKey</Code></Error>"

    def import_disk(self, path: str) -> None:
        """As Google does it: a tar with gzip, with the one file disk.raw in it."""
        bucket, _, key = path.lstrip("/").partition("/")
        assert bucket == NAME and key in self.objects, f"there is no object {path}"
        with tarfile.open(fileobj=io.BytesIO(self.objects[key]), mode="r:gz") as archive:
            assert archive.getnames() == ["disk.raw"], archive.getnames()
        self.imported.append(key)


def tag(content: bytes) -> str:
    return f'"{hashlib.md5(content).hexdigest()}"'


def xml(name: str, **fields: str) -> bytes:
    root = ElementTree.Element(name)
    for field, value in fields.items():
        ElementTree.SubElement(root, field).text = value
    return ElementTree.tostring(root)
