"""The page: one HTML file that needs no network and no script, light or dark as the reader's machine is, printable."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from compliance.report import pictures
from compliance.report.ceiling import Device
from compliance.report.leg_section import LegSection, leg_section
from compliance.report.pictures import Bar, Picture
from runs.environment import HARNESS_VERSION
from runs.errors import HarnessError
from runs.wording import milliseconds, printable

MOST_SECTIONS = 24  # legs that are drawn; more of them stand in the table alone


@dataclass(frozen=True)
class TuneRecord:
    """A tune's tune.json."""

    directory: str
    record: dict[str, Any]


@dataclass
class Page:
    """What stands on a page."""

    title: str
    made: str
    legs: list[LegSection] = field(default_factory=list)
    overview: list[Picture] = field(default_factory=list)
    tunes: list[dict[str, Any]] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)  # a sentence for each leg that could not be read


def make_page(
    title: str, made: str, legs: Sequence[tuple[str, Path]], tunes: Sequence[TuneRecord], measured: Device | None
) -> Page:
    """Read and draw everything; a leg that cannot be read is named on the page.

    Args:
        legs: name and run directory.
        measured: this machine's processor, for legs that ran on it.
    """
    page = Page(title, made)
    for number, (name, root) in enumerate(legs[:MOST_SECTIONS], start=1):
        try:
            page.legs.append(leg_section(root, f"leg{number}", name, measured))
        except HarnessError as error:
            page.left_out.append(f"{name}: {error.message}")
    page.left_out += [f"{name}: not drawn, the page has {MOST_SECTIONS} legs" for name, _ in legs[MOST_SECTIONS:]]
    page.overview = _overview(page.legs)
    page.tunes = [_tune(tune) for tune in tunes]
    return page


def _overview(legs: Sequence[LegSection]) -> list[Picture]:
    """Rates side by side, where there are two or more."""
    found = []
    for name, title in (("tokens_per_second", "Tokens/s"), ("samples_per_second", "Samples/s")):
        bars = [Bar(leg.name, value, leg.good) for leg in legs if (value := getattr(leg, name))]
        if len(bars) > 1:
            found.append(pictures.side_by_side(title, bars[:12]))
    return found


def _tune(tune: TuneRecord) -> dict[str, Any]:
    record = tune.record
    rows = [
        {
            "step": f"{step} {leg['number']}",
            "target_qps": leg["target_qps"],
            "outcome": f"{leg['verdict']}, stopped" if leg["stopped"] else leg["verdict"],
            "good": leg["verdict"] == "VALID",
            "ttft": _of_limit(leg, "ttft"),
            "tpot": _of_limit(leg, "tpot"),
        }
        for step, legs in (("probe", record.get("probes", [])), ("confirmation", record.get("confirmations", [])))
        for leg in legs
    ]
    drawn = [pictures.rates(panel) for panel in pictures.rate_panels(record)]
    return {"directory": tune.directory, "record": record, "rows": rows, "pictures": drawn}


def _of_limit(leg: dict[str, Any], name: str) -> str:
    value, limit = leg.get(f"{name}_p99_ms"), leg.get(f"{name}_limit_ms")
    return "" if value is None else milliseconds(value) + (f" / {milliseconds(limit)}" if limit else "")


def render(page: Page) -> str:
    """The page as HTML text, every text of it escaped."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        finalize=_harmless,
    )
    environment.filters["number"] = _number
    return environment.get_template("page.html").render(page=page, version=HARNESS_VERSION)


def _harmless(value: Any) -> Any:
    return printable(value, lines=True) if isinstance(value, str) and not isinstance(value, Markup) else value


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.{0 if float(value).is_integer() else 2}f}"
