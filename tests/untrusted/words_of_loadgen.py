"""Logs in another form than LoadGen's, lines that it never writes, and answers told to it otherwise than recorded."""

import re
from collections.abc import Callable

import orjson

from tests.honest.pair import Pair
from tests.signoff.forge.rebuilt_faults import rebuild
from tests.signoff.forge.record_faults import each_record
from tests.untrusted.tampering import Json, tampering

_SUMMARY, _ANSWERS = "mlperf_log_summary.txt", "mlperf_log_accuracy.json"


def _summary(change: Callable[[str], str], name: str, leg: int, scenario: str = "Server") -> None:
    @tampering(scenario, by=_SUMMARY, name=name)
    def changed(pair: Pair) -> None:
        path = pair.legs[leg].summary
        path.write_text(change(path.read_text()))


_summary(lambda text: f"{text}7 warnings encountered. See detailed log.\n", "summary-of-the-answers-with-a-warning", 1)
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
