"""An acceptance runs to its table with the dummy engine, goes on where it was interrupted, and says what it lacks."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runs.errors import ExecutionError
from runs.record.layout import RunDir
from runs.record.manifest import read_manifest
from scripts.accept.__main__ import main, missing_of
from scripts.accept.machine import layouts
from scripts.accept.steps import Outcome, Steps
from scripts.accept.table import AcceptTable, markdown
from scripts.bench.report import at_least, at_most
from scripts.bench.tools.models import TINY, make_llama, write_rows
from tests.conftest import Finished

QUEUE = ("--dummy-slots", "8", "--dummy-ttft-ms", "20")  # some 330 queries/s
STEPS = [
    "plan", "doctor", "one-Offline", "all-Offline", "all-Server", "all-Interactive", "all-accuracy", "all-caching",
    "one-Server", "one-Interactive",
]  # fmt: skip


def accept(folder: Path, *options: str) -> int:
    return main(["--engine", "dummy", "--smallest", "--output-dir", str(folder), *options, "--", *QUEUE])


def record(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "accept.json").read_bytes())
    return content


@pytest.mark.long  # about fifteen legs
def test_every_step_is_measured_and_a_second_start_repeats_none(tmp_path: Path) -> None:
    assert accept(tmp_path) in (0, 1)  # a share of the Offline rate may be missed on a busy machine
    first = record(tmp_path)
    assert {step["name"]: step["error"] for step in first["steps"]} == dict.fromkeys(STEPS, "")
    rows = {row["what"]: row for row in first["rows"]}
    assert rows["Offline, one engine"]["met"]
    assert rows["Offline, 2 replicas: loop lag, p99"]["target"] == "≤ 20 ms"
    assert rows["Server, 2 replicas: ÷ Offline"]["value"] > 0
    assert rows["Interactive, one engine: highest rate confirmed"]["value"] > 0
    assert rows["caching audit, 2 replicas"]["measured"].startswith(("PASS", "FAIL"))
    assert rows["accuracy, 2 replicas"]["met"]
    assert "tiny" in first["notes"][0]
    assert "| Offline, one engine | VALID | VALID | yes |" in (tmp_path / "accept.md").read_text()
    assert len(read_manifest(RunDir(tmp_path / "all-Offline" / "confirm-1").manifest).replicas) == 2

    (tmp_path / "steps" / "all-accuracy.json").unlink()
    started = read_manifest(RunDir(tmp_path / "one-Offline" / "confirm-1").manifest).start_time_ns
    accept(tmp_path)
    assert read_manifest(RunDir(tmp_path / "one-Offline" / "confirm-1").manifest).start_time_ns == started
    assert len(list((tmp_path / "discarded").glob("*/all-accuracy"))) == 1
    assert [step["seconds"] for step in record(tmp_path)["steps"] if step["name"] == "one-Offline"] == [
        step["seconds"] for step in first["steps"] if step["name"] == "one-Offline"
    ]


def test_without_time_the_table_says_what_was_not_measured(tmp_path: Path) -> None:
    assert accept(tmp_path, "--minutes", "0.15") in (1, 4)  # 4 where a step had begun
    whole = record(tmp_path)
    left_out = {step["name"]: step["error"] for step in whole["steps"] if step["exit_code"] is None}
    assert "not begun: it takes about 60 s" in left_out["doctor"]
    assert any(row["measured"] == "not measured" and row["met"] is None for row in whole["rows"])
    assert "| **?** |" in (tmp_path / "accept.md").read_text()


def test_what_the_doctor_misses_is_in_the_table(tmp_path: Path, run_main: Callable[..., Finished]) -> None:
    answer = json.loads(run_main("doctor", "--json", "--model-path", tmp_path).stdout)["answer"]
    assert [text for text in missing_of(answer) if str(tmp_path) in text]


def test_what_cannot_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert accept(tmp_path, "--dataset-path", str(tmp_path / "nothing.json")) == 2
    assert "no leg can run: " in capsys.readouterr().err
    assert not (tmp_path / "accept.json").exists()


def test_a_step_that_fails_is_recorded_and_repeated(tmp_path: Path) -> None:
    (tmp_path / "steps").mkdir()
    done = Outcome("good", ["x"], 1, 0.5, answer={"rate": 2})

    def fails() -> Outcome:
        raise ExecutionError("it broke", "mend it")

    steps = Steps(tmp_path, 600, lambda _: None)
    broken = steps.step("bad", ["y"], fails, 10)
    assert (broken.exit_code, broken.answered) == (4, False)
    assert "it broke" in broken.error
    steps.step("good", ["x"], lambda: done, 10)

    again = Steps(tmp_path, 600, lambda _: None)
    assert again.step("good", ["x"], fails, 10) == done
    assert again.step("good", ["other options"], lambda: done, 10) == done
    assert again.step("bad", ["y"], lambda: done, 10) == done


def test_a_step_goes_on_in_its_directory_unless_it_is_another_one_now(tmp_path: Path) -> None:
    def start(*arguments: str) -> None:
        steps = Steps(tmp_path, 600, lambda _: None)
        steps.command("tuned", ["tune", "--scenario", *arguments], expected_s=1, continues=True)

    (tmp_path / "steps").mkdir()
    (tmp_path / "tuned").mkdir()
    kept = tmp_path / "tuned" / "journal.jsonl"
    kept.write_text("")
    start("Nowhere")  # fails, and is recorded
    start("Nowhere")
    assert kept.exists()
    start("Elsewhere")
    assert not kept.exists()
    assert (tmp_path / "discarded" / "1" / "tuned" / "journal.jsonl").exists()


def test_one_engine_sees_one_device_where_replicas_are_the_default() -> None:
    places = [{"variables": {"CUDA_VISIBLE_DEVICES": str(number)}} for number in range(4)]
    one, every = layouts("vllm", {"places": places})
    assert (one.environment, one.arguments) == ({"CUDA_VISIBLE_DEVICES": "0"}, ())
    assert (every.arguments, every.environment, every.faster) == (("--replicas", "4"), {}, 4)
    assert [layout.copies for layout in layouts("dummy", None)] == [1, 2]


def test_a_table_knows_what_is_missed() -> None:
    table = AcceptTable()
    table.figure("rate", 12.345, "samples/s")
    table.figure("share", 0.5, "", at_least(0.9))
    table.figure("lag", 3.0, "ms", at_most(20))
    table.figure("p99", None, "ms", at_most(100))
    assert [row.what for row in table.missed] == ["share", "p99"]
    failed = Outcome("step", [], 4, 1.0, "two\nlines | and a bar")
    text = markdown({"host": {"cpu": "some", "cores": [1]}}, ["reduced"], table, [failed])
    assert "| lag | ≤ 20 ms | 3 ms | yes |" in text
    assert "| share | ≥ 0.9 | 0.5 | **no** |" in text
    assert "| p99 | ≤ 100 ms | not measured | **?** |" in text
    assert "- host: cpu some" in text
    assert "| step | 1 | 4 | two lines \\| and a bar |" in text


@pytest.mark.vllm
@pytest.mark.long  # a tune of each scenario with one engine and with two
def test_with_vllm(tmp_path: Path) -> None:
    model = make_llama(tmp_path / "T", TINY)
    rows = write_rows(tmp_path / "rows.json", 64, 1024)
    out = tmp_path / "accept"
    given = ["--model-path", str(model), "--dataset-path", str(rows), "--output-dir", str(out), "--smallest"]
    assert main(given) in (0, 1)
    whole = record(out)
    assert {step["name"] for step in whole["steps"]} == {*STEPS, "one-generate"}
    assert not [step["error"] for step in whole["steps"] if step["error"]]
    rows_by_name = {row["what"]: row for row in whole["rows"]}
    assert rows_by_name["Offline leg ÷ LLM.generate"]["value"] > 0
