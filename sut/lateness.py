"""How late something was, time after time: percentiles and the worst, in memory that does not grow."""

from array import array
from typing import Any

import numpy as np

from sut.recorder import LatencyHistogram

KEPT = 1024  # values between two looks of the histogram


class Lateness:
    """A histogram and the worst; nothing that grows."""

    def __init__(self) -> None:
        self._kept = array("q")
        self._histogram = LatencyHistogram()
        self.count = 0
        self._worst_ns = 0

    def add(self, value_ns: int) -> None:
        self._kept.append(value_ns)
        if len(self._kept) >= KEPT:
            self._take_in()

    def _take_in(self) -> None:
        if self._kept:
            values = np.frombuffer(self._kept, dtype=np.int64).astype(np.float64)
            self._kept = array("q")
            self.count += len(values)
            self._worst_ns = max(self._worst_ns, int(values.max()))
            self._histogram.add(values)

    def facts(self) -> dict[str, Any]:
        """Count, p50, p99 and worst, in ms; percentiles are within 2 %, and 0.001 stands for anything less."""
        self._take_in()
        if not self.count:
            return {"count": 0}
        return {
            "count": self.count,
            "p50_ms": self._histogram.percentile_ms(50),
            "p99_ms": self._histogram.percentile_ms(99),
            "worst_ms": self._worst_ns / 1e6,
        }
