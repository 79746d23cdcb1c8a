"""`verify` on run folders of the real client: honest ones pass, and each change of a file is found."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from compliance.endpoints.folder_rules import Case
from compliance.endpoints.verdict import FolderVerdict, as_text, judge_folder
from main import main as run_command
from runs.endpoints.folder import CONFIG, EVENTS, REPORT, SAMPLES, SNAPSHOT, SUMMARY, read_folder
from runs.errors import ExitCode
from tests.support.endpoints_client import unpack

BYTES = "bytes"  # the tokenizer that the recorded runs counted with
Change = Callable[[Path], None]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(tmp_path_factory.mktemp("recorded"))


def _judge(folder: Path, **with_: Any) -> FolderVerdict:
    return judge_folder(folder, **with_)


@pytest.mark.parametrize("model_path", [None, BYTES])
@pytest.mark.parametrize("name", ["audit-honest", "concurrency", "offline", "poisson", "server-died", "warm-up"])
def test_an_honest_folder_is_not_refused(recorded: Path, name: str, model_path: str | None) -> None:
    verdict = _judge(recorded / name, model_path=model_path)
    assert verdict.reasons == []
    assert verdict.exit_code() == ExitCode.OK
    assert {"endpoints-summary", "endpoints-snapshot", "endpoints-report"} <= {one.rule for one in verdict.findings}
    assert json.loads(json.dumps(verdict.record()))["verdict"] in ("PASS", "FLAG")


def test_tokens_are_counted_as_the_client_counts_them(recorded: Path) -> None:
    case = Case(read_folder(recorded / "poisson"), BYTES)
    assert case.recounted is not None
    assert case.run.summary is not None
    assert case.recounted.values["osl"].sum() == case.run.summary.output_sequence_lengths.total
    assert sorted(case.recounted.values["tpot_ns"])[0] == case.run.summary.tpot.min


@pytest.mark.parametrize(("added", "severity"), [(["word"], "warning"), (["word"] * 100, "error")])
def test_tokens_that_differ_are_told_and_an_error_above_one_percent(
    copy: Path, added: list[str], severity: str
) -> None:
    _events(lambda lines: lines[_places(lines, "sample.complete")[3]]["data"][1].extend(added))(copy)
    (finding,) = [one for one in _judge(copy, model_path=BYTES).findings if one.rule == "endpoints-tokens"]
    assert finding.severity == severity
    assert (abs(finding.numbers["difference_pct"]) > 1) == (severity == "error")


def test_what_failed_is_told(recorded: Path) -> None:
    verdict = _judge(recorded / "server-died")
    (finding,) = [one for one in verdict.findings if one.rule == "endpoints-failed"]
    assert finding.severity == "warning"
    assert finding.numbers["failed"] == 38
    assert finding.numbers["answered_per_second"] < verdict.numbers["qps"] / 2


# Changes ------------------------------------------------------------------------------------------------------------


def _lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / EVENTS).read_text().splitlines()]


def _events(edit: Callable[[list[dict[str, Any]]], list[dict[str, Any]] | None]) -> Change:
    def change(folder: Path) -> None:
        lines = _lines(folder)
        found = edit(lines)
        (folder / EVENTS).write_text("".join(json.dumps(one) + "\n" for one in (lines if found is None else found)))

    return change


def _json(name: str, edit: Callable[[Any], None]) -> Change:
    def change(folder: Path) -> None:
        content = json.loads((folder / name).read_text())
        edit(content)
        (folder / name).write_text(json.dumps(content, indent=2))

    return change


def _text(name: str, before: str, after: str) -> Change:
    def change(folder: Path) -> None:
        text = (folder / name).read_text()
        assert before in text
        (folder / name).write_text(text.replace(before, after, 1))

    return change


def _places(lines: list[dict[str, Any]], kind: str) -> list[int]:
    return [place for place, line in enumerate(lines) if line["event_type"] == kind]


def _drop(kind: str) -> Change:
    return _events(lambda lines: lines.pop(_places(lines, kind)[5 if kind.startswith("sample") else 0]) and None)


def _double(kind: str) -> Change:
    def edit(lines: list[dict[str, Any]]) -> None:
        place = _places(lines, kind)[5]
        lines.insert(place + 1, lines[place])

    return _events(edit)


def _move(kind: str, by: int) -> Change:
    def edit(lines: list[dict[str, Any]]) -> None:
        place = _places(lines, kind)[30]
        lines.insert(place + by, lines.pop(place))

    return _events(edit)


def _later(kind: str, by_ns: int) -> Change:
    def edit(lines: list[dict[str, Any]]) -> None:
        lines[_places(lines, kind)[20]]["timestamp_ns"] += by_ns

    return _events(edit)


def _set(*keys: str | int, value: Any = None, times: float | None = None) -> Callable[[Any], None]:
    def edit(content: Any) -> None:
        for key in keys[:-1]:
            content = content[key]
        found = content[keys[-1]]
        content[keys[-1]] = value if times is None else type(found)(found * times)

    return edit


def _stat(name: str, *keys: str | int, times: float) -> Callable[[Any], None]:
    def edit(content: Any) -> None:
        (stat,) = [one for one in content["metrics"] if one["name"] == name]
        _set(*keys, times=times)(stat)

    return edit


def _stat_with(name: str, part: str, key: str) -> Callable[[Any], None]:
    def edit(content: Any) -> None:
        (stat,) = [one for one in content["metrics"] if one["name"] == name]
        stat[part][key] = 1.0

    return edit


def _consistent_qps(folder: Path) -> None:
    """Twice the rate in every report."""
    summary = json.loads((folder / SUMMARY).read_text())
    _text(REPORT, f"QPS: {summary['qps']:.2f}", f"QPS: {2 * summary['qps']:.2f}")(folder)
    _json(SUMMARY, _set("qps", times=2.0))(folder)


def _slowest_left_out(folder: Path) -> None:
    """The sample with the longest latency is taken out of events and map."""
    lines = _lines(folder)
    issued = {line["sample_uuid"]: line["timestamp_ns"] for line in lines if line["event_type"] == "sample.issued"}
    took = {
        line["sample_uuid"]: line["timestamp_ns"] - issued[line["sample_uuid"]]
        for line in lines
        if line["event_type"] == "sample.complete"
    }
    slowest = max(took, key=lambda uuid: took[uuid])
    _events(lambda lines: [line for line in lines if line["sample_uuid"] != slowest])(folder)
    _json(SAMPLES, lambda phases: phases["performance"].pop(slowest))(folder)


def _swapped_answers(lines: list[dict[str, Any]]) -> None:
    one, other = _places(lines, "sample.complete")[3:5]
    lines[one]["sample_uuid"], lines[other]["sample_uuid"] = lines[other]["sample_uuid"], lines[one]["sample_uuid"]


def _reordered_map(phases: dict[str, dict[str, int]]) -> None:
    items = list(phases["performance"].items())
    phases["performance"] = dict(items[1:] + items[:1])


def _other_run(name: str) -> Change:
    return lambda folder: (folder / name).write_bytes((folder.parent / "other" / name).read_bytes()) and None


def _remove(name: str) -> Change:
    return lambda folder: (folder / name).unlink()


CHANGES: dict[str, Change] = {
    "an issue is lost": _drop("sample.issued"),
    "a first token is lost": _drop("sample.recv_first"),
    "a completion is lost": _drop("sample.complete"),
    "the end is lost": _drop("session.ended"),
    "the start of measuring is lost": _drop("session.start_performance_tracking"),
    "the end of measuring is lost": _drop("session.stop_performance_tracking"),
    "the second half is lost": _events(lambda lines: lines[: len(lines) // 2]),
    "an issue is doubled": _double("sample.issued"),
    "a first token is doubled": _double("sample.recv_first"),
    "a completion is doubled": _double("sample.complete"),
    "a completion is moved back": _move("sample.complete", -20),
    "an issue is moved back": _move("sample.issued", -5),
    "a completion is moved on": _move("sample.complete", 20),
    "a completion is later": _later("sample.complete", 1_000),
    "a completion is earlier": _later("sample.complete", -1_000),
    "a first token is earlier": _later("sample.recv_first", -1),
    "an issue is later": _later("sample.issued", 1),
    "two completions are swapped": _events(_swapped_answers),
    "the slowest sample is left out": _slowest_left_out,
    "an answer is gone": _events(lambda lines: lines[_places(lines, "sample.complete")[3]].update(data=None)),
    "an answer ends otherwise": _events(
        lambda lines: lines[_places(lines, "sample.complete")[3]].update(finish_reason="length")
    ),
    "an answer failed": _events(
        lambda lines: lines.insert(
            (place := _places(lines, "sample.complete")[3]),
            lines[place] | {"event_type": "error.generic", "data": None},
        )
    ),
    "a sample is not in the map": _json(SAMPLES, lambda phases: phases["performance"].popitem() and None),
    "the map has another sample": _json(SAMPLES, lambda phases: phases["performance"].update(other=1)),
    "the map has another order": _json(SAMPLES, _reordered_map),
    "the phase has another name": _json(SAMPLES, lambda phases: phases.update(accuracy=phases.pop("performance"))),
    "more completed": _json(SUMMARY, _set("n_samples_completed", times=2.0)),
    "a shorter duration": _json(SUMMARY, _set("duration_ns", times=0.99)),
    "a shorter window": _json(SUMMARY, _set("legacy_loadgen_window_duration_ns", times=0.99)),
    "a higher QPS": _json(SUMMARY, _set("qps", times=1.001)),
    "a higher QPS everywhere": _consistent_qps,
    "a higher TPS": _json(SUMMARY, _set("tps", times=1.001)),
    "a lower p99 TTFT": _json(SUMMARY, _set("ttft", "percentiles", "99.0", times=0.999)),
    "a lower mean latency": _json(SUMMARY, _set("latency", "avg", times=0.999)),
    "a lower deviation": _json(SUMMARY, _set("latency", "std_dev", times=0.999)),
    "a lower estimate": _json(SUMMARY, _set("ttft", "early_stopping_percentiles", "50.0", times=0.999)),
    "an estimate is left out": _json(SUMMARY, lambda one: one["ttft"].pop("early_stopping_percentiles")),
    "another histogram": _json(SUMMARY, _set("latency", "histogram", "counts", 0, value=40)),
    "a run configuration of another form": _json(SUMMARY, _set("run_config", "warmup", value=None)),
    "a percentile of another name": _json(SNAPSHOT, _stat_with("osl", "percentiles", "half")),
    "squares beyond 64 bits": _json(SNAPSHOT, _stat("ttft_ns", "sum_sq", times=2**50)),
    "a limit beyond 64 bits": _text(CONFIG, "max_new_tokens: 128", f"max_new_tokens: {2**70}"),
    "a deviation that is none": _json(SUMMARY, _set("latency", "std_dev", value=None)),
    "a completion has neither answer nor error": _events(
        lambda lines: lines[_places(lines, "sample.complete")[3]].update(data=None, finish_reason=None)
    ),
    "more tokens": _json(SUMMARY, _set("output_sequence_lengths", "total", times=1.2)),
    "a lower TPOT": _json(SUMMARY, _set("tpot", "percentiles", "99.0", times=0.9)),
    "another seed in the summary": _json(SUMMARY, _set("run_config", "dataloader_random_seed", value=7)),
    "another seed in the configuration": _text(CONFIG, "dataloader_random_seed: 42", "dataloader_random_seed: 7"),
    "other finish reasons": _json(SUMMARY, _set("finish_reason_counts", "stop", value=1)),
    "a counter of the snapshot": _json(SNAPSHOT, lambda one: one["metrics"][3].update(value=7)),
    "a series of the snapshot": _json(SNAPSHOT, _stat("sample_latency_ns", "percentiles", "90.0", times=0.9)),
    "squares of the snapshot": _json(SNAPSHOT, _stat("ttft_ns", "sum_sq", times=1.001)),
    "tokens of the snapshot": _json(SNAPSHOT, _stat("osl", "total", times=1.2)),
    "a metric of the snapshot is lost": _json(SNAPSHOT, lambda one: one["metrics"].pop()),
    "the run of the snapshot did not end": _json(SNAPSHOT, _set("state", value="interrupted")),
    "the run did not end": _json(SUMMARY, _set("state", value="interrupted")),
    "the report has another QPS": _text(REPORT, "QPS: ", "QPS: 1"),
    "the report has another p99": _text(REPORT, "    99.0: ", "    99.0: 1"),
    "the report has another count": _text(REPORT, "Total samples failed: 0", "Total samples failed: 3"),
    "the report lacks a line": _text(REPORT, "  Min: ", "  Least: "),
    "a report of another run": _other_run(REPORT),
    "a summary of another run": _other_run(SUMMARY),
    "events of another run": _other_run(EVENTS),
    "a map of another run": _other_run(SAMPLES),
    "a snapshot of another run": _other_run(SNAPSHOT),
    **{f"no {name}": _remove(name) for name in (CONFIG, EVENTS, SAMPLES, SUMMARY, SNAPSHOT, REPORT)},
}


@pytest.fixture
def copy(recorded: Path, tmp_path: Path) -> Path:
    shutil.copytree(recorded / "poisson", tmp_path / "run")
    shutil.copytree(recorded / "concurrency", tmp_path / "other")
    return tmp_path / "run"


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_is_found(copy: Path, change: Change) -> None:
    change(copy)
    verdict = _judge(copy)
    assert verdict.exit_code() != ExitCode.OK
    assert verdict.reasons
    assert json.loads(json.dumps(verdict.record()))["exit_code"]


def test_other_checks_are_made_where_a_file_is_missing_or_damaged(copy: Path) -> None:
    (copy / SNAPSHOT).unlink()
    (copy / SAMPLES).write_text("[]")
    _json(SUMMARY, _set("qps", times=2.0))(copy)
    verdict = _judge(copy)
    assert {"endpoints-files", "endpoints-summary"} <= {one.rule for one in verdict.of("error")}
    assert verdict.error is not None
    assert SAMPLES in str(verdict.error)
    assert {SNAPSHOT, SAMPLES} <= verdict.not_judged.keys()


def test_more_tokens_than_the_server_could_make(copy: Path) -> None:
    """As where a client tokenises the texts of a random model again."""
    _text(CONFIG, "max_new_tokens: 128", "max_new_tokens: 40")(copy)
    told = [one for one in _judge(copy).findings if one.rule == "endpoints-tokens-served"]
    assert [one.severity for one in told] == ["warning"]
    counted = [one for one in _judge(copy, model_path=BYTES).findings if one.rule == "endpoints-tokens-served"]
    assert [one.severity for one in counted] == ["error"]
    assert "tokenises the text" in as_text(_judge(copy))


def test_the_command(recorded: Path, copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "verdict"
    assert run_command(["verify", str(recorded / "offline"), str(copy), "--output", str(out)]) == ExitCode.OK
    assert "run folder of MLPerf Endpoints" in capsys.readouterr().out
    record = json.loads((out / "002-run" / "verify_performance.json").read_text())
    assert record["verdict"] == "PASS"
    assert set(record["sha256"]) == {CONFIG, EVENTS, SAMPLES, SUMMARY, SNAPSHOT, REPORT}
    _json(SUMMARY, _set("qps", times=2.0))(copy)
    assert run_command(["verify", str(copy)]) == ExitCode.FAILED
    assert "qps" in capsys.readouterr().err
    assert sorted(path.name for path in copy.iterdir()) == sorted(
        path.name for path in (recorded / "poisson").iterdir()
    )


@pytest.mark.parametrize("option", [["--accuracy-only"], ["--document", "x.md"], ["--scenario", "Server"]])
def test_options_for_legs_of_loadgen_are_refused(recorded: Path, option: list[str]) -> None:
    assert run_command(["verify", str(recorded / "offline"), *option]) == ExitCode.BAD_INPUT


@pytest.mark.parametrize("name", [CONFIG, EVENTS, SAMPLES, SUMMARY, SNAPSHOT, REPORT])
def test_a_pipe_or_rubbish_is_no_traceback(copy: Path, name: str) -> None:
    (copy / name).write_bytes(b"\x00\xff rubbish\n")
    assert _judge(copy).error is not None
    (copy / name).unlink()
    os.mkfifo(copy / name)
    verdict = _judge(copy)
    assert verdict.exit_code() == ExitCode.BAD_INPUT
    assert name.rsplit("/", 1)[-1] in str(verdict.error)


def test_status_and_results_list_a_folder(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["results", str(recorded / "poisson"), "--json"]) == ExitCode.OK
    (row,) = json.loads(capsys.readouterr().out)["results"]
    summary = json.loads((recorded / "poisson" / SUMMARY).read_text())
    assert row["samples_per_second"] == summary["qps"]
    assert row["ttft_p99_ms"] == summary["ttft"]["percentiles"]["99.0"] / 1e6
    assert run_command(["status", str(recorded / "server-died")]) == ExitCode.OK
    assert "38 failed" in capsys.readouterr().out
