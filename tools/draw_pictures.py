"""Draw a picture of the documentation from a bench, from multiple benches, or from an `ab`.

Usage: python -m tools.draw_pictures docs/images/bench.svg BENCH [BENCH ...]
"""

import sys
from pathlib import Path

from compliance.report.ab_charts import courses, forest
from compliance.report.bench_charts import bench_charts
from compliance.report.bench_text import conclusion
from compliance.report.chart_svg import svg_file
from runs.ab.ab_record import AB_FILE, AbRecord, read_ab_record
from runs.bench.bench_record import BenchRecord, read_bench_record
from runs.files.writing import write_atomic
from runs.record.layout import BENCH_FILE

COLUMNS = 2


def draw_benches(records: list[BenchRecord]) -> bytes:
    """Return TTFT and TPOT of benches."""
    first = records[0]
    engine = first.conditions.system.get("engine")
    names = " and ".join(record.label for record in records)
    title = names if len(records) > 1 else f"Bench of {first.target}, engine {engine}"
    lines = [conclusion(records[0])] if len(records) == 1 else []
    return svg_file(title, lines, bench_charts(records)[:COLUMNS], COLUMNS)


def draw_ab(record: AbRecord) -> bytes:
    """Return the changes of the first compared system at the first load, and a latency over time that differs."""
    changes = record.changes_of(0, 1)
    different = {change.quantity for change in changes if change.verdict in ("faster", "slower")}
    over_time = sorted(courses(record, 0), key=lambda chart: chart.y.name not in different)
    charts = [forest(record, changes), *over_time[:1]]
    return svg_file(f"{record.systems[1].name} against {record.systems[0].name}", record.sentences, charts, COLUMNS)


def main(output: Path, folders: list[Path]) -> None:
    """Write the picture of the directories."""
    if (folders[0] / AB_FILE).is_file():
        picture = draw_ab(read_ab_record(folders[0] / AB_FILE))
    else:
        picture = draw_benches([read_bench_record(folder / BENCH_FILE) for folder in folders])
    write_atomic(output, picture)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), list(map(Path, sys.argv[2:])))
