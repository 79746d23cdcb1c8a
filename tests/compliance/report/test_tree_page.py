"""The page of a checked tree: whole in one file, escaped, bounded, and laid out at both widths."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from compliance.finding import fail
from compliance.report import tree_page as page_module
from compliance.report.tree_page import tree_page
from compliance.submission.check.check_tree import Checked
from compliance.submission.tree import Place, Tree
from runs.rounds import ROUNDS
from tests.support.browser import lay_out, needs_browser

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(1)>"


def checked_of(root: Path) -> Checked:
    tree = Tree(root, ROUNDS["v6.0"])
    places = [Place("closed", who, "a", "llama3.1-8b", "Server") for who in ("Org", "<b>Org & Co")]
    for place in places:
        tree.performance(place).root.mkdir(parents=True)
        tree.performance(place).detail.write_text(f'{{"key": "result_validity", "value": "{EVIL}{"x" * 9000}"}}\n')
    found = [
        replace(fail("perf-validity", "", tree.performance(place).detail.relative_to(root), line=1), found=EVIL)
        for place in places
    ]
    one = {"result_first_token_99.00_percentile_latency_ns": 1.99e9, "requested_server_ttft_latency": 2e9}
    return Checked(tree, places, findings=found, numbers={places[0]: one})


def test_what_a_tree_holds_is_text_on_the_page(tmp_path: Path) -> None:
    text = tree_page(checked_of(tmp_path), "now")
    assert EVIL not in text
    assert "&lt;script&gt;alert(1)" in text
    assert text.count("<script") == 1
    assert "<b>Org" not in text
    assert "x" * (page_module.MOST_OF_A_LINE + 1) not in text


def test_the_page_needs_nothing_else(tmp_path: Path) -> None:
    text = tree_page(checked_of(tmp_path), "now")
    assert not re.search(r"""(?:src|href)\s*=\s*["'](?!data:|#)""", text)
    assert "default-src 'none'" in text
    assert "unsafe-inline'; script-src 'sha256-" in text


def test_rates_are_shown_per_accelerator_and_those_far_from_the_median_are_named(tmp_path: Path) -> None:
    tree = Tree(tmp_path, ROUNDS["v6.0"])
    numbers = {}
    for who, gpus, rate in (("A", 1, 100.0), ("B", 2, 210.0), ("C", 1, 95.0), ("D", 2, 400.0), ("cpu", 0, 50.0)):
        place = Place("closed", who, "a", "llama3.1-8b", "Offline")
        description = tree.system("closed", who, "a")
        description.parent.mkdir(parents=True)
        sockets = {"host_processor_model_name": "a processor", "host_processors_per_node": "2"}
        accelerators = {"accelerator_model_name": "a GPU", "accelerators_per_node": str(gpus)}
        description.write_text(json.dumps(sockets | accelerators | {"number_of_nodes": "1"}))
        numbers[place] = {"result_tokens_per_second": rate}
    (found,) = page_module._rates(Checked(tree, list(numbers), numbers=numbers))
    assert found.words == "llama3.1-8b Offline, tokens/s per accelerator: 5 results; named: D 200"
    assert b"a processor" in found.svg


def test_a_page_has_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_module, "MOST_FINDINGS", 1)
    text = tree_page(checked_of(tmp_path), "now")
    assert text.count('class="finding"') == 1
    assert "the gravest 1 of 2" in text


@pytest.mark.long
@needs_browser
@pytest.mark.parametrize("width", [1400, 400])
def test_the_page_fits_and_its_script_runs(tmp_path: Path, width: int) -> None:
    path = tmp_path / "page.html"
    path.write_text(tree_page(checked_of(tmp_path / "tree"), "now"))
    seen = lay_out(path, width, tmp_path)
    assert seen["scrollWidth"] <= width
    assert seen["console"] == []
