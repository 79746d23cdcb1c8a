"""HTML out of the templates of this folder, which share one style sheet."""

from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from compliance.report.pictures import LIGHT, Picture
from runs.wording import printable

DARK = {"ink": "#e6edf3", "muted": "#9198a1", "grid": "#30363d", "one": "#4493f8", "two": "#f0883e"}
DARK |= {"good": "#3fb950", "bad": "#f85149"}


def render_template(name: str, **values: Any) -> str:
    """A template with its values, every text of them escaped."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        finalize=_harmless,
    )
    environment.filters |= {"svg": _svg, "number": _number}
    return environment.get_template(name).render(light=LIGHT, dark=DARK, **values)


def _harmless(value: Any) -> Any:
    return printable(value, lines=True) if isinstance(value, str) and not isinstance(value, Markup) else value


def _svg(picture: Picture) -> Markup:
    return Markup(picture.svg)  # drawn here, every text in it escaped


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.{0 if float(value).is_integer() else 2}f}"
