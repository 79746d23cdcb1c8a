"""Parts of a tune: options, journal, early ends of runs, the picture."""

import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from rich.console import Console

from compliance.report.chart_svg import svg_file
from compliance.report.tune_charts import tune_charts
from runs.errors import InputError
from runs.record.progress import Progress
from runs.record.requests_log import RequestLogLine
from scenarios.launch.plan import prepare
from scenarios.launch.rate_watch import RateWatch, Stopped
from scenarios.launch.run_config import make_config
from scenarios.tune import run_tune as tune_module
from scenarios.tune.journal import (
    Configuration,
    Estimate,
    Journal,
    TuneRun,
    tried_of,
)
from scenarios.tune.option_search import queries_in_time, shortened_runs
from scenarios.tune.rates import Tried
from scenarios.tune.tune_config import load_tune
from scenarios.tune.tune_runs import TuneRuns
from scenarios.tune.watch import ProbeWatch
from sut.request_writer import partial_path
from tests.support.runs.request_lines import encode_line


def record(number: int = 1, target_qps: float = 10, **more: Any) -> TuneRun:
    """Return a VALID probe."""
    values: dict[str, Any] = {
        "step": "probe", "number": number, "target_qps": target_qps, "verdict": "VALID", "stopped": False,
        "reasons": [], "queries_planned": 500, "queries_answered": 500, "wall_s": 60, "directory": f"probe-{number}",
        "ttft_p99_ms": 900.0, "tpot_p99_ms": 40.0, "ttft_limit_ms": 2000.0, "tpot_limit_ms": 100.0,
    }  # fmt: skip
    return TuneRun(**{**values, **more})


# Options --------------------------------------------------------------------------------------------------------------


def test_options_of_the_command_line_replace_those_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "tune.yaml"
    file.write_text("scenario: server\nengine: dummy\ntune: {max-probes: 5, resolution: 0.05}\n")
    tune = load_tune(file, {"max_probes": 4}, {"dummy_slots": 3})
    assert (tune.options.max_probes, tune.options.resolution) == (4, 0.05)
    assert (tune.config.scenario, tune.config.engine, tune.config.dummy_slots) == ("Server", "dummy", 3)
    assert tune.place.root == Path("output/tune-Server")


