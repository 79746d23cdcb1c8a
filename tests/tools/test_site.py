"""The documentation site: its pages and groups, and its search if it can be built."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

import mlperf_llama_vllm
from tests.conftest import ROOT
from tests.support.documents.browser import BROWSER, needs_browser
from tools.site.__main__ import FILES

SETTINGS = ROOT / "tools" / "site" / "mkdocs.yml"
SITE = ROOT / "dist" / "site"


def test_each_page_is_in_one_group() -> None:
    groups = yaml.safe_load(SETTINGS.read_text())["nav"]
    assert [name for group in groups for name in group] == ["Get started", "Guides", "Reference", "Development"]
    pages = [page for group in groups for value in group.values() for page in value]
    assert len(pages) == len(set(pages))
    here = {path for pattern in FILES for path in ROOT.glob(pattern) if path.suffix == ".md"}
    assert set(pages) == {str(path.relative_to(ROOT)) for path in here}


@pytest.fixture(scope="module")
def site() -> Path:
    for words in (["sh", "scripts/setup_docs.sh"], [".venv-docs/bin/python", "-m", "tools.site"]):
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    return SITE


@pytest.mark.long
def test_the_site_needs_no_network(site: Path) -> None:
    for page in site.rglob("*.html"):
        loaded = re.findall(r'<(?:script|link rel="stylesheet")[^>]* (?:src|href)="([^"]+)"', page.read_text())
        assert loaded
        assert not [address for address in loaded if "//" in address], page
    text = (site / "docs" / "python-api.html").read_text()
    assert all(f'id="mlperf_llama_vllm.{name}"' in text for name in mlperf_llama_vllm.__all__ if name != "HarnessError")


@pytest.mark.long
@needs_browser
def test_the_search_works_on_files(site: Path) -> None:
    assert BROWSER is not None
    page = (site / "docs" / "verify.html").as_uri() + "?q=quantization"
    words = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=8000", "--dump-dom", page]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=True)
    assert re.search(r'quantization\.html\?h=[^"]*" class="md-search-result__link"', done.stdout)


_HIDDEN_LINES = """
document.querySelector("iframe").onload = event => {
  const blocks = [...event.target.contentDocument.querySelectorAll(".md-typeset pre > code")];
  const hidden = blocks.filter(block => block.scrollWidth > block.clientWidth + 1);
  document.querySelector("output").textContent = `${blocks.length} blocks, ${hidden.length} hidden`;
};
"""


@pytest.mark.long
@needs_browser
@pytest.mark.parametrize("name", ["index", "docs/rehearsal"])
def test_no_line_of_code_is_hidden(site: Path, tmp_path: Path, name: str) -> None:
    assert BROWSER is not None
    outer, page = tmp_path / "outer.html", (site / f"{name}.html").as_uri()
    outer.write_text(
        f'<iframe src="{page}" style="width: 1280px; height: 900px"></iframe><output></output>'
        f"<script>{_HIDDEN_LINES}</script>"
    )
    words = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files"]
    words += ["--window-size=1400,1000", "--virtual-time-budget=8000", "--dump-dom", outer.as_uri()]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=True)
    assert re.search(r"<output>[1-9]\d* blocks, 0 hidden</output>", done.stdout)
