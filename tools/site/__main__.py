"""Build the documentation site from the Markdown files of the clone: `make docs`.

The files keep their places relative to each other, so that their links work on the site as on a code host.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
SOURCE, SITE = ROOT / "dist" / "site-source", ROOT / "dist" / "site"
FILES = ("*.md", "LICENSE", "NOTICE", "docs/**/*", "tools/README.md", "tools/gpu/README.md")
API_PAGE = "docs/python-api.md"
REFERENCE = "\n## Reference\n\n::: mlperf_llama_vllm\n"  # mkdocstrings replaces it by the docstrings


def collect() -> None:
    """Copy the files of the site to `SOURCE`, and add the reference to the page of the Python API."""
    shutil.rmtree(SOURCE, ignore_errors=True)
    for path in (path for pattern in FILES for path in ROOT.glob(pattern) if path.is_file()):
        target = SOURCE / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    for name in ("site.css", "iframe-worker.js"):
        shutil.copy(HERE / name, SOURCE)
    with (SOURCE / API_PAGE).open("a") as page:
        page.write(REFERENCE)


if __name__ == "__main__":
    collect()
    words = [sys.executable, "-m", "mkdocs", "build", "-q", "-f", str(HERE / "mkdocs.yml")]
    code = subprocess.run(words, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, check=False).returncode
    print(f"written to {SITE / 'index.html'}" if code == 0 else "the site was not built")
    sys.exit(code)
