"""Colors of the pages and their charts, light and dark, and the markers of systems.

c1 to c5 are the colors of series: blue, vermillion, green, purple and yellow of Okabe and Ito, which people with color
blindness can distinguish. Two colors are darker on light paper, so that the contrast is at least 3:1.
"""

LIGHT = {
    "ink": "#1f2328", "muted": "#59636e", "grid": "#dde1e6", "paper": "#ffffff", "card": "#f6f8fa", "link": "#0969da",
    "good": "#1a7f37", "bad": "#cf222e",
    "c1": "#0072b2", "c2": "#d55e00", "c3": "#009e73", "c4": "#a04a7d", "c5": "#7a5c00",
}  # fmt: skip
DARK = {
    "ink": "#e6edf3", "muted": "#9198a1", "grid": "#30363d", "paper": "#0d1117", "card": "#151b23", "link": "#4493f8",
    "good": "#3fb950", "bad": "#f85149",
    "c1": "#56b4e9", "c2": "#e69f00", "c3": "#00b386", "c4": "#cc79a7", "c5": "#f0e442",
}  # fmt: skip
SERIES = ("c1", "c2", "c3", "c4", "c5")
SHAPES = ("o", "s", "^", "D", "v")  # matplotlib's markers of systems or benches in one chart


def variables(colors: dict[str, str]) -> str:
    """Return the colors as variables of a style sheet."""
    return " ".join(f"--{name}: {color};" for name, color in colors.items())
