"""A server's URL, TLS settings and key. No message of this module contains the key."""

import ipaddress
import os
import re
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

from runs.errors import InputError, SetupError
from sut.http.dialects import DIALECTS, ROUTES, Dialect
from sut.http.secret_options import body_fields, header_values, texts_in

USER_AGENT = "mlperf-llama-vllm"
_API_ROOT = "/v1"  # first part of the paths of OpenAI's API; some servers have another part
_HIDDEN = "[key]"
_MIN_CUT = 4  # minimum length of a secret, and of a beginning of it at the end of a text, that is hidden
# Names of a query's parameters that contain a key.
_KEY_PARAMETER = re.compile(r"(?i)(^|[-_&])(key|apikey|token|sig|signature|secret|password|auth)=")


@dataclass(frozen=True)
class ServerAddress:
    """The address of a server. Messages and the manifest name the server by `url`."""

    url: str  # without route and query
    host: str
    port: int
    tls: bool
    path: str  # prefix of every path; usually empty
    route: str = field(default="", compare=False)  # path of the requests for completions, if the URL names it
    query: str = ""  # sent with every request; begins with "?" unless it is empty

    @classmethod
    def parse(cls, text: str) -> "ServerAddress":
        """Read `http://host:port`, with or without the route of a dialect or the `/v1` of OpenAI's API.

        Raises:
            InputError: If scheme, host, port or path is invalid, or the URL has a key (which is not repeated).
        """
        fix = "write http://HOST:PORT or https://HOST:PORT"
        try:
            parts = urlsplit(text)
            port = parts.port
        except ValueError as error:
            raise InputError(f"--api-server {text}: {error}", fix) from error
        if parts.username or parts.password:
            raise InputError("--api-server: the URL contains a user or password", "use --api-key-env for a key")
        if _KEY_PARAMETER.search(parts.query):
            raise InputError("--api-server: the query of the URL contains a key", "use --api-key-env or --header")
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.fragment:
            raise InputError(f"--api-server {text}: not a server's address", fix)
        tls = parts.scheme == "https"
        path = parts.path.rstrip("/")
        route = route_at_end(path)
        path = path.removesuffix(route) if route else path.removesuffix(_API_ROOT)
        if not route and f"{_API_ROOT}/" in path:
            raise InputError(
                f"--api-server {text}: {parts.path} is not the route of a supported API",
                f"give the server's address without a path, or with one of {', '.join(ROUTES)}",
            )
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        if port is None:
            port = 443 if tls else 80
        query = f"?{parts.query}" if parts.query else ""
        return cls(f"{parts.scheme}://{host}:{port}{path}", parts.hostname, port, tls, path, route, query)

    @property
    def text(self) -> str:
        """The URL with route and query, from which `parse` returns this address."""
        return f"{self.url}{self.route}{self.query}"

    @property
    def models_path(self) -> str:
        """Path of the list of models."""
        return "/models" if self.route and self.route not in ROUTES else f"{_API_ROOT}/models"

    def dialects(self) -> list[Dialect]:
        """Return the dialects with the route of the URL; all dialects if the URL names no route."""
        if not self.route:
            return list(DIALECTS.values())
        return [dialect for dialect in DIALECTS.values() if dialect.path in (self.route, _API_ROOT + self.route)]

    def target(self, path: str) -> str:
        """Return what a request for a path of this server has in its first line."""
        return f"{self.path}{path}{self.query}"

    def is_here(self) -> bool:
        """Return whether the server is on this machine, by the kernel's routes; nothing is sent."""
        try:
            addresses = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_DGRAM)
            for family, kind, protocol, _, where in addresses:
                with socket.socket(family, kind, protocol) as probe:
                    probe.connect(where)
                    if probe.getsockname()[0] == where[0] or ipaddress.ip_address(str(where[0])).is_loopback:
                        return True
        except (OSError, ValueError):
            pass  # connecting reports the problem
        return False

    @property
    def authority(self) -> str:
        """Value of the HTTP header Host."""
        return self.url.split("://", 1)[1].removesuffix(self.path)

    def fix_of_redirect(self, path: str, location: bytes) -> str:
        """Return what to type if the server redirects requests for a path; the client follows no redirect."""
        target = urljoin(f"{self.url}{path}", location.decode("ascii", "replace"))
        try:
            address = ServerAddress.parse(target.removesuffix(path) if path == self.models_path else target)
        except InputError:
            address = self
        if address == self and address.route in ("", self.route):
            return "turn off the redirect of the server; the client follows no redirect"
        return f"give --api-server {address.text}; the client follows no redirect"

    def no_connection(self, error: BaseException) -> SetupError:
        """Return why a connection could not be opened, from an exception or its causes."""
        reasons = [error]
        while (reason := reasons[-1].__cause__ or reasons[-1].__context__) is not None:
            reasons.append(reason.exceptions[0] if isinstance(reason, BaseExceptionGroup) else reason)
        for reason in reasons:
            if isinstance(reason, ssl.SSLCertVerificationError):
                return SetupError(
                    f"server {self.url}: its certificate is not valid: {reason.verify_message}",
                    "give the certificate authority's file with --api-ca, or accept a test certificate with --insecure",
                )
        # asyncio writes the address instead of the error's text.
        texts = [
            os.strerror(reason.errno) for reason in reasons if isinstance(reason, ConnectionError) and reason.errno
        ]
        texts += [reason.strerror for reason in reasons if isinstance(reason, OSError) and reason.strerror]
        return SetupError(
            f"server {self.url} accepts no connection: {texts[0] if texts else error}",
            "start the server, or correct the address",
        )


