"""The page of a comparison of systems: its sentence, its charts, and the facts that differ."""

from compliance.report.ab_charts import MAX_DOTS, courses, forest
from compliance.report.ab_page import ab_page
from compliance.report.page import render_page
from runs.ab.ab_record import AbBlock, AbRecord, AbSystem
from runs.bench.bench_record import BenchRun
from tests.support.runs.ab_records import change_of, record_of

FASTER = change_of("TPOT mean", -0.05, "faster").model_copy(update={"values": [-0.04, -0.05, -0.9], "trimmed": [2]})
EQUAL = change_of("TTFT mean", 0.001, "equal")


def with_levels(record: AbRecord, *levels: tuple[float | None, float | None]) -> AbRecord:
    """Return the record with one block per minute; each has the mean TPOT of both systems."""
    blocks = []
    for number, values in enumerate(levels):
        run = BenchRun(
            number=number + 1,
            kind="server",
            scenario="Server",
            verdict="measured",
            start_time_ns=60_000_000_000 * number,
        )
        block = AbBlock(number=number + 1, load=0, pair=number, systems=[0, 1], run=run, seconds=20,
                        levels={"TPOT mean": list(values), "latency mean": list(values)})  # fmt: skip
        blocks.append(block)
    return record.model_copy(update={"blocks": blocks})


def test_changes_are_drawn_in_rows_with_intervals_and_the_precision() -> None:
    chart = forest(record_of(FASTER, EQUAL), [FASTER, EQUAL])
    assert chart.y.rows == ["TPOT mean", "TTFT mean"]
    series = {part.name: part.points for part in chart.series if part.points}
    assert [len(series[name]) for name in ("pair", "trimmed pair", "faster", "equal")] == [3, 1, 1, 1]
    (faster,) = series["faster"]
    assert (faster.x, faster.low, faster.high) == (-5.0, 100 * FASTER.low, 100 * FASTER.high)  # type: ignore[operator]
    assert faster.text == "TPOT mean -5.0% (-5.5% to -4.5%)"
    assert [(line.value, line.end) for line in chart.lines] == [(-2.0, 2.0), (0, None)]


def test_the_number_of_drawn_pairs_is_limited() -> None:
    many = FASTER.model_copy(update={"values": [-0.05] * 10 * MAX_DOTS, "trimmed": []})
    assert len(forest(record_of(many), [many]).series[0].points) == MAX_DOTS


def test_the_level_of_each_block_is_drawn_for_compared_means() -> None:
    (chart,) = courses(with_levels(record_of(FASTER), (10.0, 9.5), (10.2, None)), 0)
    assert chart.title == "TPOT mean of each block"
    assert [[(point.x, point.y) for point in series.points] for series in chart.series] == [
        [(0.0, 10.0), (1.0, 10.2)], [(0.0, 9.5)]
    ]  # fmt: skip
    assert chart.series[0].points[1].text == "block 2, 1.0 min: 10.2 ms"


def test_the_page_begins_with_the_sentences_and_the_charts() -> None:
    systems = [
        AbSystem(name="A", target="a", facts={"tpot_ms": 10.0, "engine": "dummy"}),
        AbSystem(name="B", target="b", facts={"tpot_ms": 9.5, "engine": "dummy", "noise": 0.1}),
    ]
    record = with_levels(record_of(FASTER, EQUAL, sentences=["B has a shorter TPOT (-5.0%)."]), (10.0, 9.5))
    page = render_page(ab_page(record.model_copy(update={"systems": systems})), "ab_page.html")
    text = " ".join(page.partition("<body>")[2].split())
    places = [text.index(part) for part in ("B has a shorter TPOT (-5.0%).", "<figure ", "<table", "<h2>Systems</h2>")]
    assert places == sorted(places)
    assert "<td>tpot</td><td><b>10 ms</b></td><td><b>9.5 ms</b></td>" in text
    assert "<td>noise</td><td><b>–</b></td><td><b>0.1</b></td>" in text
    assert text.index("<th>engine</th><td>dummy</td>") > text.index("<details>")
