"""A desk (started by tests/with-desk) and OSWorld's own client of it, unmodified from PyPI."""
import os
from urllib.parse import urlsplit

import pytest
from desktop_env.controllers.python import PythonController


@pytest.fixture(scope="session")
def url():
    return os.environ["HOTDESK_URL"]


@pytest.fixture(scope="session")
def client(url):
    parts = urlsplit(url)
    controller = PythonController(vm_ip=parts.hostname, server_port=parts.port)
    controller.retry_interval = 0.2
    return controller
