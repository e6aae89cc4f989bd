"""OSWorld's own client with a key in the path: one that sends no headers of ours reaches one desk of a fleet, unmodified."""

from __future__ import annotations

import io
import shlex

import httpx
import pytest
import served
import waiting
from desktop_env.controllers.python import PythonController
from PIL import Image


@pytest.fixture(scope="module")
def fleet():
    with served.fleet() as one:
        yield one


@pytest.fixture(scope="module")
def desk(fleet):
    return fleet.client().desks.create(template=served.TEMPLATE, screen=(1024, 768), memory_mib=1024)


@pytest.fixture(scope="module")
def settings(fleet, desk) -> dict[str, str]:
    """What `hotdesk env osworld` prints."""
    lines = fleet.hotdesk("env", "osworld", desk.id).stdout.splitlines()
    return dict(shlex.split(line)[1].split("=", 1) for line in lines)


def test_the_client_runs_on_a_desk(fleet, settings, desk):
    client = PythonController(vm_ip=settings["OSWORLD_VM_IP"], server_port=5000)
    client.retry_interval = 0.2
    assert Image.open(io.BytesIO(client.get_screenshot())).size == (1024, 768)
    assert client.get_vm_screen_size() == {"width": 1024, "height": 768}
    client.execute_python_command("pyautogui.moveTo(300, 200)")
    assert fleet.request("GET", f"/v1/desks/{desk.id}/input/pointer").json() == {"x": 300, "y": 200}
    assert client.run_bash_script("echo $((6 * 7))")["output"].strip() == "42"
    assert "desktop-frame" in client.get_accessibility_tree()


def test_the_base_url_is_the_same_desk(settings):
    for base in (settings["OSWORLD_BASE_URL"], f"http://{settings['OSWORLD_VM_IP']}:5000"):
        assert httpx.post(f"{base}/screen_size").json() == {"width": 1024, "height": 768}


#: All that the template has to serve a page with.
SERVER = """
$s = IO::Socket::INET->new(LocalAddr => "127.0.0.1", LocalPort => 8123, Listen => 9) or die;
while ($c = $s->accept) { 1 while ($_ = <$c>) =~ /\\S/; print $c "HTTP/1.0 200 OK\\r\\nContent-Length: 7\\r\\n\\r\\nserved\\n"; close $c }
"""


def test_another_port_leads_to_that_port_of_the_desk(settings, desk):
    desk.processes.start(["perl", "-MIO::Socket::INET", "-e", SERVER])
    page = f"http://{settings['OSWORLD_VM_IP']}:8123/page"
    waiting.eventually(lambda: httpx.get(page).text == "served\n", "the page comes through the gateway")


def test_a_wrong_key_opens_nothing(fleet, settings, desk):
    wrong = settings["OSWORLD_BASE_URL"].replace(fleet.key, "hd_wrong")
    assert httpx.get(f"{wrong}/screenshot").status_code == 401
    made = fleet.request("POST", "/v1/keys", json={"name": "x", "scope": {"kind": "project", "project": "x"}}).json()
    foreign = settings["OSWORLD_BASE_URL"].replace(fleet.key, made["secret"])
    assert httpx.get(f"{foreign}/screenshot").status_code == 404
