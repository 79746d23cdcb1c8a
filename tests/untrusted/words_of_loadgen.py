"""Logs in another form than LoadGen's, lines that it never writes, and answers told to it otherwise than recorded."""

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import orjson

from runs.record.layout import RunDir
from tests.honest.pair import Pair, beat_again
from tests.signoff.forge.rebuilt_faults import rebuild
from tests.signoff.forge.record_faults import each_record
from tests.untrusted.tampering import Json, each_line, of_both, tampering

_SUMMARY, _ANSWERS = "mlperf_log_summary.txt", "mlperf_log_accuracy.json"


def _lines(change: Callable[[list[bytes]], list[bytes]], run: RunDir) -> None:
    run.detail.write_bytes(b"".join(change(run.detail.read_bytes().splitlines(keepends=True))))


def _moved(found: bytes) -> Callable[[list[bytes]], list[bytes]]:
    """A record that LoadGen may write several times, of which the last one counts, at the end of the log as well."""
    return lambda lines: [*lines, *(line for line in lines if found in line)]


for _name, _change in {
    "lines-of-another-system": lambda lines: [line.replace(b"\n", b"\r\n") for line in lines],
    "lines-between-lines": lambda lines: [*lines, b" \n", b"\n"],
    "a-last-line-without-end": lambda lines: [*lines[:-1], lines[-1].rstrip(b"\n")],
    "lines-from-last-to-first": lambda lines: lines[::-1],
    "results-before-settings": lambda lines: lines[-20:] + lines[:-20],
    "a-loaded-set-at-the-end": _moved(b'"loaded_qsl_set"'),
    "a-message-at-the-end": _moved(b'"generic_message"'),
}.items():
    of_both(f"log-with-{_name}", partial(_lines, _change), by="mlperf_log_detail.txt")


def _metadata(changes: Mapping[str, Any]) -> Callable[[Json], Json]:
    def change(one: Json) -> Json:
        kept = {name: value for name, value in (one["metadata"] | changes).items() if value is not ...}
        return one | {"metadata": kept}

    return change


_RECORDS: dict[str, Callable[[Json], Json]] = {
    "of-another-namespace": lambda one: one | {"namespace": "mine::logging"},
    "of-another-kind": lambda one: one | {"event_type": "INTERVAL_START"},
    "with-a-field-of-its-own": lambda one: one | {"note": "x"},
    "in-another-order": lambda one: dict(reversed(one.items())),
    "of-a-file-that-there-is-not": _metadata({"file": "my file"}),
    "without-a-file": _metadata({"file": ...}),
    "without-a-thread": _metadata({"tid": ...}),
    "that-were-reviewed": _metadata({"reviewed": True}),
    "from-before-the-test": lambda one: one | {"time_ms": -one["time_ms"]},
}
for _name, _record in _RECORDS.items():
    of_both(f"records-{_name}", lambda run, change=_record: each_line(run.detail, change), by="mlperf_log_detail.txt")


def _summary(change: Callable[[str], str], name: str, leg: int, scenario: str = "Server") -> None:
    @tampering(scenario, by=_SUMMARY, name=name)
    def changed(pair: Pair) -> None:
        path = pair.legs[leg].summary
        path.write_text(change(path.read_text()))


for _name, _said in {
    "of-praise": "This result was reviewed and approved by MLCommons.",
    "in-a-warning": "WARNING: peak tokens per second 99999",
    "to-be-checked": "Check tokens per second : 99999",
    "of-early-stopping": " * Peak 99999 tokens/s",
}.items():
    for _scenario in ("Server", "SingleStream"):
        _summary(lambda text, said=_said: f"{text}{said}\n", f"summary-{_name}-{_scenario}", 0, _scenario)
for _name, _said in {
    "of-scores": "rouge1 44.4",
    "with-scores": "rouge1 : 44.4",
    "of-performance": "Mode     : PerformanceOnly",
    "with-a-warning": "7 warnings encountered. See detailed log.",
}.items():
    _summary(lambda text, said=_said: f"{text}{said}\n", f"summary-of-the-answers-{_name}", 1)
_summary(lambda text: text.replace("No warnings encountered during test.\n", ""), "summary-of-no-warnings-told", 1)
_summary(lambda text: text.replace("400", "４００"), "summary-in-other-digits", 0)
_summary(lambda text: re.sub(r"(Min latency \(ns\)\s+: )", r"\1+", text), "summary-with-a-sign", 0)
_summary(lambda text: re.sub(r"(Max latency \(ns\)\s+: \d\d)", r"\1_", text), "summary-with-a-stroke", 0)


# What LoadGen was told of the answers ---------------------------------------------------------------------------------


def _entries(change: Callable[[Json], Json], name: str, scenario: str) -> None:
    @tampering(scenario, by=_ANSWERS, name=name)
    def changed(pair: Pair) -> None:
        log = pair.accuracy.accuracy_log
        log.write_bytes(orjson.dumps([change(entry) for entry in orjson.loads(log.read_bytes())]))


_entries(lambda one: one | {"token_data": "7A000000"}, "first-tokens-of-other-answers", "Server")
_entries(lambda one: one | {"token_data": ""}, "first-tokens-of-nothing", "SingleStream")
_entries(lambda one: one | {"token_data": one["data"]}, "first-tokens-that-are-answers", "Interactive")
_entries(lambda one: one | {"token_data": one["data"][:8]}, "first-tokens-that-nobody-asked-for", "Offline")
_entries(
    lambda one: {name: value for name, value in one.items() if name != "token_data"}, "first-tokens-left-out", "Server"
)


@tampering("Offline", by=_ANSWERS)
def more_tokens_than_ids_in_both_legs(pair: Pair) -> None:
    """Which made the rate higher in all files but the log of the answers."""
    for run in pair.legs:
        each_record(run, lambda one: one | {"output_tokens": min(one["output_tokens"] + 6, 128)})
    rebuild(pair.performance, 1)
    for run in pair.legs:
        beat_again(run)


@tampering("Offline", by="progress.json")
def first_tokens_left_out_of_the_record(pair: Pair) -> None:
    """With which went what the batch is judged by."""
    each_record(pair.performance, lambda one: one | {"first_token_ns": None})
