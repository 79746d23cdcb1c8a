"""What a status of a server's response means: the problem, and what to type."""

from sut.http.events import error_words

_NO_REPEAT = "the client does not repeat requests"
_FIXES = {
    400: "change the fields of requests with --api-omit FIELD, --api-rename PARAMETER=NAME or --extra-body JSON",
    404: "correct the path or the model: --api-server URL, --api-model-name NAME",
    405: "correct the path of --api-server URL",
    413: "give shorter prompts, or raise the limit of the server",
    429: "lower the rate or --api-connections N, or raise the limit of the server",
    503: "lower the rate or --api-connections N, or raise the limit of the server",
    504: "lower the rate or --api-connections N, or raise the timeout of the proxy",
}
_FIXES |= {408: _FIXES[504], 415: _FIXES[400], 422: _FIXES[400]}


def is_success(status: int) -> bool:
    """Return whether a status reports a success with content. [RFC 9110, section 15.3]"""
    return 200 <= status < 300 and status not in (204, 205)


def response_problem(status: int, first_line: bytes, location: bytes = b"") -> str:
    """Return the problem of a response that is no success, from the first line of its body or the redirect's target."""
    reason = f"the server redirects to {error_words(location)}" if location else error_words(first_line)
    return f"status {status}: {reason or 'empty body'}"


def fix_of_status(status: int, key_fix: str, server_log: str = "") -> str:
    """Return what to type after a refused or invalid response.

    Args:
        key_fix: fix for a refused key.
        server_log: file with the output of the server; empty if the server was started by others.
    """
    if status in (401, 403):
        return key_fix
    if status in _FIXES:
        return _FIXES[status]
    return f"read the error in {server_log}; {_NO_REPEAT}" if server_log else _fix_without_log(status)


def _fix_without_log(status: int) -> str:
    if is_success(status):
        return f"check the server with one request, for example with curl; {_NO_REPEAT}"
    return f"find the cause of status {status} at the server; {_NO_REPEAT}"
