"""A page in a real browser without a window: its layout and its picture."""

import json
import shutil
import subprocess
from html import escape, unescape
from pathlib import Path
from typing import Any

import pytest

BROWSER = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
needs_browser = pytest.mark.skipif(BROWSER is None, reason="no browser: apt-get install chromium")

# Runs outside of the page, which has no script of its own and is shown in a frame of the requested width.
_MEASURE = """
const frame = document.querySelector("iframe");
frame.onload = () => {
  const page = frame.contentDocument, root = page.documentElement;
  const box = one => { const r = one.getBoundingClientRect(); return [r.left, r.top, r.right, r.bottom]; };
  const svgs = [...page.querySelectorAll("figure img")].map(img => {
    const bytes = Uint8Array.from(atob(img.src.split(",")[1]), letter => letter.charCodeAt(0));
    const svg = new DOMParser().parseFromString(new TextDecoder().decode(bytes), "image/svg+xml").documentElement;
    svg.setAttribute("style", `display: block; width: ${img.clientWidth}px; height: ${img.clientHeight}px`);
    img.replaceWith(page.adoptNode(svg));
    return svg;
  });
  const pictures = svgs.map(svg => ({
    box: box(svg),
    shapes: svg.querySelectorAll("path, use, rect").length,
    texts: [...svg.querySelectorAll("text")].map(text => ({words: text.textContent, box: box(text)})),
  }));
  document.querySelector("pre").textContent = JSON.stringify({
    width: root.clientWidth, scrollWidth: root.scrollWidth, height: root.scrollHeight, pictures,
    paper: getComputedStyle(page.body).backgroundColor, ink: getComputedStyle(page.body).color,
  });
};
"""


def _run(*options: str) -> "subprocess.CompletedProcess[str]":
    fixed = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--allow-file-access-from-files"]
    return subprocess.run(
        [BROWSER, *fixed, "--enable-logging=stderr", *options], capture_output=True, text=True, timeout=300, check=True
    )


def lay_out(page: Path, width: int, folder: Path) -> dict[str, Any]:
    """Return the sizes and pictures of a page in a window of this width, and the messages in its `console`."""
    outer = folder / f"look-{width}.html"
    outer.write_text(
        f'<body style="margin:0"><iframe style="width:{width}px;height:900px;border:0" src="{escape(page.as_uri())}">'
        f"</iframe><pre></pre><script>{_MEASURE}</script>"
    )
    done = _run("--window-size=1700,1000", "--dump-dom", outer.as_uri())
    layout: dict[str, Any] = json.loads(unescape(done.stdout.partition("<pre>")[2].partition("</pre>")[0]))
    return {**layout, "console": [line for line in done.stderr.splitlines() if "CONSOLE" in line]}


def screenshot(page: Path, width: int, height: int, target: Path, *, dark: bool = False) -> None:
    """Take a picture of the upper part of the page."""
    scheme = ["--blink-settings=preferredColorScheme=0"] if dark else []
    _run(*scheme, f"--window-size={width},{height}", f"--screenshot={target}", page.as_uri())
