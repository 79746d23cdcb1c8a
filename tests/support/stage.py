"""The system under test between a fake LoadGen and a fake engine."""

import asyncio
import threading

from sut.engine import EngineLimits, Request
from sut.feed import AdmissionControl, Feed
from sut.loadgen_sut import LoadgenSut
from tests.support.fakes import FakeEngine, FakeLoadgen, FakeRecorder, Sample

PROMPTS = [[10, 11], [20], [30, 31, 32], [40]]
HANDLE = 0x7F00_0000_1000  # LoadGen's handles are pointers: they need 64 bits


class Stage:
    """A system under test between a fake LoadGen and a fake engine; the event loop turns when the test says so."""

    def __init__(self, *, report_first_token: bool = True, admission: AdmissionControl | None = None) -> None:
        self.loop = asyncio.new_event_loop()
        self.loadgen = FakeLoadgen()
        self.engine = FakeEngine()
        self.recorder = FakeRecorder()
        self.failures: list[BaseException] = []
        self.sut = LoadgenSut(
            self.loadgen,
            self.loop,
            self.engine,
            PROMPTS.__getitem__,
            self.recorder,  # type: ignore[arg-type]  # the one method that is used
            report_first_token=report_first_token,
            on_failure=self.failures.append,
            admission=admission or Feed(EngineLimits()),
        )

    def issue(self, *indices: int) -> list[Request]:
        """Issue samples as LoadGen does, on a thread of its own; the requests that reached the engine."""
        before = len(self.engine.requests)
        samples = [Sample(HANDLE + 8 * (self.sut.issued + place), index) for place, index in enumerate(indices)]
        thread = threading.Thread(target=self.sut.issue_queries, args=(samples,))
        thread.start()
        thread.join()
        self.slices()
        return self.engine.requests[before:]

    def turn(self) -> None:
        """One turn of the loop: everything that is due when it begins."""
        self.loop.call_soon(self.loop.stop)
        self.loop.run_forever()

    def slices(self) -> None:
        """Turns until no slice is planned."""
        self.turn()
        while self.sut._slice_planned:
            self.turn()
