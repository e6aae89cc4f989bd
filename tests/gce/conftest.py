"""A fleet whose desks are at a stand-in for Google, through the real client, real credentials, the real gateway."""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/fleet"))

import compute  # noqa: E402
import seeds  # noqa: E402
import served  # noqa: E402


def pytest_configure(config):
    seeds.announce(config)


class Account:
    """A service account with its key file."""

    def __init__(self, folder: Path) -> None:
        self.private = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        pem = self.private.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()).decode()
        self.key = pem
        self.file = folder / "account.json"
        self.file.write_text(json.dumps({
            "type": "service_account", "project_id": compute.PROJECT, "private_key_id": "key1", "private_key": pem,
            "client_email": compute.ACCOUNT, "client_id": "1", "token_uri": "http://127.0.0.1:9/none",
        }))  # fmt: skip

    def check(self, text: bytes, signature: bytes) -> None:
        self.private.public_key().verify(signature, text, padding.PKCS1v15(), hashes.SHA256())


@pytest.fixture(scope="session")
def account(tmp_path_factory):
    return Account(tmp_path_factory.mktemp("account"))


@pytest.fixture
def google(account):
    """The stand-in. In the end everything that it was asked must have been as Google describes it."""
    with standing_in(account) as one:
        yield one


@contextmanager
def standing_in(account):
    one = compute.Google(account)
    one.add_image("hotdesk-bare-1", "hotdesk-bare")
    try:
        yield one
        assert one.wrong == []
    finally:
        one.close()


def settings(google, **more) -> str:
    """The settings of a fleet at the stand-in."""
    lines = {
        "project": compute.PROJECT, "zones": list(compute.ZONES), "endpoint": f"{google.url}{compute.BASE}".rstrip("/"), "storage_endpoint": google.url,
        "bucket": "test-bucket", "request_limit_s": 2, **more,
    }  # fmt: skip
    text = "\n".join(f"{name} = {json.dumps(value)}" for name, value in lines.items())
    return f"template = \"bare\"\nscreen = {{ width = 640, height = 480 }}\n[gce]\n{text}\n"


@contextmanager
def fleet_at(google, account, *, credentials: dict[str, str] | None = None, **more):
    """A fleet at the stand-in, and in the end nothing left there."""
    environment = credentials or {"GOOGLE_APPLICATION_CREDENTIALS": str(account.file)}
    with served.fleet(provider="gce", settings=settings(google, **more), environment=environment) as fleet:
        yield fleet
        log = Path(fleet.log.name).read_text(errors="replace")
    assert account.key.splitlines()[1] not in log and "Bearer " not in log and compute.MACHINE_TOKEN not in log, "the log has a secret"
    assert not google.instances and not google.disks and not google.snapshots, "something is left at Google"


@pytest.fixture
def fleet(google, account):
    with fleet_at(google, account) as one:
        yield one
