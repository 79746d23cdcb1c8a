"""Tampered results: the sign-off of a bundle refuses each one.

A person who knows this code changes a copy of a result (performance and accuracy run) to gain by it, and signs the
runs again.
"""

import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest

from compliance.results.scorer import Scorer
from compliance.results.scoring import ScoreSources
from compliance.signoff.judge import sign_off
from compliance.signoff.signoff_verdict import blocks, headline, sign_off_text
from runs.loadgen.detail_log import read_detail
from runs.record.layout import RunDir
from tests.honest.pair import Pair
from tests.signoff.forge.faults import set_detail, set_summary, take
from tests.signoff.forge.forged_runs import rebuild
from tests.support.files.editing import each_record, edit_lines, reseal, set_at
from tests.support.runs.dummy_runs import DummyRuns
from tests.support.runs.signoff_fixtures import FrozenRuns

Json = dict[str, Any]
Change = Callable[[RunDir], object]
MANIFEST, REQUESTS, USER_CONF = "manifest.json", "requests.jsonl", "user.conf"
DETAIL, SUMMARY, RESPONSES = "mlperf_log_detail.txt", "mlperf_log_summary.txt", "mlperf_log_accuracy.json"
BOTH, PERFORMANCE, ACCURACY = slice(0, 2), slice(0, 1), slice(1, 2)  # runs
REPLICAS, HELD_BACK, VLLM = "Server --replicas 2", "Server --admission shortest", "vllm"


@dataclass(frozen=True)
class Tampering:
    """Changes of some runs of a result of a scenario, and the file that a finding must name; "" = any."""

    name: str
    changes: tuple[Change, ...]
    runs: slice
    scenario: str
    by: str
    sealed: bool

    def apply(self, pair: Pair) -> None:
        for run in pair.runs[self.runs]:
            for change in self.changes:
                change(run)
        for run in pair.runs if self.sealed else ():
            reseal(run)


TAMPERINGS: list[Tampering] = []


def tampering(
    name: str,
    *changes: Change,
    runs: slice = PERFORMANCE,
    scenario: str = "Server",
    by: str = "",
    sealed: bool = True,
) -> None:
    TAMPERINGS.append(Tampering(name, changes, runs, scenario, by, sealed))


# Changes ------------------------------------------------------------------------------------------------------


def set_value(path: str, value: object, file: str = MANIFEST) -> Change:
    """Return a change of a value at a dotted place of a JSON file; ... removes it."""
    return lambda run: set_at(run.root / file, path, value)


def replace_text(file: str, pattern: str, new: str) -> Change:
    """Return a change of the text that a pattern matches, once."""

    def change(run: RunDir) -> None:
        path = run.root / file
        path.write_text(re.sub(pattern, new, path.read_text(), count=1))

    return change


def set_detail_value(key: str, value: object) -> Change:
    return lambda run: set_detail(run, key, value)


def requests(edit: Callable[[Json], Json]) -> Change:
    return lambda run: each_record(run, lambda value: value | edit(value))


def responses(edit: Callable[[Json], Json], *left_out: str) -> Change:
    """Return a change of the log of the responses, entry by entry, without some fields."""

    def change(run: RunDir) -> None:
        entries = [load | edit(load) for load in orjson.loads(run.accuracy_log.read_bytes())]
        kept = [{name: value for name, value in entry.items() if name not in left_out} for entry in entries]
        run.accuracy_log.write_bytes(orjson.dumps(kept))

    return change


def accuracy_of(run: RunDir) -> RunDir:
    """Return the accuracy run of a performance run."""
    return RunDir(run.root.parents[1] / "accuracy")


def error_as_a_number(run: RunDir) -> None:
    """Write an error record whose flag is 1 instead of true."""

    def change(record: Json) -> Json:
        return record | {"metadata": record["metadata"] | {"is_error": 1}} if record["key"] == "power_begin" else record

    edit_lines(run.detail, change)


def clocks_at_0(run: RunDir) -> None:
    """Write 0 as the time of each record of LoadGen."""
    edit_lines(run.detail, lambda record: record | {"time_ms": 0.0})


def of_two_processes(run: RunDir) -> None:
    """Write another process ID into the records of the results, as if two logs were put together."""
    edit_lines(
        run.detail,
        lambda record: (
            record | {"metadata": record["metadata"] | {"pid": 1}} if record["key"].startswith("result_") else record
        ),
    )


