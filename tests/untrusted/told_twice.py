"""A record with wrong contents, and files in a form that two readers would read in two ways."""

import re
from collections.abc import Mapping

from runs.record.layout import RunDir
from tests.honest.pair import Pair
from tests.signoff.forge.faults import set_detail
from tests.signoff.forge.record_faults import each_record
from tests.untrusted.tampering import (
    BOTH,
    PERFORMANCE,
    edit,
    of_both,
    put,
    tampering,
    values,
)

_COMPRESSED = {"mechanism": "kv_compression", "mechanism_variant": "h2o"}

values(
    {
        "longest-prompt-of-another-data-set": {"plan.longest_prompt_tokens": 4000},
    },
    "manifest.json",
    BOTH,
)
values(
    {
        "answers-shorter-than-was-asked-for": {
            "asked.sampling_arg": {"min_tokens": 100},
            "plan.sampling.min_tokens": 100,
        },
    },
    "manifest.json",
    BOTH,
    by="requests.jsonl",
)
values(
    {
        "technique-of-one-leg": {"asked.mechanism": _COMPRESSED},
        "harness-of-one-leg": {"observed.harness.version": "9.9.9"},
        "engine-versions-of-one-leg": {"engine.versions": {"dummy": "2"}},
    },
    "manifest.json",
    PERFORMANCE,
    by="",
)


def _texts(table: Mapping[str, tuple[str, str]], file: str, scenario: str = "Server") -> None:
    """Another text in a file of both legs: what is found by a pattern, replaced."""
    for name, (found, new) in table.items():

        def change(run: RunDir, found: str = found, new: str = new) -> None:
            path = run.root / file
            if path.is_file():
                path.write_text(re.sub(found, new, path.read_text(), count=1))

        of_both(name, change, scenario, by=file)


_texts(
    {
        "conf-without-minimum-duration": (r"\*\.Server\.min_duration.*\n", ""),
        "conf-with-fewer-queries": (r"\Z", "*.Server.min_query_count = 1\n"),
        "conf-with-coalescing": (r"\Z", "*.Server.coalesce_queries = 1\n"),
        "conf-with-asynchronous-queries": (r"\Z", "*.Server.max_async_queries = 1\n"),
        "conf-with-another-percentile": (r"\Z", "*.Server.target_latency_percentile = 50\n"),
        "conf-with-answers-logged": (r"\Z", "*.*.accuracy_log_sampling_target = 100\n"),
    },
    "user.conf",
)
of_both("answers-that-were-given-up", lambda run: each_record(run, lambda one: one | {"finish_reason": "abort"}))


@tampering(by="mlperf_log_detail.txt")
def sources_of_another_loadgen(pair: Pair) -> None:
    for run in pair.legs:
        set_detail(run, "loadgen_file_sha1", {"/loadgen.cc": "0" * 40})


@tampering()
def a_changed_harness_in_one_leg(pair: Pair) -> None:
    edit(pair.performance.manifest, lambda content: put(content, "observed.harness.git_changed", None))


@tampering(by="requests.jsonl")
def an_answer_hashed_by_nothing(pair: Pair) -> None:
    each_record(pair.performance, lambda one: one | {"output_sha256": "z" * 64} if one["seq"] == 5 else one)


@tampering()
def one_first_token_left_out(pair: Pair) -> None:
    """Which left the statistics of all others uncompared."""
    each_record(pair.performance, lambda one: one | {"first_token_ns": None} if one["seq"] == 5 else one)


@tampering()
def a_value_twice_in_the_log(pair: Pair) -> None:
    text = pair.performance.detail.read_text()
    pair.performance.detail.write_text(re.sub(r'("key": ?"result_validity", ?)', r'\1"value": "INVALID", ', text))


@tampering("Offline")
def a_key_twice_among_the_answers(pair: Pair) -> None:
    log = pair.accuracy.accuracy_log
    log.write_bytes(log.read_bytes().replace(b'"qsl_idx"', b'"qsl_idx" : 1, "qsl_idx"', 1))


@tampering()
def a_second_summary_behind_the_first(pair: Pair) -> None:
    pair.performance.summary.write_text(pair.performance.summary.read_text() * 2)


@tampering("Offline", covered=False)
def record_of_the_scores_gone(pair: Pair) -> None:
    pair.accuracy.accuracy_json.unlink()
