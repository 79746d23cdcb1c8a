"""Lines of requests.jsonl for runs that tests invent."""

import msgspec

from runs.record.requests_log import RequestLogLine


def encode_line(record: RequestLogLine) -> bytes:
    """Return a line of the file, with its line end."""
    return msgspec.json.encode(record) + b"\n"
