"""Pictures: what is in them, whatever a name holds."""

from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest

from compliance.report.curve import curves
from compliance.report.pictures import CurvePoint, Picture, Point, distribution, points
from runs.loadgen.early_stopping import judge_latencies

FAST = CurvePoint("fast", "8", 900.0, 20.0, 2.0)
SLOW = CurvePoint("slow", "1", 100.0, 30.0, 4.0)
OURS = CurvePoint("leg", "12/s", 500.0, 25.0, 3.0, (2000.0, 100.0), ours=True)
MS = 1_000_000


def texts(picture: Picture) -> set[str]:
    root = ElementTree.fromstring(picture.svg)
    return {"".join(one.itertext()).strip() for one in root.iter() if one.tag.endswith("text")}


def test_the_same_picture_has_the_same_bytes_and_a_name_is_text_whatever_it_holds() -> None:
    rows = [Point("$a$ <b>&", 564_400.0), Point("y" * 80, 99.5, "Org")]
    drawn = points("llama", rows, "% of the limit", 100)
    assert drawn == points("llama", rows, "% of the limit", 100)
    assert {"$a$ <b>&", "y" * 13 + "…" + "y" * 12, "Org"} <= texts(drawn)
    assert drawn.words == "llama, % of the limit: 2 results; named: Org 99.5"


@pytest.mark.parametrize(
    ("late", "count", "said"),
    [
        (0, 10, "0 late, too few queries to allow any"),
        (3, 1000, "3 late of 2 allowed"),
        (0, 1000, "0 late of 2 allowed"),
    ],
)
def test_a_distribution_shows_the_limit_and_what_early_stopping_allows(late: int, count: int, said: str) -> None:
    values_ns = np.full(count, 10 * MS)
    values_ns[:late] = 2001 * MS
    drawn = distribution("TTFT", values_ns, 10 * MS, 2000 * MS, judge_latencies(values_ns, 2000 * MS, 0.99))
    assert drawn.words == f"TTFT: p99 10 ms of 2,000 ms; {said}"
    assert {"ms", "% of queries"} <= texts(drawn)
    assert distribution("latency", values_ns, 10 * MS, None, None).words == "latency: p99 10 ms"


def test_runs_are_drawn_as_points_on_curves() -> None:
    ttft, tpot, user = curves([FAST, SLOW, OURS])
    assert {"8", "1", "12/s", "P90 TTFT, ms"} <= texts(ttft)
    assert "12/s: 500 at 25" in ttft.words
    assert "1,000 / P90 TPOT" in user.words
    assert tpot.svg != next(iter(curves([FAST, SLOW, replace(OURS, holds=False)]))).svg
    assert not list(curves([FAST]))
    assert not list(curves([FAST, replace(SLOW, ttft_ms=None, tpot_ms=None)]))
