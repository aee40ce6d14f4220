"""The official openai SDK as the maker of requests, over our own connections.

    arm     a greenlet calls client.chat.completions...create(...); the SDK builds the request and hands it to
            its transport, which is ours: there its bytes go back to the caller, and the greenlet rests
    fire    sends those bytes, as with any completion: nothing is left to build, nothing to switch to
    wait    the record is made beneath; then the SDK gets the answer's status and headers and comes to its end

The SDK never sees the body: its events are read, timed and judged once, by our reader, at a fraction of what
its own stream costs. Retries, redirects, cookies and its time limits are off: they would hide what is
measured.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any
from urllib.parse import parse_qsl

import httpx2
import orjson
from greenlet import getcurrent, greenlet
from openai import AzureOpenAI, OpenAI, OpenAIError

from client.completion import CancelReason, Completion
from client.endpoints import ENDPOINTS
from client.engines import SDK_SAYS, EngineError
from client.finished import Finished
from client.judgement import Cut
from client.reader import ConnectionPool
from client.target import Limits, Request, Target

_NO_KEY = "no-key-is-set"
"""The SDK does not start without a key. Where the user has none, no header goes out with this one."""

_NOT_OF_THE_BODY = frozenset({"self", "extra_headers", "extra_query", "extra_body", "timeout"})
_CREATE: dict[str, Callable[[OpenAI], Any]] = {
    "chat": lambda client: client.chat.completions.with_streaming_response.create,
    "completions": lambda client: client.completions.with_streaming_response.create,
    "responses": lambda client: client.responses.with_streaming_response.create,
}
"""The SDK's method for each of endpoints.ENDPOINTS."""

# At its own level it logs a line for every request, with the URL's query.
logging.getLogger("httpx2").setLevel(logging.WARNING)

Head = tuple[int | None, Mapping[str, str]]
"""An answer's status and headers; no status when none came."""


class SdkEngine:
    """Arms requests that the SDK makes; one for a worker and a target. Raises EngineError when the SDK does
    not start.

    A request's JSON body is taken apart again: fields that the SDK's method knows are its parameters, others
    go as its `extra_body`. SDK settings in the environment (OPENAI_ORG_ID, ...) hold.
    """

    def __init__(self, pool: ConnectionPool) -> None:
        try:
            client = _client(pool.target)
        except (OpenAIError, ValueError, TypeError) as error:
            raise EngineError(f"the openai SDK does not start for {pool.target.url_told}: {error}") from error
        self._pool = pool
        self._create: Callable[..., AbstractContextManager[Any]] = _CREATE[pool.target.endpoint](client)
        self._known = frozenset(inspect.signature(self._create).parameters) - _NOT_OF_THE_BODY
        self._warm_up(client)

    def _warm_up(self, client: OpenAI) -> None:
        """Have the SDK do once what it keeps for later: it starts `uname -p` for its platform headers, once
        for each of its first requests that come together, and its first request takes some 60 ms longer."""
        client.platform_headers()
        body = orjson.dumps({"model": "m", "messages": [], "prompt": "", "input": ""})
        call = greenlet(self._ask)
        call.switch(Request(body=body, request_id="never-sent"))
        _hand_over(call, (200, {}))

    def arm(
        self,
        request: Request,
        *,
        start_ns: int,
        limits: Limits | None = None,
        in_flight_at_send: int | None = None,
    ) -> SdkCall:
        """Have the SDK make the request; see client.completion.arm. What it raises is told in the record."""
        call = greenlet(self._ask)
        made = call.switch(request)
        if not isinstance(made, bytes):
            made = Cut("client_error", f"{SDK_SAYS} {type(made).__name__}: {made}")
        limits = limits or Limits()
        return SdkCall(Completion(self._pool, request, start_ns, limits, in_flight_at_send, made), call)

    def _ask(self, request: Request) -> Exception | None:
        """Runs in a greenlet of its own; gives the request's bytes to its parent from within the transport.
        It must not know the call's owner: a greenlet at rest is only let go when nothing points to it."""
        try:
            fields = orjson.loads(request.body)
            with self._create(
                **{name: value for name, value in fields.items() if name in self._known},
                extra_body={name: value for name, value in fields.items() if name not in self._known},
                extra_headers={"X-Request-Id": request.request_id},
            ):
                return None
        except Exception as error:
            return error


class SdkCall:
    """A request on its way that the SDK made: a Completion, and the SDK's call that waits for its end."""

    def __init__(self, completion: Completion, call: greenlet) -> None:
        self._completion = completion
        self._call = call
        self.fire = completion.fire

    @property
    def finished(self) -> Finished | None:
        return self._completion.finished

    def wait(self) -> Finished:
        """As Completion.wait. The SDK's own view of the end comes after the record and changes nothing."""
        finished = self._completion.wait()
        _hand_over(self._call, self._completion.head)
        return finished

    def cancel(self, reason: CancelReason) -> None:
        """As Completion.cancel."""
        self._completion.cancel(reason)


def _hand_over(call: greenlet, head: Head) -> None:
    if call:  # at rest in the transport, neither failed before nor ended
        call.parent = getcurrent()
        call.switch(head)


class _Transport(httpx2.BaseTransport):
    """The SDK's way to the network: gives a request's bytes to the greenlet that called for them, rests, and
    is woken with the answer's head."""

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        caller = getcurrent().parent
        assert caller is not None
        status, headers = caller.switch(_message(request))
        if status is None:
            raise httpx2.ReadError("no answer", request=request)
        return httpx2.Response(status, headers=dict(headers), stream=httpx2.ByteStream(b""))


def _message(request: httpx2.Request) -> bytes:
    """The request as it goes over the wire (HTTP/1.1), with the SDK's headers in their order."""
    start = b"%s %s HTTP/1.1" % (request.method.encode("ascii"), request.url.raw_path)
    headers = [b"%s: %s" % pair for pair in request.headers.raw if _NO_KEY.encode() not in pair[1]]
    return b"\r\n".join([start, *headers, b"", request.read()])


def _client(target: Target) -> OpenAI:
    path, _, query = target.path.partition("?")
    base_url = f"{'https' if target.tls else 'http'}://{target.authority}"
    named = {name.lower(): value for name, value in target.headers.items()}
    http_client = httpx2.Client(
        transport=_Transport(),
        headers={"Accept-Encoding": "identity"},
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),
        timeout=None,
        trust_env=False,
    )
    if (azure := target.azure) is not None:
        return AzureOpenAI(
            azure_endpoint=base_url + azure.before,
            azure_deployment=azure.deployment,
            api_version=target.api_version_asked,
            api_key=named.get("api-key") or target.api_key or _NO_KEY,
            default_headers=target.headers,
            default_query=dict(parse_qsl(query)),
            http_client=http_client,
            max_retries=0,
            timeout=None,
        )
    return OpenAI(
        base_url=base_url + path.removesuffix(ENDPOINTS[target.endpoint].path),
        api_key=target.api_key or _NO_KEY,
        default_headers=target.headers,
        default_query=dict(parse_qsl(query)),
        http_client=http_client,
        max_retries=0,
        timeout=None,
    )
