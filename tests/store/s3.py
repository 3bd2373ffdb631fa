"""A storage of objects on this machine: moto's server in its own process, and a proxy before it.

The proxy can answer with errors, hold requests back, lose answers, and count.
"""

from __future__ import annotations

import http.client
import os
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

KEYS = {
    "AWS_ACCESS_KEY_ID": "somebody",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_REGION": "us-east-1",
}
_SERVER = """
import logging, sys
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server
logging.getLogger("werkzeug").disabled = True
app = DomainDispatcherApplication(create_backend_app)
server = make_server("127.0.0.1", 0, app, threaded=True)
print(server.port, flush=True)
server.serve_forever()
"""


@contextmanager
def server() -> Iterator[int]:
    """The port of a server that speaks S3; it ends with the block."""
    command = [sys.executable, "-W", "ignore", "-c", _SERVER]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


class Proxy:
    """Stands between a client and a server, and does what `fault` says of each request.

    It is given method and path, and answers None, a status instead of an answer, seconds to wait,
    or `LOST`: the request is made, and nobody hears of it.
    """

    LOST = "lost"

    def __init__(self, to: int) -> None:
        self.fault: Callable[[str, str], int | float | str | None] = lambda method, path: None
        self.sent: list[tuple[str, int]] = []  # methods, and how long answers were
        proxy, deciding = self, threading.Lock()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _pass(self) -> None:
                length = int(self.headers.get("content-length") or 0)
                body = self.rfile.read(length)
                fault = proxy.fault(self.command, self.path)
                if isinstance(fault, float):
                    time.sleep(fault)
                elif isinstance(fault, int):
                    return self._answer(fault, {}, b"<Error><Code>SlowDown</Code></Error>")
                # Whether a server that makes up its mind twice at once keeps its word is its own.
                with deciding:
                    there = http.client.HTTPConnection("127.0.0.1", to, timeout=60)
                    there.request(self.command, self.path, body, dict(self.headers))
                    response = there.getresponse()
                    content = response.read()
                    there.close()
                if fault == proxy.LOST:
                    self.close_connection = True
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return None
                return self._answer(response.status, dict(response.headers), content)

            def _answer(self, status: int, headers: dict[str, str], content: bytes) -> None:
                self.send_response(status)
                hops = ("connection", "transfer-encoding", "content-length", "server", "date")
                for name, value in headers.items():
                    if name.lower() not in hops:
                        self.send_header(name, value)
                has_body = self.command != "HEAD" and status != 304
                length = headers.get("content-length") or headers.get("Content-Length")
                self.send_header("content-length", str(len(content) if has_body else length or 0))
                self.end_headers()
                proxy.sent.append((self.command, len(content)))
                if has_body:
                    self.wfile.write(content)

            do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = _pass  # noqa: N815

            def log_message(self, *args: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *args: object) -> None:
                """Clients that were killed, or have not waited, are what tests are about."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def make_bucket(port: int, name: str) -> None:
    there = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    there.request("PUT", f"/{name}")
    assert there.getresponse().status == 200
    there.close()


@pytest.fixture(scope="session")
def s3_port() -> Iterator[int]:
    with server() as port:
        yield port


@pytest.fixture
def s3(s3_port: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Proxy]]:
    """The URL of a new bucket, and the proxy through which everybody in this test sees it."""
    proxy = Proxy(s3_port)
    bucket = f"bucket-{os.getpid()}-{time.monotonic_ns()}"
    make_bucket(s3_port, bucket)
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{proxy.port}")
    from muntin.store import objects

    objects._opened.cache_clear()
    yield f"s3://{bucket}/some/state", proxy
    objects._opened.cache_clear()
    proxy.close()


@contextmanager
def shaky(to: int, seed: int, fails: float, slow: float) -> Iterator[int]:
    """The port of a proxy in a process of its own, for clients that hold Python up meanwhile.

    Of its requests some fail, or are made and their answers lost, and some are slow.
    """
    with _apart(str(to), str(seed), str(fails), str(slow), "") as port:
        yield port


@contextmanager
def losing(to: int, within: str) -> Iterator[int]:
    """The same, of a proxy that loses the first answer to each put of an object so called."""
    with _apart(str(to), "1", "0", "0", within) as port:
        yield port


@contextmanager
def _apart(*words: str) -> Iterator[int]:
    command = [sys.executable, "-m", "tests.store.s3", *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def _main() -> None:
    to, seed, fails, slow, within = sys.argv[1:]
    chance, proxy = random.Random(int(seed)), Proxy(int(to))
    lost: set[str] = set()

    def fault(method: str, path: str) -> int | float | str | None:
        if within and method == "PUT" and within in path and path not in lost:
            lost.add(path)
            return Proxy.LOST
        roll = chance.random()
        if roll < float(fails):
            return (500, 503, Proxy.LOST)[chance.randrange(3)]
        return float(slow) if float(slow) and roll > 0.9 else None

    proxy.fault = fault
    print(proxy.port, flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    _main()
