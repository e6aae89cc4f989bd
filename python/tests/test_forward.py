"""The forwarders by themselves, against servers of every temper."""

import http.client
import os
import socket
import threading

import pytest

from hotdesk.errors import NotFound
from hotdesk.forward import Gateway, HttpForwarder, TcpForwarder
from hotdesk.settings import Settings


def serve(handle):
    """A TCP server that runs `handle` for each connection."""
    listener = socket.create_server(("127.0.0.1", 0))

    def accept():
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=run, args=(connection,), daemon=True).start()

    def run(connection):
        with connection:
            handle(connection)

    threading.Thread(target=accept, daemon=True).start()
    return listener


def head_of(connection):
    data = b""
    while b"\r\n\r\n" not in data:
        piece = connection.recv(1)
        if not piece:
            return None
        data += piece
    return data.decode("latin-1")


def gateway(listener, key="secret"):
    return Gateway(Settings(f"http://127.0.0.1:{listener.getsockname()[1]}", key))


def test_tcp_carries_bytes_both_ways_and_the_end():
    def tunnel(connection):
        head = head_of(connection)
        assert head.startswith("GET /v1/desks/d/ports/9 HTTP/1.1\r\n") and "Authorization: Bearer secret" in head and "Upgrade: tcp" in head
        connection.sendall(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: tcp\r\n\r\nhello")  # greets first
        total = 0
        while piece := connection.recv(65536):
            total += len(piece)
        connection.sendall(b"%d" % total)

    with serve(tunnel) as listener, TcpForwarder(gateway(listener), "/v1/desks/d/ports/9") as forwarder:
        with socket.create_connection((forwarder.host, forwarder.port)) as client:
            assert client.recv(5, socket.MSG_WAITALL) == b"hello"
            client.sendall(os.urandom(3_000_000))
            client.shutdown(socket.SHUT_WR)
            assert client.makefile("rb").read() == b"3000000"


def test_a_refused_tunnel_says_why():
    def refuse(connection):
        head_of(connection)
        body = b'{"code":"not_found","status":404,"title":"t","detail":"there is no desk d","retry":false}'
        connection.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    with serve(refuse) as listener, pytest.raises(NotFound, match="there is no desk d"):
        gateway(listener).tunnel("/v1/desks/d/ports/9")


def echo(connection):
    """Answers with the head that it got and the size of the body; keeps the connection."""
    while (head := head_of(connection)) is not None:
        lower = head.lower()
        size = 0
        if "transfer-encoding: chunked" in lower:
            file = connection.makefile("rb", buffering=0)
            while n := int(file.readline(), 16):
                while n:
                    n -= len(piece := file.read(n))
                    size += len(piece)
                file.readline()
            file.readline()
        elif "content-length:" in lower:
            size = int(lower.split("content-length:")[1].split("\r\n")[0])
            left = size
            while left:
                left -= len(connection.recv(min(left, 65536)))
        body = f"{head}{size}".encode()
        if "/chunked" in head:
            connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(body), body))
        elif "/until-end" in head:
            connection.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + body)
            return
        elif head.startswith("HEAD "):
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n")
        else:
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            if "/drop-later" in head:
                return


def test_http_keeps_a_connection_for_many_requests():
    with serve(echo) as listener, HttpForwarder(gateway(listener), "/osworld/d") as forwarder:
        client = http.client.HTTPConnection(forwarder.host, forwarder.port, timeout=10)
        for path, body, headers in [
            ("/screenshot?x=1", None, {}),
            ("/setup/upload", b"x" * 3_000_000, {}),
            ("/chunked", iter([b"a" * 70_000, b"b"]), {"Transfer-Encoding": "chunked"}),
            ("/drop-later", None, {"Authorization": "Basic eDp5"}),
            ("/again", None, {}),
        ]:
            client.request("POST" if body else "GET", path, body, headers, encode_chunked=True)
            first = client.sock.getsockname() if client.sock else None
            answer = client.getresponse()
            text = answer.read().decode()
            assert answer.status == 200 and f" /osworld/d{path} HTTP/1.1" in text
            assert text.count("Authorization: ") == 1 and "Authorization: Bearer secret" in text
            assert text.count("Host: ") == 1 and f"Host: 127.0.0.1:{listener.getsockname()[1]}" in text
            assert text.endswith({"/setup/upload": "3000000", "/chunked": "70001"}.get(path, "\r\n0"))
        assert first == client.sock.getsockname(), "one connection carried them all"
        client.request("HEAD", "/head")
        assert client.getresponse().read() == b""
        client.request("GET", "/until-end")
        assert client.getresponse().read().endswith(b"0")
        client.close()