def scores_raised(run: RunDir) -> None:
    run.accuracy_text.write_text(run.accuracy_text.read_text().replace("'rouge1': ", "'rouge1': 4"))
    run.accuracy_json.unlink()


def log_cut(run: RunDir) -> None:
    """Truncate the log as the official tool does."""
    content = run.accuracy_log.read_bytes()
    run.accuracy_log.write_bytes(content[:4096] + b"\n\n...\n\n" + content[-4096:])


PRINTED = {
    "result_completed_samples_per_sec": "Completed samples per second",
    "result_completed_tokens_per_second": "Completed tokens per second",
    "result_qps_with_loadgen_overhead": "QPS w/ loadgen overhead",
    "result_token_throughput_with_loadgen_overhead": "TPS w/ loadgen overhead",
}


def rate_half_a_percent_higher(key: str) -> Change:
    """Raise the rate in both logs of LoadGen."""

    def change(run: RunDir) -> None:
        rate = float(f"{read_detail(run.detail).number(key) * 1.005:.6g}")
        set_detail(run, key, rate)
        replace_text(SUMMARY, rf"(?m)^({re.escape(PRINTED[key])}\s*: ).*$", rf"\g<1>{rate:.2f}")(run)

    return change


# Values of the wrong type, or that another file contradicts -----------------------------------------------------------

WEIGHTS = {
    "files": 4, "tensors": 291, "parameters": 8030261248, "dtypes": {"BF16": 8030261248}, "precision": "bfloat16",
    "quantized": False, "sparse": False, "shape": {"hidden_size": 4096}, "headers_sha256": "ab" * 32,
}  # fmt: skip
HASHES = {"model.safetensors": "ab" * 32}
in_record = partial(tampering, runs=BOTH, by=MANIFEST)
in_record("engine-nobody-knows", set_value("plan.engine", "my-engine"))
in_record("replicas-that-were-not", set_value("replicas", [{"pid": 4242}]))
in_record("unofficial-for-a-blank", set_value("unofficial_reasons", [" "]))
in_record("a-commit-in-words", set_value("observed.harness.git_commit", "unknown"))
in_record(
    "model-of-an-engine-without-one",
    set_value("observed.model.weights", WEIGHTS),
    set_value("observed.model.sha256", HASHES),
)
in_record("engine-without-configuration", set_value("engine.configuration", {}))
in_record("warm-up-below-nothing", set_value("engine.warm_up", {"prompts": -1}))
in_record("patience-below-nothing", set_value("plan.stall_timeout_s", -1.0))
in_record("an-error-of-a-finished-leg", set_value("error", {"message": "x"}))
in_record("longest-prompt-of-another-data-set", set_value("plan.longest_prompt_tokens", 4000))
in_record("replica-with-other-weights", set_value("replicas.1.weights_sha256", HASHES), scenario=REPLICAS)
in_record("replicas-on-a-node-that-there-is-not", set_value("plan.replicas.places.1.node", 3), scenario=REPLICAS)
in_record(
    "order-that-there-is-not",
    set_value("plan.admission.policy", "magic"),
    set_value("asked.admission", "magic"),
    scenario=HELD_BACK,
)
in_record("order-left-out", set_value("plan.admission", {}), scenario=HELD_BACK)
in_record("vllm-without-a-batch", set_value("engine.configuration.max_num_seqs", ...), scenario=VLLM)
tampering(
    "held-back-in-one-leg",
    set_value("plan.admission", None),
    set_value("asked.admission", "off"),
    runs=ACCURACY,
    scenario=HELD_BACK,
)
tampering(
    "answers-shorter-than-was-asked-for",
    set_value("asked.sampling_arg", {"min_tokens": 100}),
    set_value("plan.sampling.min_tokens", 100),
    runs=BOTH,
    by=REQUESTS,
)
tampering(
    "technique-of-one-leg",
    set_value("asked.mechanism", {"mechanism": "kv_compression", "mechanism_variant": "h2o"}),
)
tampering("harness-of-one-leg", set_value("observed.harness.version", "9.9.9"))
tampering("engine-versions-of-one-leg", set_value("engine.versions", {"dummy": "2"}))
tampering("a-changed-harness-in-one-leg", set_value("observed.harness.git_changed", None))
tampering("official-after-all", set_value("official", True), set_value("unofficial_reasons", []), runs=BOTH)
for key, scenario, told_as in (
    ("llama3_1-8b-interactive", "Server", "Interactive"),
    ("llama3_1-8b", "Interactive", "Server"),
):  # LoadGen calls both Server
    tampering(
        f"{scenario.lower()}-told-as-{told_as.lower()}",
        set_value("asked.scenario", told_as),
        set_value("plan.loadgen_key", key),
        set_value("scenario", told_as, "progress.json"),
        runs=BOTH,
        scenario=scenario,
        by=USER_CONF,
    )
