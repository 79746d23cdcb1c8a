"""rates.svg: target_qps against p99 TTFT and TPOT, with the limits.

Drawn by hand: two small panels need no library.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from scenarios.tune.journal import LegRecord

WIDTH, PANEL_HEIGHT = 760, 260
LEFT, RIGHT, TOP, BOTTOM = 70, 20, 44, 44  # margins of a panel
VALID, INVALID, LIMIT, INK, GRID = "#1a7f37", "#cf222e", "#9a6700", "#24292f", "#d0d7de"
HEADER_HEIGHT, LEGEND_HEIGHT = 40, 46


@dataclass(frozen=True)
class _Axis:
    """A logarithmic axis from values to pixels."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return self.start + share * (self.end - self.start)


def draw(legs: Sequence[LegRecord], title: str, confirmed_qps: float | None) -> str:
    """The plot as SVG text.

    Args:
        legs: probes and confirmations; those without latencies are left out.
        title: what was tuned.
        confirmed_qps: the rate found, marked by a line.
    """
    panels = []
    top = HEADER_HEIGHT
    for name in ("ttft", "tpot"):
        points = [
            (leg, value)
            for leg in legs
            if (value := getattr(leg, f"{name}_p99_ms")) is not None and value > 0 and leg.target_qps > 0
        ]
        limit_ms = next((getattr(leg, f"{name}_limit_ms") for leg in legs if getattr(leg, f"{name}_limit_ms")), None)
        panels.append(_panel(name.upper(), points, limit_ms, confirmed_qps, top))
        top += PANEL_HEIGHT
    height = top + LEGEND_HEIGHT
    body = "\n".join([_text(LEFT, 24, title, size=15, weight="bold"), *panels, _legend(top + 16)])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
        f'font-family="sans-serif">\n<rect width="100%" height="100%" fill="white"/>\n{body}\n</svg>\n'
    )


def _panel(
    name: str, points: list[tuple[LegRecord, float]], limit_ms: float | None, confirmed_qps: float | None, top: int
) -> str:
    parts = [_text(LEFT, top + TOP - 12, f"p99 {name} (ms)", weight="bold")]
    if not points:
        return "\n".join([*parts, _text(LEFT, top + PANEL_HEIGHT / 2, "no answers")])
    rates = [leg.target_qps for leg, _ in points]
    values = [value for _, value in points] + ([limit_ms] if limit_ms else [])
    across = _Axis(min(rates) / 1.05, max(rates) * 1.05, LEFT, WIDTH - RIGHT)
    up = _Axis(min(values) / 1.3, max(values) * 1.3, top + PANEL_HEIGHT - BOTTOM, top + TOP)
    for value in _ticks(up.low, up.high, 5):
        parts.append(_line(LEFT, up.at(value), WIDTH - RIGHT, up.at(value), GRID))
        parts.append(_text(LEFT - 8, up.at(value) + 4, f"{value:,.4g}", anchor="end"))
    for value in _ticks(across.low, across.high, 8):
        parts.append(_line(across.at(value), up.start, across.at(value), up.start + 5, INK))
        parts.append(_text(across.at(value), up.start + 18, f"{value:,.4g}", anchor="middle"))
    parts.append(_line(LEFT, up.start, WIDTH - RIGHT, up.start, INK))
    parts.append(_text(WIDTH - RIGHT, up.start + 34, "target_qps", anchor="end"))
    if limit_ms:
        parts.append(_line(LEFT, up.at(limit_ms), WIDTH - RIGHT, up.at(limit_ms), LIMIT, dashes="6 4", width=2))
        parts.append(_text(WIDTH - RIGHT, up.at(limit_ms) - 5, f"limit {limit_ms:g} ms", anchor="end", colour=LIMIT))
    if confirmed_qps is not None and across.low <= confirmed_qps <= across.high:
        parts.append(_line(across.at(confirmed_qps), up.start, across.at(confirmed_qps), up.end, VALID, dashes="2 3"))
    parts += [_mark(across.at(leg.target_qps), up.at(value), leg, value) for leg, value in points]
    return "\n".join(parts)


def _ticks(low: float, high: float, most: int) -> list[float]:
    """Round values within, the coarsest steps that give at least three of them; the ends where there are none."""
    for step in (10.0, 5.0, 2.0, 1.0, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01):
        unit = step * 10 ** math.floor(math.log10(high))
        ticks = [unit * k for k in range(math.ceil(low / unit), math.floor(high / unit) + 1) if k > 0]
        if len(ticks) >= 3:
            spread = [10.0**k for k in range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1)]
            return spread if len(ticks) > most and len(spread) >= 3 else ticks[:: math.ceil(len(ticks) / most)]
    return [low, high]


def _mark(x: float, y: float, leg: LegRecord, value: float) -> str:
    """A disc for VALID, a ring for INVALID, a triangle for a leg that was stopped; a confirmation has a halo."""
    colour = VALID if leg.valid else INVALID
    told = f"{leg.step} {leg.number}: {leg.target_qps:g} qps, {'at least ' if leg.stopped else ''}{value:.4g} ms, "
    told += "stopped" if leg.stopped else leg.verdict
    if leg.stopped:
        corners = f"{x:.1f},{y - 6:.1f} {x - 5.5:.1f},{y + 4:.1f} {x + 5.5:.1f},{y + 4:.1f}"
        shape = f'<polygon points="{corners}" fill="white" stroke="{colour}" stroke-width="2">'
        end = "</polygon>"
    else:
        fill = colour if leg.valid else "white"
        shape = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{fill}" stroke="{colour}" stroke-width="2">'
        end = "</circle>"
    halo = ""
    if leg.step == "confirm":
        halo = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="9" fill="none" stroke="{colour}"/>'
    return f"{halo}{shape}<title>{escape(told)}</title>{end}"


def _legend(y: float) -> str:
    rows = (
        "disc: VALID    ring: INVALID    triangle: INVALID for certain and stopped, p99 of the answers so far",
        "halo: confirmation    dotted line: the rate found",
    )
    return "\n".join(_text(LEFT, y + 16 * place, row, size=11) for place, row in enumerate(rows))


def _line(x1: float, y1: float, x2: float, y2: float, colour: str, *, dashes: str = "", width: int = 1) -> str:
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" '
        f'stroke-width="{width}"{dashed}/>'
    )


def _text(
    x: float, y: float, text: str, *, size: int = 12, anchor: str = "start", weight: str = "normal", colour: str = INK
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" font-weight="{weight}" '
        f'fill="{colour}" xml:space="preserve">{escape(text)}</text>'
    )