def test_http_says_when_the_fleet_is_away(monkeypatch):
    monkeypatch.setattr("hotdesk.forward.RETRY_FOR_S", 0.0)
    closed = socket.create_server(("127.0.0.1", 0))
    away = gateway(closed)
    closed.close()
    monkeypatch.setattr(away, "connect", lambda: Gateway.connect(away, 0.2))
    with HttpForwarder(away, "/osworld/d") as forwarder:
        client = http.client.HTTPConnection(forwarder.host, forwarder.port, timeout=10)
        client.request("GET", "/screenshot")
        answer = client.getresponse()
        assert answer.status == 502 and b"can't be reached" in answer.read()


def test_http_waits_for_a_fleet_that_is_starting():
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        port = place.getsockname()[1]
    with HttpForwarder(Gateway(Settings(f"http://127.0.0.1:{port}", None)), "/osworld/d") as forwarder:
        client = http.client.HTTPConnection(forwarder.host, forwarder.port, timeout=20)
        client.request("GET", "/late")
        listener = socket.create_server(("127.0.0.1", port))
        connection, _ = listener.accept()
        threading.Thread(target=echo, args=(connection,), daemon=True).start()
        assert b"/osworld/d/late" in client.getresponse().read()
        listener.close()


def test_an_early_refusal_reaches_the_client():
    def refuse(connection):
        head_of(connection)
        connection.sendall(b"HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\nConnection: close\r\n\r\nbig")
        connection.shutdown(socket.SHUT_WR)
        connection.recv(1)

    with serve(refuse) as listener, HttpForwarder(gateway(listener), "") as forwarder:
        with socket.create_connection((forwarder.host, forwarder.port)) as client:
            client.sendall(b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello")
            answer = client.makefile("rb").read()
    assert answer.startswith(b"HTTP/1.1 413") and answer.endswith(b"big")


@pytest.mark.parametrize("sent", [b"", b"half", b"x" * 20_000_000], ids=["nothing", "half", "more than fits"])
def test_a_refusal_is_not_kept_from_a_client_that_has_not_sent_everything(sent):
    """The client waits for the answer, and the server neither reads on nor closes."""
    done = threading.Event()

    def refuse(connection):
        head_of(connection)
        connection.sendall(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\nno")
        done.wait(60)

    with serve(refuse) as listener, HttpForwarder(gateway(listener), "") as forwarder:
        with socket.create_connection((forwarder.host, forwarder.port), timeout=20) as client:
            client.sendall(b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 30000000\r\n\r\n")
            sending = threading.Thread(target=lambda: client.sendall(sent), daemon=True)
            sending.start()
            answer = client.makefile("rb").read()
            sending.join(20)
            assert not sending.is_alive()
        done.set()
    assert answer.startswith(b"HTTP/1.1 401") and b"Connection: close" in answer and answer.endswith(b"no")


def test_an_answer_that_begins_early_does_not_cut_the_body_off():
    def answer(connection):
        head_of(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n")
        left = 3_000_000
        while left:
            left -= len(connection.recv(min(left, 65536)))
        connection.sendall(b"3000000")

    with serve(answer) as listener, HttpForwarder(gateway(listener), "") as forwarder:
        client = http.client.HTTPConnection(forwarder.host, forwarder.port, timeout=20)

        def pieces():
            for _ in range(3):
                yield b"x" * 1_000_000

        client.request("POST", "/x", pieces(), {"Content-Length": "3000000"})
        assert client.getresponse().read() == b"3000000"


def test_websockets_pass():
    def upgrade(connection):
        head = head_of(connection)
        assert "GET /v1/desks/d/view/websockify HTTP/1.1" in head and "Upgrade: websocket" in head
        connection.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\nfirst")
        connection.sendall(connection.recv(100).upper())

    with serve(upgrade) as listener, HttpForwarder(gateway(listener), "/v1/desks/d/view") as forwarder:
        with socket.create_connection((forwarder.host, forwarder.port)) as client:
            client.sendall(b"GET /websockify HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
            assert head_of(client).startswith("HTTP/1.1 101")
            assert client.recv(5, socket.MSG_WAITALL) == b"first"
            client.sendall(b"abc")
            assert client.makefile("rb").read() == b"ABC"


def test_close_ends_everything():
    with serve(echo) as listener:
        forwarder = HttpForwarder(gateway(listener), "")
        client = socket.create_connection((forwarder.host, forwarder.port))
        client.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        assert client.recv(10)
        forwarder.close()
        while client.recv(65536):
            pass
        with pytest.raises(OSError):
            socket.create_connection((forwarder.host, forwarder.port), timeout=2).recv(1) or (_ for _ in ()).throw(OSError())
