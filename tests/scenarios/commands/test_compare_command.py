"""`main.py compare`: labels, files, exit codes and mistakes."""

import json
from pathlib import Path

import pytest

from runs.bench.bench_record import BenchRecord, Conditions
from runs.record.layout import RunDir
from tests.conftest import Finished, run_here
from tests.support.runs.bench_records import bench_record, write_folder
from tests.support.runs.dummy_runs import DummyRuns
from tests.support.runs.submission_runs import edit


@pytest.fixture(autouse=True)
def working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def unattested(record: BenchRecord) -> BenchRecord:
    return record.model_copy(update={"runs": [run.model_copy(update={"seal_sha256": None}) for run in record.runs]})


def write(label: str, speed: float = 40, **fields: object) -> None:
    write_folder(Path(f"output/bench-{label}"), unattested(bench_record(label, speed, **fields)))


def run_compare(*words: object) -> Finished:
    return run_here("compare", *words)


def test_benches_are_named_by_label_and_by_directory() -> None:
    write("a")
    write("b", 50)
    write("c", 30)
    done = run_compare("a", Path("output/bench-b"), "c", "--json")
    assert done.code == 0
    content = json.loads(done.stdout)["answer"]
    assert [entry["label"] for entry in content["against"]] == ["b", "c"]
    folder = Path("output/compare-a-b-c")
    written = json.loads((folder / "compare.json").read_text())
    assert content == {**written, "page": str(folder / "compare.html")}
    page = (folder / "compare.html").read_text()
    assert content["against"][0]["sentence"].startswith(
        "b against a: best rate within limits: 36 → 48.5 queries/s (+34.7%): faster"
    )
    assert all(measure["reason"] in page for entry in content["against"] for measure in entry["measures"])
    assert '<p class="answer">b against a: faster: best rate within limits (+34.7%), ' in page


@pytest.mark.parametrize(("limit", "code"), [("3%", 1), ("50%", 0)])
def test_a_slower_bench_fails_with_fail_if_slower(limit: str, code: int) -> None:
    write("a")
    write("b", 30)
    done = run_compare("a", "b", "--fail-if-slower", limit, "-o", "out")
    assert done.code == code
    sentence = "b is slower than --fail-if-slower 3%: Offline: 5,120 → 3,840 tokens/s (-25.0%)"
    assert (sentence in done.stdout) == bool(code)
    assert json.loads(Path("out/compare.json").read_text())["slower"] == bool(code)
    assert run_compare("b", "a", "--fail-if-slower", "3%").code == 0


def test_different_conditions_are_listed() -> None:
    write("a")
    write("b", conditions=Conditions(equal={"data": "own prompts"}, system={}))
    done = run_compare("a", "b")
    assert done.code == 3
    assert "not comparable: these conditions differ\n  data: a synthetic, b own prompts\n" in done.stdout
    assert "against a:" not in done.stdout
    page = Path("output/compare-a-b/compare.html").read_text()
    assert "Not comparable" in page
    assert '<td class="bad">own prompts</td>' in page
    assert "<td>limits</td>" in page


def test_an_incomplete_bench_is_named() -> None:
    write("a")
    write("b", status="interrupted")
    done = run_compare("a", "b")
    assert (done.code, "b: the bench is interrupted, with 7 runs" in done.stdout) == (0, True)
    assert "The bench is interrupted." in Path("output/compare-a-b/compare.html").read_text()


def test_runs_are_compared_with_labels_and_attestations() -> None:
    runs = DummyRuns()
    for name in ("one", "two"):
        runs.copy(Path("output") / name, "Offline")
    done = run_compare("output/one", "output/two")
    assert done.code == 0
    assert "not tested against noise" in done.stdout
    manifest = RunDir(Path("output/two")).manifest
    edit(manifest, asked={"label": "second"})
    done = run_compare("output/one", "second")
    assert done.code == 0
    assert "second against one\n" in done.stdout
    manifest.write_bytes(manifest.read_bytes() + b"\n")
    done = run_compare("output/one", "second")
    assert done.code == 3
    assert "manifest.json: " in done.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("a",), "compare a: two benches are required"),
        ((), "two benches are required"),
        (("a", "b", "--fail-if-slower", "3"), "--fail-if-slower 3: not a percentage"),
        (("a", "b", "--fail-if-slower", "-1%"), "--fail-if-slower -1%: not a percentage"),
        (("a", "0f3b2c"), "0f3b2c: "),
        (("a", "empty"), "empty: "),
        (("a", "damaged"), "bench.json"),
    ],
)
def test_invalid_arguments_are_refused(words: tuple[str, ...], message: str) -> None:
    write("a")
    Path("empty").mkdir()
    Path("damaged").mkdir()
    Path("damaged/bench.json").write_text("{")
    done = run_compare(*words)
    assert done.code == 2
    assert message in done.stderr
    assert "fix: " in done.stderr
    assert not list(Path("output").glob("compare*"))
