"""The page of legs: one HTML file without scripts and external files, for light and dark screens and for print.

Its layout is page.html.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from compliance.report.curve import curves, point_of_folder, point_of_leg
from compliance.report.leg_section import LegSection, leg_section
from compliance.report.pictures import CurvePoint, Picture, tune_rates
from runs.environment import HARNESS_VERSION
from runs.errors import HarnessError
from runs.wording import duration, milliseconds, moment, printable

MOST_SECTIONS = 24  # legs with a section; others are only named


@dataclass
class Page:
    """What is on a page."""

    title: str
    made: str
    legs: list[LegSection] = field(default_factory=list)
    tunes: list[tuple[Path, dict[str, Any], Picture]] = field(default_factory=list)  # directory, tune.json
    points: list[CurvePoint] = field(default_factory=list)  # runs of the MLPerf Endpoints client, and legs over HTTP
    curves: list[Picture] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)  # a sentence for each leg that could not be read


def make_page(
    title: str,
    made: str,
    legs: Sequence[tuple[str, Path]],
    tunes: Sequence[tuple[Path, dict[str, Any]]],
    folders: Sequence[tuple[str, Path]] = (),
) -> Page:
    """Read and draw everything; a leg that cannot be read is named on the page.

    Args:
        legs: name and run directory.
        tunes: directory, and the record in its tune.json.
        folders: name and directory of runs of the MLPerf Endpoints client.
    """
    page = Page(title, made)
    page.tunes = [(directory, record, tune_rates(record["scenario"], record)) for directory, record in tunes]
    for number, (name, root) in enumerate(legs[:MOST_SECTIONS], start=1):
        try:
            page.legs.append(leg_section(root, f"leg{number}", name))
        except HarnessError as error:
            page.left_out.append(f"{name}: {error.message}")
    page.left_out += [f"{name}: not drawn, the page has {MOST_SECTIONS} legs" for name, _ in legs[MOST_SECTIONS:]]
    for name, root in folders:
        try:
            page.points += [point] if (point := point_of_folder(root, name)) is not None else []
        except HarnessError as error:
            page.left_out.append(f"{name}: {error.message}")
    if page.points:
        over_http = [point_of_leg(leg.manifest, leg.result, leg.name) for leg in page.legs]
        page.points += [point for point in over_http if point is not None]
        page.curves = list(curves(page.points))
    return page


def render(page: Any, template: str = "page.html", **more: Any) -> str:
    """A page as HTML text, every text of it escaped."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        finalize=_harmless,
    )
    environment.filters |= {
        "number": _number, "milliseconds": milliseconds, "moment": moment, "duration": duration, "setting": _setting,
    }  # fmt: skip
    return environment.get_template(template).render(page=page, version=HARNESS_VERSION, **more)


def _harmless(value: Any) -> Any:
    return printable(value, lines=True) if isinstance(value, str) and not isinstance(value, Markup) else value


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.{0 if float(value).is_integer() else 2}f}"


def _setting(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}={item}" for name, item in value.items())
    return f"{value:g}" if isinstance(value, float) else str(value)