def route_at_end(path: str) -> str:
    """Return the route of a dialect at the end of a path, of OpenAI's API also without `/v1`; "" without a route."""
    routes = {*ROUTES, *(route.removeprefix(_API_ROOT) for route in ROUTES)}
    return max((route for route in routes if path.endswith(route)), key=len, default="")


def with_route(text: str, route: str) -> str:
    """Return the URLs of `--api-server` with a route, which they may have already; without a route, the URLs.

    Raises:
        InputError: If a URL names another route, or is invalid.
    """
    return ",".join(_with_route(url.strip(), route) for url in text.split(","))


def _with_route(url: str, route: str) -> str:
    address = ServerAddress.parse(url)
    if route and address.route and address.route != route_at_end(route):
        raise InputError(f"--endpoint {route}: the URL {url} names another route", "remove --endpoint")
    path = "" if address.route else route
    parts = urlsplit(url)
    root = _API_ROOT if path.startswith(f"{_API_ROOT}/") else ""
    return parts._replace(path=parts.path.rstrip("/").removesuffix(root) + path).geturl()


def addresses(text: str) -> list[ServerAddress]:
    """Read `--api-server`: URLs, separated by commas.

    Raises:
        InputError: If one of them is not an address, or occurs twice.
    """
    servers = [ServerAddress.parse(part.strip()) for part in text.split(",")]
    for address in servers:
        if servers.count(address) > 1:
            raise InputError(f"--api-server names {address.url} twice", "give each server once")
    return servers


@dataclass(frozen=True)
class Access:
    """API key, headers and TLS settings of the requests to a server. `repr` and `hidden` never show secrets."""

    key: str | None = field(default=None, repr=False)
    ca_file: Path | None = None
    variable: str = ""  # environment variable of the key
    own_headers: Mapping[str, str] = field(default_factory=dict, repr=False)  # headers that the user added
    is_insecure: bool = False  # True if any certificate is accepted
    other_secrets: tuple[str, ...] = field(default=(), repr=False)  # texts in the fields that the user added

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> "Access":
        """Read the options of a run; the environment has the key and the values of headers and fields.

        Raises:
            InputError: If the key is invalid, or options contradict each other.
        """
        access = cls.from_environment(options.get("api_key_env"), options.get("api_ca"))
        headers = header_values(options.get("header") or ())
        if access.key is not None and "authorization" in map(str.lower, headers):
            raise InputError(
                "--header Authorization: --api-key-env sends this header, too", "remove --header or --api-key-env"
            )
        if options.get("insecure") and access.ca_file is not None:
            raise InputError("--insecure: contradicts --api-ca", "remove --insecure or --api-ca")
        return replace(
            access,
            own_headers=headers,
            is_insecure=bool(options.get("insecure")),
            other_secrets=tuple(texts_in(body_fields(options.get("extra_body")))),
        )

    @classmethod
    def from_environment(cls, key_variable: str | None, ca_file: Path | str | None = None) -> "Access":
        """Read the key from an environment variable.

        Raises:
            InputError: If the variable is not set, or a header cannot contain its value.
        """
        ca_file = Path(ca_file) if ca_file else None
        if key_variable is None:
            return cls(None, ca_file)
        key = os.environ.get(key_variable)
        if not key:
            raise InputError(f"--api-key-env {key_variable}: the variable is not set", "export it before the run")
        if not re.fullmatch(r"[!-~]{1,4096}", key):  # characters that a header's value may contain
            raise InputError(
                f"--api-key-env {key_variable}: the key has spaces or characters outside ASCII",
                "export the key without spaces and other characters",
            )
        return cls(key, ca_file, key_variable)

    def headers(self) -> dict[str, str]:
        """Return the headers of a request, with names in lower case; the user's headers replace those of the client."""
        headers = {"user-agent": USER_AGENT, "accept-encoding": "identity", "content-type": "application/json"}
        if self.key is not None:
            headers["authorization"] = f"Bearer {self.key}"
        return headers | {name.lower(): value for name, value in self.own_headers.items()}

    @property
    def key_fix(self) -> str:
        """Fix for a server that refuses the key, or refuses requests without a key."""
        if self.variable:
            return f"check the key in the environment variable {self.variable} (--api-key-env)"
        return "export the key, and name its environment variable with --api-key-env"

    def tls_context(self, address: ServerAddress) -> ssl.SSLContext | None:
        """Return the TLS context, which verifies certificates, against a private CA if one is given.

        Raises:
            SetupError: If the CA's file is unreadable.
        """
        if not address.tls:
            return None
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
        except (OSError, ssl.SSLError) as error:
            raise SetupError(f"--api-ca {self.ca_file}: {error}", "give a readable PEM file") from error
        if self.is_insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context

    def hidden(self, text: str) -> str:
        """Return a text of a server with all secrets removed, because the server may repeat them."""
        secrets = {self.key or "", *self.own_headers.values(), *self.other_secrets}
        for secret in sorted((secret for secret in secrets if len(secret) >= _MIN_CUT), key=len, reverse=True):
            text = text.replace(secret, _HIDDEN)
            # A shortened error may end within the secret.
            sizes = range(len(secret) - 1, _MIN_CUT - 1, -1)
            cut = next((size for size in sizes if text.endswith(secret[:size])), 0)
            text = text[:-cut] + _HIDDEN if cut else text
        return text
