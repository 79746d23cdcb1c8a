"""The page of a checked tree: causes, a matrix of submitters and causes, findings with their lines, and pictures.

The files of a tree are untrusted. Their texts are shortened, made printable and escaped, and a hash in the page allows
only the page's own script.
"""

import base64
import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from compliance.report.page import render_page
from compliance.report.pictures import Picture, PicturePoint, draw_points
from compliance.trees.causes import RANKS
from compliance.trees.check_report import head, unapplied_rule_lines
from compliance.trees.check_tree import TreeReport, TreeVerdict
from compliance.trees.findings import object_or_empty, shown_lines
from compliance.trees.scenario_directory import LATENCIES, RATES
from compliance.trees.tree import Place
from runs.benchmark import SCENARIOS
from runs.wording import printable

MAX_FINDINGS = 4000  # findings on a page, most severe first
MAX_LINE_CHARS = 300  # maximum length of a quoted line
MAX_COLUMNS = 24  # causes in the matrix
MAX_PICTURES = 48
MAX_POINTS = 400  # maximum number of points in a picture
MAX_NAMED = 6
# A result gets a name if its ratio to the median of equal accelerators is above this value or below its inverse.
OUTLIER = 1.3
NEAR_LIMIT = 99.0  # percent of a latency limit above which a result gets a name
_SCENARIOS = {name.lower(): name for name in (*SCENARIOS, "MultiStream")}
_SCRIPT = (Path(__file__).parent / "tree_page.js").read_text()


def tree_page(verdict: TreeVerdict, made: str) -> str:
    """Return the page as HTML."""
    checked = TreeReport(verdict)
    order = {cause.name: number for number, cause in enumerate(checked.causes)}
    most_severe = sorted(checked.caused, key=lambda caused_finding: order[caused_finding.cause])[:MAX_FINDINGS]
    counts = Counter(
        (caused_finding.subject[1], caused_finding.cause)
        for caused_finding in checked.caused
        if len(caused_finding.subject) > 1
    )
    columns = checked.causes[:MAX_COLUMNS]
    page = {
        "title": f"Check of {printable(checked.tree.root.name, 80)}, round {checked.tree.round}",
        "made": made,
        "checked": checked,
        "head": next(head(checked)),
        "weights": RANKS,
        "columns": columns,
        # rows of the matrix: submitter, and its number of findings for each cause
        "matrix": [
            (organization, [counts[organization, column.name] for column in columns])
            for organization in sorted({organization for organization, _ in counts})
        ],
        # finding, and the lines of files that it is about
        "findings": [
            (caused_finding, list(shown_lines(checked.tree.root, caused_finding.finding, MAX_LINE_CHARS)))
            for caused_finding in most_severe
        ],
        "not_judged": list(unapplied_rule_lines(checked)),
        "rates": list(_rates(checked))[:MAX_PICTURES],
        "latencies": list(_latencies(checked))[:MAX_PICTURES],
    }
    digest = base64.b64encode(hashlib.sha256(_SCRIPT.encode()).digest()).decode()
    return render_page(page, "tree_page.html", script=_SCRIPT, digest=digest)


def _rates(checked: TreeReport) -> Iterator[Picture]:
    """Draw the rates per accelerator for each benchmark and scenario, with a row for each accelerator model."""
    groups: defaultdict[tuple[str, str, str], list[tuple[Place, str, float]]] = defaultdict(list)
    for place, numbers in checked.numbers.items():
        key = next((key for key in RATES if numbers.get(key)), None)
        accelerator, count = _accelerators(checked, place)
        if key is not None and count:
            group = (_benchmark(checked, place), _SCENARIOS.get(place.scenario.lower(), place.scenario), RATES[key])
            groups[group].append((place, accelerator, numbers[key] / count))
    for (benchmark, scenario, unit), rates in sorted(groups.items()):
        if len(rates) < 2:
            continue
        middle = {
            name: median(rate for _, submitter, rate in rates if submitter == name)
            for name in {name for _, name, _ in rates}
        }
        counts = Counter(name for _, name, _ in rates)
        far = {
            place: abs(rate / middle[name] - 1)
            for place, name, rate in rates
            if counts[name] > 2 and not 1 / OUTLIER <= rate / middle[name] <= OUTLIER
        }
        named = set(sorted(far, key=lambda place: -far[place])[:MAX_NAMED])
        shown = [
            PicturePoint(_label(name), rate, _label(place.organization) if place in named else "")
            for place, name, rate in rates[:MAX_POINTS]
        ]
        yield draw_points(f"{_label(benchmark)} {_label(scenario)}", shown, f"{unit} per accelerator")


def _latencies(checked: TreeReport) -> Iterator[Picture]:
    """Draw the latencies as shares of their limits for each benchmark."""
    groups: defaultdict[str, list[tuple[Place, str, float]]] = defaultdict(list)
    for place, numbers in checked.numbers.items():
        for name, (key, limit) in LATENCIES.items():
            if numbers.get(limit) and key in numbers and place.scenario.lower() in ("server", "interactive"):
                groups[_benchmark(checked, place)].append((place, name, 100 * numbers[key] / numbers[limit]))
    for benchmark, latencies in sorted(groups.items()):
        labeled = [
            latency for latency in sorted(latencies, key=lambda latency: -latency[2]) if latency[2] >= NEAR_LIMIT
        ][:MAX_NAMED]
        shown = [
            PicturePoint(
                f"{_label(point[0].scenario)} {point[1]}",
                point[2],
                _label(point[0].organization) if point in labeled else "",
            )
            for point in latencies[:MAX_POINTS]
        ]
        yield draw_points(_label(benchmark), shown, "% of the limit", 100)


def _benchmark(checked: TreeReport, place: Place) -> str:
    """Return the name of a benchmark for its directory name in the tree."""
    return checked.tree.round.table.directories.get(place.benchmark, place.benchmark)


def _label(text: str) -> str:
    return printable(text, 40)


def _accelerators(checked: TreeReport, place: Place) -> tuple[str, int]:
    """Return the name and the number of a system's accelerators, or of its processors if it has no accelerators."""
    system = object_or_empty(checked.tree.system(place.division, place.organization, place.system))

    def number(name: str) -> int:
        text = str(system.get(name, "")).strip()
        return int(text) if text.isascii() and text.isdigit() and len(text) < 7 else 0

    nodes = number("number_of_nodes") or 1
    if count := number("accelerators_per_node"):
        return str(system.get("accelerator_model_name")), nodes * count
    return str(system.get("host_processor_model_name")), nodes * number("host_processors_per_node")
