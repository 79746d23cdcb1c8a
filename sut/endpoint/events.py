"""Server-sent events out of bytes: what stands behind `data:`, event by event, however the bytes were cut up.

Text is never decoded here, so half a character at the end of a read is nothing special.
"""

from collections.abc import Iterator

from sut.endpoint.fault import Fault

LONGEST_EVENT_BYTES = 4 << 20  # a prompt of 100,000 ids that comes back has a fifth of it


class EventStream:
    """The events of one response. [WHATWG HTML, server-sent events: lines end in LF or CR LF here]"""

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The payloads of all events that are complete with these bytes.

        Raises:
            Fault: a line longer than any honest event.
        """
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > LONGEST_EVENT_BYTES:
            raise Fault(f"an event of more than {LONGEST_EVENT_BYTES >> 20} MiB")
        for line in lines:
            line = line.removesuffix(b"\r")
            if line.startswith(b"data:"):
                self._data.append(line[5:].strip())
            elif not line and self._data:
                yield b"\n".join(self._data)
                self._data = []
            # comments (`:`) and other fields carry nothing that is needed

    @property
    def is_between_events(self) -> bool:
        """Whether nothing of an event is left that never was completed."""
        return not self._data and not self._rest.strip()