for name, pattern, line in (
    ("conf-without-minimum-duration", r"\*\.Server\.min_duration.*\n", ""),
    ("conf-with-fewer-queries", r"\Z", "*.Server.min_query_count = 1\n"),
    ("conf-with-coalescing", r"\Z", "*.Server.coalesce_queries = 1\n"),
    ("conf-with-asynchronous-queries", r"\Z", "*.Server.max_async_queries = 1\n"),
    ("conf-with-another-percentile", r"\Z", "*.Server.target_latency_percentile = 50\n"),
    ("conf-with-answers-logged", r"\Z", "*.*.accuracy_log_sampling_target = 100\n"),
):
    tampering(name, replace_text(USER_CONF, pattern, line), runs=BOTH, by=USER_CONF)
tampering("user-conf-of-another-rate", replace_text(USER_CONF, "target_qps = 400", "target_qps = 4000"))
tampering("user-conf-of-a-shorter-run", replace_text(USER_CONF, "min_duration = 1500", "min_duration = 15"))
tampering("user-conf-emptied", lambda run: run.user_conf.write_text(""))

# Files of other runs, and LoadGen's logs in another form --------------------------------------------------------------

tampering("legs-exchanged", lambda run: take(run, accuracy_of(run), MANIFEST, REQUESTS, "progress.json"))
tampering("seal-of-the-other-leg", lambda run: take(run, accuracy_of(run), "seal.json"), sealed=False)
tampering("record-of-the-scores-gone", lambda run: run.accuracy_json.unlink(), runs=ACCURACY, scenario="Offline")
tampering("a-second-summary-behind-the-first", lambda run: run.summary.write_bytes(run.summary.read_bytes() * 2))
tampering(
    "a-value-twice-in-the-log", replace_text(DETAIL, r'("key": ?"result_validity", ?)', r'\1"value": "INVALID", ')
)
tampering(
    "a-key-twice-among-the-answers",
    replace_text(RESPONSES, '"qsl_idx"', '"qsl_idx" : 1, "qsl_idx"'),
    runs=ACCURACY,
    scenario="Offline",
)
tampering("error-as-a-number", error_as_a_number)
tampering("clocks-of-all-records-at-0", clocks_at_0, by=DETAIL)
tampering("records-of-two-processes", of_two_processes, by=DETAIL)
tampering(
    "sources-of-another-loadgen", set_detail_value("loadgen_file_sha1", {"/loadgen.cc": "0" * 40}), runs=BOTH, by=DETAIL
)
tampering(
    "summary-of-the-answers-with-a-warning",
    replace_text(SUMMARY, r"\Z", "7 warnings encountered. See detailed log.\n"),
    runs=ACCURACY,
    by=SUMMARY,
)
tampering("summary-in-other-digits", replace_text(SUMMARY, "400", "４００"), by=SUMMARY)
tampering("summary-with-a-sign", replace_text(SUMMARY, r"(Min latency \(ns\)\s+: )", r"\1+"), by=SUMMARY)
tampering("summary-with-a-stroke", replace_text(SUMMARY, r"(Max latency \(ns\)\s+: \d\d)", r"\1_"), by=SUMMARY)

# Scores, responses and times
# --------------------------------------------------------------------------------------------

