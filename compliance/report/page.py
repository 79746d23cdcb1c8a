"""HTML pages from templates, with every text escaped."""

from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from runs.harness import HARNESS_VERSION
from runs.numbers.numbers import shows
from runs.wording import duration, milliseconds, moment, per_second, printable, two_digits


def render_page(page: Any, template: str = "page.html", **more: Any) -> str:
    """Return a page as HTML, with every text escaped."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        finalize=_harmless,
    )
    environment.filters |= {
        "number": _number, "milliseconds": milliseconds, "moment": moment, "duration": duration, "setting": _setting,
        "rate": per_second, "two_digits": two_digits,
    }  # fmt: skip
    environment.tests["shown_for"] = shows
    return environment.get_template(template).render(page=page, version=HARNESS_VERSION, **more)


def _harmless(value: Any) -> Any:
    return printable(value, lines=True) if isinstance(value, str) and not isinstance(value, Markup) else value


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.{0 if float(value).is_integer() else 2}f}"


def _setting(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}={item}" for name, item in value.items())
    return f"{value:g}" if isinstance(value, float) else str(value)
