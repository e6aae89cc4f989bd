# Made by make_sync.py from hotdesk/_async/http.py; change that one.
"""Sends requests to the fleet; what may be sent again is sent again while the fleet is away."""

from __future__ import annotations

import random
import time
from contextlib import contextmanager
from typing import Any, Iterator
from urllib.parse import quote

import httpx

from .. import _requests
from .._requests import Request
from ..errors import ConnectionFailed, Problem, Timeout, Unauthorized, problem_from
from ..settings import Settings
from ..tls import tls_context


class Http:
    def __init__(self, settings: Settings, client: httpx.Client | None, verify: Any) -> None:
        self.settings = settings
        headers = {"User-Agent": "hotdesk-python"}
        if settings.key:
            headers["Authorization"] = f"Bearer {settings.key}"
        self._headers = headers
        self._reached = False
        self._own = client is None
        # without `trust_env`: a proxy of the environment stands between us and the internet, not between us and a fleet
        self._client = client or httpx.Client(
            transport=httpx.HTTPTransport(
                verify=tls_context(verify),
                trust_env=False,
                limits=httpx.Limits(max_connections=200, max_keepalive_connections=50),
                uds=settings.socket,
            ),
            trust_env=False,
        )

    def close(self) -> None:
        if self._own:
            self._client.close()

    def url(self, path: str, *, with_key: bool = False) -> str:
        key = f"/k/{quote(self.settings.key or '', safe='')}" if with_key and self.settings.key else ""
        return self.settings.url + key + path

    def json(self, request: Request) -> Any:
        response = self.send(request)
        return response.json() if response.content else None

    def send(self, request: Request, *, content: Any = None) -> httpx.Response:
        """The whole answer, if it is a success; else the exception that says why not."""
        # a fleet that was never reached is rather not there than just being restarted
        end = time.monotonic() + (_requests.RETRY_FOR_S if self._reached else _requests.FIRST_RETRY_FOR_S)
        pause = _requests.FIRST_PAUSE_S
        while True:
            try:
                response = self._client.request(
                    request.method,
                    self.settings.url + request.path,
                    params=tuple(request.params),
                    json=request.json,
                    content=content,
                    headers={**self._headers, **request.headers},
                    timeout=httpx.Timeout(request.answer_s, connect=_requests.CONNECT_S),
                )
            except httpx.TimeoutException as e:
                if isinstance(e, httpx.ConnectTimeout):
                    raise ConnectionFailed(f"{self.settings.url} did not answer: {e!r}") from e
                raise Timeout(f"{request.method} {request.path} took longer than {request.answer_s} s") from e
            except httpx.TransportError as e:
                # a connection that was refused never carried the request, so this is safe for every request
                safe = request.again or isinstance(e, httpx.ConnectError)
                if not safe or time.monotonic() > end:
                    raise ConnectionFailed(f"{self.settings.url} can't be reached: {e or repr(e)}") from e
            else:
                self._reached = True
                if response.is_success:
                    return response
                problem = self._problem(response)
                if not (request.again and self._passing(response, problem)) or time.monotonic() > end:
                    raise problem
            time.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(pause * 2, _requests.LONGEST_PAUSE_S)

    @contextmanager
    def stream(self, request: Request) -> Iterator[httpx.Response]:
        """An answer whose body is read while it comes."""
        try:
            with self._client.stream(
                request.method,
                self.settings.url + request.path,
                params=tuple(request.params),
                json=request.json,
                headers={**self._headers, **request.headers},
                timeout=httpx.Timeout(request.answer_s, connect=_requests.CONNECT_S),
            ) as response:
                if not response.is_success:
                    response.read()
                    raise self._problem(response)
                yield response
        except httpx.TimeoutException as e:
            raise Timeout(f"{request.method} {request.path} was silent for {request.answer_s} s") from e
        except httpx.TransportError as e:
            raise ConnectionFailed(f"the connection to {self.settings.url} broke: {e or repr(e)}") from e

    def _problem(self, response: httpx.Response) -> Problem:
        problem = problem_from(response.status_code, response.headers, response.content)
        if isinstance(problem, Unauthorized) and not self.settings.key and not problem.hint:
            problem.args = (f"{problem} (no key is known: set HOTDESK_KEY, or say Hotdesk(key=…))",)
        return problem

    @staticmethod
    def _passing(response: httpx.Response, problem: Problem) -> bool:
        """Whether the same request may well be answered in a moment."""
        if response.status_code not in _requests.PASSING_STATUS:
            return False
        # a fleet that speaks says itself whether asking again can help; a proxy in front of it says nothing
        return problem.retry if problem.body else True