scores = partial(tampering, runs=ACCURACY, scenario="Offline")
scores("scores-raised", scores_raised)
scores("scores-raised-and-the-log-cut", scores_raised, log_cut)
scores(
    "scores-raised-and-the-data-set-gone",
    scores_raised,
    lambda run: [
        set_value(f"plan.dataset_{name}", value)(run)
        for run in Pair(run.root.parent).runs
        for name, value in (("path", "/data/cnn_eval.json"), ("sha256", "0" * 64))
    ],
)
scores(
    "scores-raised-and-the-model-gone",
    scores_raised,
    lambda run: [set_value("plan.model_path", "/data/model")(run) for run in Pair(run.root.parent).runs],
)
scores("accuracy-text-with-two-scores", replace_text("accuracy.txt", r"\Z", "{'rouge1': 44.4, 'rouge2': 22.2}\n"))
scores(
    "answers-with-other-token-counts",
    responses(lambda record: {"token_count": record["token_count"] + 1}),
    by=RESPONSES,
)
scores("answers-without-token-counts", responses(lambda _: {}, "token_count"), by=RESPONSES)
first_tokens = partial(tampering, runs=ACCURACY, by=RESPONSES)
first_tokens("first-tokens-of-other-answers", responses(lambda _: {"token_data": "7A000000"}))
first_tokens("first-tokens-of-nothing", responses(lambda _: {"token_data": ""}), scenario="SingleStream")
first_tokens(
    "first-tokens-that-are-answers", responses(lambda record: {"token_data": record["data"]}), scenario="Interactive"
)
first_tokens(
    "first-tokens-that-nobody-asked-for",
    responses(lambda record: {"token_data": record["data"][:8]}),
    scenario="Offline",
)
first_tokens("first-tokens-left-out", responses(lambda _: {}, "token_data"))
tampering("answers-that-were-given-up", requests(lambda _: {"finish_reason": "abort"}), runs=BOTH)
tampering(
    "an-answer-hashed-by-nothing",
    requests(lambda record: {"output_sha256": "z" * 64} if record["seq"] == 5 else {}),
    by=REQUESTS,
)
tampering(
    "half-of-the-answers-invented", requests(lambda record: {"output_sha256": "ab" * 32} if record["seq"] % 2 else {})
)
# The statistics of all other values were then not compared.
tampering("one-first-token-left-out", requests(lambda record: {"first_token_ns": None} if record["seq"] == 5 else {}))
tampering("prompts-of-another-length", requests(lambda _: {"prompt_tokens": 900}))
tampering(
    "longer-outputs",
    requests(lambda record: {"output_tokens": min(128, record["output_tokens"] + 9)}),
    lambda run: rebuild(run, 1),
    scenario="Offline",
)
# All files but the log of the responses
tampering(
    "more-tokens-than-ids-in-both-legs",
    requests(lambda record: {"output_tokens": min(128, record["output_tokens"] + 6)}),
    lambda run: run.root.name == "accuracy" or rebuild(run, 1),
    runs=BOTH,
    scenario="Offline",
    by=RESPONSES,
)
tampering(
    "a-higher-rate-in-log-summary-and-settings",
    set_detail_value("effective_target_qps", 440.0),
    set_detail_value("requested_server_target_qps", 440.0),
    lambda run: set_summary(run, "target_qps", "440"),
)
for key in PRINTED:
    scenario = "Server" if "completed" in key else "SingleStream"
    tampering(f"{key}-half-a-percent-higher", rate_half_a_percent_higher(key), scenario=scenario, by=DETAIL)


# Before the sign-off --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sources() -> Iterator[ScoreSources]:
    with Scorer() as scorer:
        yield ScoreSources(scorer=scorer)


@pytest.fixture
def copy(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Pair]:
    """Return a result to change: runs of the dummy engine, or frozen ones of vLLM."""
    dummy, frozen = DummyRuns(), FrozenRuns(tmp_path_factory)

    def make(scenario: str) -> Pair:
        pair = Pair(tmp_path / "result")
        for mode, name, run in zip(("performance", "accuracy"), ("vllm-off", "vllm-off-acc"), pair.runs, strict=True):
            shutil.copytree(frozen(name) if scenario == VLLM else dummy(scenario, mode), run.root)
        return pair

    return make


@pytest.mark.parametrize("scenario", sorted({tampering.scenario for tampering in TAMPERINGS}))
def test_an_unchanged_result_is_signed_off(copy: Callable[[str], Pair], sources: ScoreSources, scenario: str) -> None:
    verdict = sign_off("bundle", [copy(scenario).root], sources=sources)
    assert verdict.outcome in ("PASS", "FLAG"), headline(verdict)


@pytest.mark.parametrize("case", TAMPERINGS, ids=lambda value: value.name)
def test_each_tampered_result_fails_the_sign_off(
    copy: Callable[[str], Pair], sources: ScoreSources, case: Tampering
) -> None:
    pair = copy(case.scenario)
    case.apply(pair)
    verdict = sign_off("bundle", [pair.root], sources=sources)
    assert verdict.outcome == "FAIL", sign_off_text(verdict)
    assert blocks(verdict)
    wrong = [finding for finding in verdict.all_findings if finding.severity == "error"]
    assert any(case.by in f"{finding.where} {finding.sentence}" for finding in wrong), sign_off_text(verdict)
