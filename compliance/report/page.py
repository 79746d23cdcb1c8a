"""HTML pages from templates, with every text escaped. A page is one file that loads nothing."""

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from compliance.report.chart_drawing import color_of, dashes
from compliance.report.chart_svg import svg_of
from compliance.report.palette import DARK, LIGHT, variables
from runs.harness import HARNESS_VERSION
from runs.wording import duration, limit_text, milliseconds, printable, two_digits

FOLDER = Path(__file__).parent
CHARTS = "charts.js"  # script of pages with charts


@dataclass(frozen=True)
class Script:
    """A script of this package, and the digest with which the page allows it."""

    text: Markup
    digest: str


def render_page(
    page: Any, template: str = "page.html", scripts: Sequence[str] = (CHARTS,), *, folder: Path = FOLDER, **more: Any
) -> str:
    """Return a page as HTML.

    Args:
        scripts: Files of the page's scripts; the page allows no other script.
        folder: Directory of the template; the templates of this package are found too.
    """
    environment = Environment(
        loader=FileSystemLoader((folder, FOLDER)), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, finalize=_harmless,
    )  # fmt: skip
    environment.filters |= {
        "number": _number, "milliseconds": milliseconds, "limit": limit_text, "duration": duration,
        "setting": _setting, "two_digits": two_digits, "svg": svg_of, "color": color_of,
        "dashes": dashes,
    }  # fmt: skip
    palettes = {"light": Markup(variables(LIGHT)), "dark": Markup(variables(DARK))}
    loaded = [_script((FOLDER / name).read_text()) for name in scripts]
    return environment.get_template(template).render(
        page=page, version=HARNESS_VERSION, scripts=loaded, **palettes, **more
    )


def _script(text: str) -> Script:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return Script(Markup(text), digest)


def _harmless(value: Any) -> Any:
    return printable(value, lines=True) if isinstance(value, str) and not isinstance(value, Markup) else value


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.{0 if float(value).is_integer() else 2}f}"


def _setting(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}={item}" for name, item in value.items())
    return f"{value:g}" if isinstance(value, float) else str(value)
