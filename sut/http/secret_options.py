"""Options whose values may be secret: headers of requests, and fields of their bodies.

The value is replaced with a reference when the option is read, so that no file of a run contains the value. The
environment of this process has the value, so that the run's process receives it, as it receives the API key.
"""

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from runs.errors import InputError

HEADER_VARIABLE = "MLPERF_ENDPOINT_HEADER_"  # followed by the name of the header
_BODY_VARIABLE = "MLPERF_ENDPOINT_BODY_"  # followed by the beginning of the fields' SHA-256
_HASH = "sha256:"
# Headers that describe the connection or the body.
_OWN_HEADERS = frozenset(
    {
        "accept-encoding", "connection", "content-encoding", "content-length", "content-type", "expect", "host",
        "keep-alive", "te", "trailer", "transfer-encoding", "upgrade",
    }
)  # fmt: skip


def header_variable(name: str) -> str:
    """Return the environment variable with the value of a header."""
    return HEADER_VARIABLE + re.sub(r"\W", "_", name).upper()


def header_reference(text: str) -> str:
    """Return the name of a header in the form `NAME=VALUE` or `NAME: VALUE`, and put the value into the environment.

    A name alone is a reference already.

    Raises:
        ValueError: If the header is invalid; the message does not contain the value.
    """
    name, *values = (part.strip() for part in re.split("[=:]", text, maxsplit=1))
    if not re.fullmatch(r"[\w!#$%&'*+.^`|~-]+", name, re.ASCII):
        raise ValueError("not of the form NAME=VALUE")
    if name.lower() in _OWN_HEADERS:
        raise ValueError(f"the client sets the header {name}")
    variable = header_variable(name)
    if not values:
        if not os.environ.get(variable):
            raise ValueError(f"{name} has no value, and the environment variable {variable} is not set")
        return name
    (value,) = values
    if not value:
        raise ValueError(f"{name} has an empty value; check for an unset shell variable")
    if not re.fullmatch(r"[ -~]{1,8192}", value):
        raise ValueError(f"the value of {name} has characters that a header cannot contain")
    os.environ[variable] = value
    return name


def header_values(names: Iterable[str]) -> dict[str, str]:
    """Return the headers of these names, with their values from the environment.

    Raises:
        InputError: If a value is missing.
    """
    try:
        return {name: os.environ[header_variable(name)] for name in map(header_reference, names)}
    except ValueError as error:
        raise InputError(f"--header: {error}", "write --header NAME=VALUE") from error


def body_reference(value: Any) -> str:
    """Return the SHA-256 of a JSON object with fields of a body, and put the object into the environment.

    Raises:
        ValueError: If the value is not a JSON object; the message does not contain the value.
    """
    if isinstance(value, str) and value.startswith(_HASH):
        if _body_variable(value) not in os.environ:
            raise ValueError("only the hash of the fields is recorded; give the JSON object again")
        return value
    try:
        fields = json.loads(value) if isinstance(value, str) else value
        content = json.dumps(fields, sort_keys=True, allow_nan=False)
    except (ValueError, TypeError, RecursionError):
        raise ValueError("not JSON") from None
    if not isinstance(fields, dict) or not fields:
        raise ValueError("not a JSON object with fields")
    reference = _HASH + hashlib.sha256(content.encode()).hexdigest()
    os.environ[_body_variable(reference)] = content
    return reference


def _body_variable(reference: str) -> str:
    return _BODY_VARIABLE + reference.removeprefix(_HASH)[:16]


def body_fields(reference: str | None) -> dict[str, Any]:
    """Return the fields of a reference, from the environment.

    Raises:
        InputError: If the fields are missing.
    """
    try:
        fields: dict[str, Any] = json.loads(os.environ[_body_variable(body_reference(reference))]) if reference else {}
    except ValueError as error:
        raise InputError(f"--extra-body: {error}", "write --extra-body JSON") from error
    return fields


def texts_in(value: Any) -> Iterator[str]:
    """Yield all texts in a JSON value except the keys of objects."""
    if isinstance(value, str):
        yield value
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from texts_in(part)


def _headers_reference(value: Any) -> list[str]:
    """Return the references of a header, a list of headers, or headers with their values."""
    texts = [f"{name}={text}" for name, text in value.items()] if isinstance(value, dict) else value
    return [header_reference(str(text)) for text in ([texts] if isinstance(texts, str) else texts)]


# Field of a run → function that returns the reference of its value.
SECRET_FIELDS: dict[str, Callable[[Any], Any]] = {"header": _headers_reference, "extra_body": body_reference}


def without_secrets(values: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return options, or the content of a file with options, with references. An invalid value stays for its check."""
    return {key: _without_secret(str(key).replace("-", "_"), value) for key, value in values.items()}


def _without_secret(name: str, value: Any) -> Any:
    if name in SECRET_FIELDS:
        with contextlib.suppress(ValueError, TypeError):
            return SECRET_FIELDS[name](value)
    return without_secrets(value) if isinstance(value, dict) and name not in SECRET_FIELDS else value
