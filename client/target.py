"""What is sent where, and how long each part of the answer may take."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit

from client.azure import VERSION_FIELD, AzureResource, azure_resource
from client.endpoints import ENDPOINTS, Endpoint

_VERSION = re.compile(r"v\d+\w*")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_MODELS = "/models"
_OURS = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "accept-encoding", "x-request-id"}
)


@dataclass(frozen=True)
class Target:
    """A server's completions endpoint and what every request to it carries.

    `base_url` may come with or without `/v1`, trailing slashes, a path of its own, or the whole endpoint;
    without a scheme it is http. `endpoint` is a name of endpoints.ENDPOINTS. `api_version` (or one in the
    address's query) says that it is an Azure OpenAI resource: see client.azure. `url` is what is really
    called. The key and the headers stay out of `repr`. Raises ValueError, with what to change, for a URL, an
    endpoint or a header that cannot be used.
    """

    base_url: str
    model: str
    api_key: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    endpoint: str = "chat"
    api_version: str | None = None

    def __post_init__(self) -> None:
        if self.endpoint not in ENDPOINTS:
            raise ValueError(f"{self.endpoint!r} is no endpoint: give one of {', '.join(ENDPOINTS)}")
        try:
            parts = self._parts()
            usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError:
            usable = False
        if not usable or not self.base_url.isascii() or re.search(r"\s", self.base_url):
            raise ValueError(
                f"{_without_password(self.base_url)!r} is not a server's address: give one such as"
                f" http://127.0.0.1:8000 or https://host/v1"
            )
        if parts.username is not None:
            raise ValueError("the address holds a user name: give the key as api_key or in a header instead")
        named = _endpoint_in(parts.path)
        if named is not None and named.name != self.endpoint:
            raise ValueError(
                f"the address ends in {named.path}, but the endpoint asked for is {self.endpoint}: leave"
                f" {named.path} out, or ask for the endpoint {named.name}"
            )
        for name, value in self.all_headers().items():
            if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
                raise ValueError(f"header {name!r} or its value holds characters that HTTP does not allow")
            if name.lower() in _OURS:
                raise ValueError(f"header {name!r} is set by the client itself: leave it out")

    def _parts(self) -> SplitResult:
        text = self.base_url.strip()
        return urlsplit(text if "://" in text else f"http://{text}")

    @property
    def tls(self) -> bool:
        return self._parts().scheme == "https"

    @property
    def host(self) -> str:
        return self._parts().hostname or ""

    @property
    def port(self) -> int:
        return self._parts().port or (443 if self.tls else 80)

    @property
    def path(self) -> str:
        """The endpoint's path with the query, if the address has one."""
        return self._path_of(ENDPOINTS[self.endpoint].path)

    @property
    def models_path(self) -> str:
        """The path of the list of models, beside the endpoint."""
        return self._path_of(_MODELS)

    @property
    def api_version_asked(self) -> str | None:
        """`api_version`, else the one in the address's query."""
        return self.api_version or dict(parse_qsl(self._parts().query)).get(VERSION_FIELD)

    @property
    def azure(self) -> AzureResource | None:
        """The Azure resource that is called by its deployments; None for any other server."""
        path = self._base_path()
        return azure_resource(path) if self.api_version_asked and not _names_version(path) else None

    def _base_path(self) -> str:
        path = _plain_path(self._parts().path)
        named = _endpoint_in(path)
        return path.removesuffix(named.path) if named else path

    def _path_of(self, endpoint: str) -> str:
        base = self._base_path()
        if (azure := self.azure) is not None:
            path = azure.path_to(endpoint, self.model)
        else:
            path = f"{base if _names_version(base) else f'{base}/v1'}{endpoint}"
        query = self._parts().query
        if self.api_version:
            query = urlencode({**dict(parse_qsl(query)), VERSION_FIELD: self.api_version})
        return path + (f"?{query}" if query else "")

    @property
    def authority(self) -> str:
        """The Host header: name or address, and the port where it is not the scheme's own."""
        name = f"[{self.host}]" if ":" in self.host else self.host
        return name if self.port == (443 if self.tls else 80) else f"{name}:{self.port}"

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://{self.authority}{self.path}"

    @property
    def url_told(self) -> str:
        """`url` for logs and messages: what a query says is left out, for some hold keys."""
        return self._told(self.path)

    @property
    def models_url_told(self) -> str:
        """The address of the list of models, likewise."""
        return self._told(self.models_path)

    def _told(self, path: str) -> str:
        scheme = "https" if self.tls else "http"
        return re.sub(rf"(?<!{VERSION_FIELD})=[^&#]*", "=…", f"{scheme}://{self.authority}{path}")

    def all_headers(self) -> dict[str, str]:
        """The caller's headers and the key: as a bearer token (on Azure as `api-key`), unless the caller sets
        that header."""
        named = {name.lower() for name in self.headers}
        name, value = ("api-key", "{}") if self.azure else ("Authorization", "Bearer {}")
        key = {name: value.format(self.api_key)} if self.api_key and name.lower() not in named else {}
        return {**key, **self.headers}

    def head(self) -> bytes:
        """The start of every request's head; the request adds its id, its length and the blank line."""
        defaults = {"Content-Type": "application/json", "Accept": "text/event-stream, application/json"}
        return self._head(f"POST {self.path}", defaults)

    def models_request(self) -> bytes:
        """The whole request for the list of models."""
        return self._head(f"GET {self.models_path}", {"Accept": "application/json"}) + b"\r\n"

    def endpoint_request(self, endpoint: str) -> bytes:
        """A GET of one of ENDPOINTS, which generates nothing."""
        return self._head(f"GET {self._path_of(ENDPOINTS[endpoint].path)}", {}) + b"\r\n"

    def page_request(self, page: str) -> bytes:
        """The whole request for a page beside /v1, such as "/version"."""
        path, mark, query = self.models_path.partition("?")
        root = path.removesuffix(_MODELS).rpartition("/")[0]
        return self._head(f"GET {root}{page}{mark}{query}", {"Accept": "application/json"}) + b"\r\n"

    def _head(self, start: str, defaults: Mapping[str, str]) -> bytes:
        lines = [
            f"{start} HTTP/1.1",
            f"Host: {self.authority}",
            "Accept-Encoding: identity",
            *(f"{name}: {value}" for name, value in self.all_headers().items()),
        ]
        named = {name.lower() for name in self.headers}
        lines += [f"{name}: {value}" for name, value in defaults.items() if name.lower() not in named]
        return "\r\n".join([*lines, ""]).encode("latin-1")


def _plain_path(path: str) -> str:
    return re.sub(r"/{2,}", "/", path).rstrip("/")


def _endpoint_in(path: str) -> Endpoint | None:
    """The endpoint whose whole path an address holds; the longest, for one path ends in another."""
    found = [row for row in ENDPOINTS.values() if _plain_path(path).endswith(row.path)]
    return max(found, key=lambda row: len(row.path), default=None)


def _names_version(path: str) -> bool:
    return _VERSION.fullmatch(path.rpartition("/")[2]) is not None


def _without_password(url: str) -> str:
    return re.sub(r"//[^/@]*@", "//…@", url)


@dataclass(frozen=True)
class Limits:
    """Time limits of meaning, in seconds: no output yet, a pause between outputs, the whole answer.
    Comments and empty events do not count as a sign of life. `connect_s` covers the TCP connection and
    the TLS handshake."""

    connect_s: float = 5.0
    first_token_s: float = 60.0
    stall_s: float = 30.0
    total_s: float = 600.0


@dataclass(slots=True, kw_only=True)
class Request:
    """One request, ready to send: the JSON body (see endpoints.request_body) and what its record repeats.

    `scheduled_at_s` counts from the run's start moment; `stream` is what the body asks for.
    """

    body: bytes
    request_id: str
    arrival: int | None = None
    segment: int = 0
    scheduled_at_s: float | None = None
    name: str = "chat"
    tenant: str | None = None
    session: str | None = None
    turn: int | None = None
    asked_input_tokens: int | None = None
    asked_output_tokens: int | None = None
    worker: int | None = None
    stream: bool = True
