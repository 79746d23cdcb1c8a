"""What a client observed about itself and about the answers' form; goes on record with the leg.

LoadGen takes its own times when it is called, so they are later than the true ones by what this client needs. That
lateness is measured here: issue to the last byte of the request on the wire, and bytes read to LoadGen told.
"""

import asyncio
from typing import Any

from sut.lateness import Lateness
from sut.loop_lag import LagMeter


class ClientRecord:
    """Counts of one client's timed queries."""

    def __init__(self) -> None:
        self.answers = 0
        self.tokens = 0
        self.chunks = 0  # events that brought ids
        self.most_tokens_in_a_chunk = 0
        self.answers_read_at_once = 0  # of those with more than one id, streaming: TPOT 0
        self.answers_in_one_chunk = 0  # of these
        self.first_tokens_with_others = 0  # first chunks with more than one id
        self.answers_with_cached_count = 0  # the server said how many prompt tokens it took from a cache
        self.answers_with_their_prompt = 0  # its ids came back
        self.answers_with_their_id = 0  # the request's came back
        self.cached_tokens = 0  # prompt tokens that the server took from a cache
        self.issue_to_wire = Lateness()
        self.read_to_loadgen = Lateness()
        self._lag: LagMeter | None = None

    def watch_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        """Measure from now on how late the loop turns to what is due."""
        self._lag = LagMeter(loop)
        self._lag.start()

    def close(self) -> None:
        if self._lag is not None:
            self._lag.stop()

    def facts(self) -> dict[str, Any]:
        lag = self._lag.so_far() if self._lag is not None else None
        return {
            "answers": self.answers,
            "tokens": self.tokens,
            "chunks": self.chunks,
            "most_tokens_in_a_chunk": self.most_tokens_in_a_chunk,
            "answers_read_at_once": self.answers_read_at_once,
            "answers_in_one_chunk": self.answers_in_one_chunk,
            "first_tokens_with_others": self.first_tokens_with_others,
            "answers_with_their_prompt": self.answers_with_their_prompt,
            "answers_with_their_id": self.answers_with_their_id,
            "answers_with_cached_count": self.answers_with_cached_count,
            "cached_tokens": self.cached_tokens,
            "issue_to_wire": self.issue_to_wire.facts(),
            "read_to_loadgen": self.read_to_loadgen.facts(),
            "loop_lag": lag.model_dump() if lag else None,
        }