@pytest.mark.parametrize(
    ("options", "runs", "words"),
    [
        ({}, {"scenario": "SingleStream"}, "SingleStream: has no target_qps"),
        ({}, {"target_qps": 10.0}, "--target-qps: set by the tuning itself"),
        ({}, {"accuracy": True}, "--accuracy: set by the tuning itself"),
        ({}, {"engine": "nothing"}, "--engine nothing"),
        ({}, {"output_log_dir": Path("x"), "user_conf": Path("x/user.conf")}, "the tuning would overwrite this file"),
        ({"search_trials": 3}, {}, "--search-trials: "),
        ({"search_values": {"dummy_slots": [4]}}, {}, "--search-values: "),
        ({"search": True}, {"scenario": "Offline"}, "--search with --scenario Offline"),
        ({"search_trials": 3}, {"scenario": "Offline"}, "--search-trials with --scenario Offline"),
        ({"search": True, "search_leg_s": 0.5}, {}, "--search-leg-s 0.5"),
        (
            {"search": True, "search_values": {"dtype": ["float16"]}},
            {},
            "dtype: ",
        ),
    ],
)
def test_invalid_tune_options_are_refused(options: dict[str, Any], runs: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        load_tune(None, options, {"scenario": "Server", "engine": "dummy", **runs})


def test_unknown_keys_of_a_file_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "tune.yaml"
    for text, words in (
        ("tune: {probes: 3}", "tune.yaml:2: probes: unknown key"),
        ("tune: 3", "expected keys"),
    ):
        file.write_text(f"scenario: Server\n{text}\n")
        with pytest.raises(InputError, match=words):
            load_tune(file, {}, {})


# Journal --------------------------------------------------------------------------------------------------------------


def test_a_written_journal_is_read(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal = Journal(path)
    assert (journal.configuration, journal.estimate, journal.runs("probe")) == (None, None, [])
    lines = (
        Configuration(scenario="Server", identity={"engine": "dummy"}),
        Estimate(samples_per_second=20.5, source="given"),
        record(1, 18),
        record(2, 20, verdict="INVALID", stopped=True, reasons=["late"]),
        record(1, 18, step="confirm"),
    )
    for line in lines:
        journal.add(line)
    again = Journal(path)
    assert (again.configuration, again.estimate) == lines[:2]
    assert again.runs("probe") == list(lines[2:4])
    assert again.runs("confirm") == [lines[4]]
    assert tried_of(again.runs("probe")) == [Tried(18, True), Tried(20, False)]
    assert len(path.read_text().splitlines()) == 5
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("damage", ["{", '{"step": "probe"}', '{"step": "guess"}', "[]", '{"samples_per_second": 1}'])
def test_a_damaged_journal_line_is_refused_with_its_number(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "journal.jsonl"
    Journal(path).add(Configuration(scenario="Server", identity={}))
    path.write_text(path.read_text() + damage + "\n")
    with pytest.raises(InputError, match=r"journal\.jsonl:2: not a valid line"):
        Journal(path)


# Early ends of runs
# ------------------------------------------------------------------------------------------------


def heartbeat(phase: str = "running", **more: Any) -> Progress:
    limits = {"ttft_limit_ms": 100.0, "tpot_limit_ms": 10.0}
    return Progress(phase, 0, 1, "Server", "performance", **{**limits, **more})


def line(seq: int, ttft_ms: int) -> bytes:
    """Return a record in the form of the run's process."""
    issue_ns = 10**18 + seq * 1_000_000
    first_ns = issue_ns + ttft_ms * 1_000_000
    return encode_line(RequestLogLine(seq, seq, 5, 3, issue_ns, first_ns, first_ns + 2_000_000, "stop", "0" * 64))


def test_a_probe_ends_with_one_late_query_too_many(tmp_path: Path) -> None:
    requests = tmp_path / "requests.jsonl"
    watch = ProbeWatch(requests, 1_307, 0.99)  # five of 1,307 queries may be late
    watch(heartbeat("warm-up"))
    watch(heartbeat())  # no file yet
    partial = partial_path(requests)
    partial.write_bytes(
        b"".join(line(seq, 50) for seq in range(100)) + b"".join(line(seq, 101) for seq in range(100, 105))
    )
    watch(heartbeat())
    last = line(105, 101)
    with partial.open("ab") as stream:
        stream.write(last[:40])
        stream.flush()
        watch(heartbeat())  # half a line is not a response yet
        partial.rename(requests)  # the file gets its final name at the end of the run
        stream.write(last[40:])
    with pytest.raises(Stopped, match=r"6 queries .* allowed: 5 of 1,307"):
        watch(heartbeat())
    watch.close()
    assert (len(watch.tally.ttft_ns), watch.tally.late_ttft, watch.tally.late_tpot) == (106, 6, 0)


def test_an_estimate_ends_after_its_duration() -> None:
    watch = RateWatch(30)
    watch(heartbeat("engine"))
    for second in range(30):
        watch(heartbeat(elapsed_s=float(second), completed=0 if second < 8 else 10 * (second - 8)))
    with pytest.raises(Stopped, match="after 30 s"):
        watch(heartbeat(elapsed_s=30.0, completed=220))
    assert watch.samples_per_second == pytest.approx(10)  # over the time after the engine was full


def test_an_estimate_waits_for_enough_responses() -> None:
    watch = RateWatch(3)
    for second in range(300):
        watch(heartbeat(elapsed_s=float(second), completed=second // 5))
    assert watch.samples_per_second is None


def test_a_warm_up_ends_at_its_limit_with_any_rate() -> None:
    watch = RateWatch(3, limit_s=10)
    for second in range(14):
        watch(heartbeat(elapsed_s=float(second), completed=0))  # a system without response is not warm
    with pytest.raises(Stopped, match="after 14 s"):
        watch(heartbeat(elapsed_s=14.0, completed=7))
    assert watch.samples_per_second == 0.5


def test_a_warm_up_ends_when_two_windows_agree() -> None:
    watch = RateWatch(60, agreement=0.05, from_s=10, tokens_per_query=32, enough=16)
    tokens = [32 * (second if second < 10 else 10 + 4 * (second - 10)) for second in range(60)]  # slower at first
    for second in range(28):
        watch(heartbeat(elapsed_s=float(second), output_tokens=tokens[second], completed=int(second > 8)))
    with pytest.raises(Stopped, match="after 28 s"):
        watch(heartbeat(elapsed_s=28.0, output_tokens=tokens[28], completed=20))
    assert watch.samples_per_second == pytest.approx(4, rel=0.05)


# Short runs of a search -----------------------------------------------------------------------------------------------


def planned(tmp_path: Path, rows: int, make_dataset: Callable[..., Path], conf: str) -> TuneRuns:
    tmp_path.mkdir(exist_ok=True)
    user_conf = tmp_path / "given.conf"
    user_conf.write_text(conf)
    values = {
        "scenario": "Server", "engine": "dummy", "user_conf": user_conf, "output_log_dir": tmp_path / "tune",
        "dataset_path": make_dataset(*([number + 1, 2, 3] for number in range(rows))),
    }  # fmt: skip
    (tmp_path / "tune").mkdir()
    tune = load_tune(None, {"search": True}, values)
    run = prepare(make_config(values), print, rate_follows=True)
    return TuneRuns(tune, run, Journal(tune.place.journal), Console(file=io.StringIO()))


def test_search_runs_are_shortened_below_complete_datasets(tmp_path: Path, make_dataset: Callable[..., Path]) -> None:
    runs = planned(tmp_path, 2_000, make_dataset, "*.Server.target_qps = 1\n")
    assert runs.count(20).samples == 14_000  # 600 s, rounded up to 2,000
    short = shortened_runs(runs)
    assert short.count(20).samples == 1_280  # 60 s, rounded up to 256
    assert short.count(2).samples == 1_024
    # LoadGen's settings agree.
    run = prepare(make_config({**short.tune.values, "target_qps": 20.0, "output_log_dir": tmp_path / "run"}), print)
    assert replace(short, prepared=run).count(20) == short.count(20)
    assert runs.tune.values["user_conf"].read_text() == "*.Server.target_qps = 1\n"


def test_small_datasets_and_short_runs_are_not_shortened(tmp_path: Path, make_dataset: Callable[..., Path]) -> None:
    runs = planned(tmp_path, 100, make_dataset, "*.Server.min_duration = 60000\n")
    assert shortened_runs(runs) is runs
    runs = planned(
        tmp_path / "other",
        100,
        lambda *prompts: make_dataset(*prompts, name="b.json"),
        "*.Server.min_duration = 90000\n",
    )
    short = shortened_runs(runs)
    assert (runs.count(50).samples, short.count(50).samples) == (4_600, 3_100)
    assert short.set_size == runs.set_size == 100


def test_the_number_of_queries_in_time_follows_from_the_tpot_limit(
    tmp_path: Path, make_dataset: Callable[..., Path]
) -> None:
    # 10 samples/s, each with 127 tokens after the first: with 100 ms per token, 127 of them are open at a time.
    runs = planned(tmp_path, 10, make_dataset, "*.Server.target_qps = 1\n")
    assert queries_in_time(10.0, runs) == int(0.95 * 127)
    make_named = lambda *prompts: make_dataset(*prompts, name="b.json")  # noqa: E731
    runs = planned(tmp_path / "own limit", 10, make_named, "*.Server.tpot_latency = 30\n")
    assert queries_in_time(10.0, runs) == int(0.95 * 38.1)
    assert queries_in_time(0.01, runs) == 1


# Confirmation ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("runs_needed", [1, 3, 5, 6])
def test_a_failed_confirmation_is_repeated_at_a_lower_rate(
    runs_needed: int, tmp_path: Path, make_dataset: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tune_module._Run(planned(tmp_path, 10, make_dataset, "*.Server.target_qps = 1\n"))
    run._journal.add(record(1, 20))
    run._journal.add(record(2, 21, verdict="INVALID"))
    rates: list[float] = []

    def measure(runs: TuneRuns, step: str, rate: float, *_: Any) -> None:
        rates.append(rate)
        verdict = "VALID" if runs.journal.next_number(step) == runs_needed else "INVALID"
        runs.journal.add(record(runs.journal.next_number(step), rate, verdict=verdict, step=step))

    monkeypatch.setattr(TuneRuns, "run", measure)
    confirmed = run._confirm()
    assert rates == [20, 19.8, 19.6, 19.2, 18.4][:runs_needed]
    assert confirmed == (None if runs_needed > 5 else run._journal.runs("confirm")[-1])
    if confirmed is not None:
        assert confirmed.target_qps == rates[-1]


# The picture ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("runs", [[record(1, 18)], [], [record(1, 18, ttft_p99_ms=None, tpot_p99_ms=None)]])
def test_a_picture_is_valid_with_few_or_no_runs(runs: list[TuneRun]) -> None:
    tried = {"probes": [run.model_dump() for run in runs], "confirmations": [], "target_qps": None}
    assert ElementTree.fromstring(svg_file("Server <&> more", [], tune_charts(tried))).tag.endswith("svg")
