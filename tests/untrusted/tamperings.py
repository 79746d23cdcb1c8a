"""Tamperings of a result by somebody who reads our code: each is covered afterwards, hashes and seal made anew.

By class: something left out, null or of another type; files of other legs; forgeries that agree over several files. A
tampering changes a copy of a result (performance and accuracy leg) and wants to gain by it.
"""

import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from runs.files import write_json
from runs.loadgen.detail_log import PREFIX
from runs.record.layout import RunDir
from tests.honest.pair import Pair
from tests.signoff.forge.faults import cover, set_detail, set_manifest, set_summary, take
from tests.signoff.forge.rebuilt_faults import beat, rebuild, scale_clock, shave_tail
from tests.signoff.forge.record_faults import each_record, stretch_requests
from tests.support.editing import reseal

Json = dict[str, Any]
Change = Callable[[Pair], None]


@dataclass(frozen=True)
class Tampering:
    """A change, and the scenario of the result that it is for."""

    name: str
    scenario: str
    change: Change
    covered: bool = True
    sealed: bool = True  # anew

    def apply(self, pair: Pair) -> None:
        self.change(pair)
        for run in pair.legs:
            if self.covered and run.manifest.is_file():
                _cover(run)
            if self.sealed:
                reseal(run)


def _cover(run: RunDir) -> None:
    progress = run.progress.read_bytes() if run.progress.is_file() else None
    cover(run)
    if progress is not None and _json(progress) is not None and _json(run.progress.read_bytes()) is None:
        run.progress.write_bytes(progress)


def _json(content: bytes) -> Json | None:
    try:
        value = orjson.loads(content)
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None


TAMPERINGS: list[Tampering] = []


def tampering(scenario: str = "Server", *, covered: bool = True, sealed: bool = True) -> Callable[[Change], Change]:
    def add(change: Change) -> Change:
        TAMPERINGS.append(Tampering(change.__name__.replace("_", "-"), scenario, change, covered, sealed))
        return change

    return add


def _of_both(name: str, change: Callable[[RunDir], None], scenario: str = "Server", *, covered: bool = True) -> None:
    def both(pair: Pair) -> None:
        for run in pair.legs:
            change(run)

    TAMPERINGS.append(Tampering(name, scenario, both, covered))


def _heartbeat(run: RunDir, **values: Any) -> None:
    progress = orjson.loads(run.progress.read_bytes())
    write_json(run.progress, progress | values)


def _faster(run: RunDir) -> None:
    """The slowest answers come sooner in our record and in LoadGen's results: what all of these want to hide."""
    shave_tail(run, 40, 0.3)
    rebuild(run, 1)


def _without(run: RunDir, path: str) -> None:
    content = orjson.loads(run.manifest.read_bytes())
    *parents, last = path.split(".")
    place = content
    for name in parents:
        place = place[name]
    place.pop(last, None)
    write_json(run.manifest, content)


def _each_line(path: Path, change: Callable[[Json], Json | None]) -> None:
    lines = []
    for line in path.read_bytes().splitlines():
        record = change(orjson.loads(line.removeprefix(PREFIX)))
        if record is not None:
            lines.append((PREFIX if line.startswith(PREFIX) else b"") + orjson.dumps(record) + b"\n")
    path.write_bytes(b"".join(lines))


# Left out, null, empty, of another type -------------------------------------------------------------------------------


@tampering(covered=False)
def heartbeat_of_another_phase(pair: Pair) -> None:
    _faster(pair.performance)
    cover(pair.performance)
    _heartbeat(pair.performance, phase="closing")


@tampering(covered=False)
def heartbeat_without_percentiles(pair: Pair) -> None:
    _faster(pair.performance)
    cover(pair.performance)
    _heartbeat(pair.performance, ttft_p99_ms=None, tpot_p99_ms=None)


@tampering(covered=False)
def heartbeat_without_rates(pair: Pair) -> None:
    _faster(pair.performance)
    cover(pair.performance)
    _heartbeat(pair.performance, ttft_p99_ms=None, tpot_p99_ms=None, samples_per_second=0.0, elapsed_s=0.0)


@tampering(covered=False)
def heartbeat_that_is_no_json(pair: Pair) -> None:
    _faster(pair.performance)
    cover(pair.performance)
    pair.performance.progress.write_text("running")


@tampering(covered=False)
def heartbeat_gone(pair: Pair) -> None:
    _faster(pair.performance)
    cover(pair.performance)
    pair.performance.progress.unlink()


def _no_pid(record: Json) -> Json:
    record["metadata"].pop("pid", None)
    return record


@tampering()
def log_without_processes(pair: Pair) -> None:
    _each_line(pair.performance.detail, _no_pid)


@tampering()
def log_with_processes_in_words(pair: Pair) -> None:
    _each_line(pair.performance.detail, lambda one: one | {"metadata": one["metadata"] | {"pid": "1"}})


@tampering()
def half_of_the_log_without_processes(pair: Pair) -> None:
    count = [0]

    def change(record: Json) -> Json:
        count[0] += 1
        return _no_pid(record) if count[0] % 2 else record

    _each_line(pair.performance.detail, change)


@tampering()
def log_with_a_clock_that_stands(pair: Pair) -> None:
    _each_line(pair.performance.detail, lambda one: one | {"time_ms": 0.0})


@tampering()
def error_as_a_number(pair: Pair) -> None:
    """An error record whose flag is 1, not true."""

    def change(one: Json) -> Json:
        wrong = one["key"] == "power_begin"
        return one | {"metadata": one["metadata"] | {"is_error": 1}} if wrong else one

    _each_line(pair.performance.detail, change)


@tampering(covered=False)
def hashes_left_out(pair: Pair) -> None:
    _faster(pair.performance)
    beat(pair.performance)
    set_manifest(pair.performance, "observed.log_sha256", {})


@tampering(covered=False)
def one_hash_left_out(pair: Pair) -> None:
    cover(pair.performance)
    content = orjson.loads(pair.performance.manifest.read_bytes())
    del content["observed"]["log_sha256"]["mlperf_log_detail.txt"]
    write_json(pair.performance.manifest, content)


_of_both("settings-left-out", lambda run: set_manifest(run, "loadgen_settings", {}))
_of_both("prefix-caching-null", lambda run: set_manifest(run, "engine.prefix_caching", None))
_of_both("prefix-caching-in-words", lambda run: set_manifest(run, "engine.prefix_caching", "off"))
_of_both("cached-tokens-left-out", lambda run: _without(run, "observed.cached_prompt_tokens"))
_of_both("cached-tokens-in-words", lambda run: set_manifest(run, "observed.cached_prompt_tokens", "0"))
_of_both("no-limit-on-tokens", lambda run: _without(run, "resolved.sampling.max_tokens"))
_of_both("sampling-in-words", lambda run: set_manifest(run, "resolved.sampling.temperature", "greedy"))
_of_both("no-host", lambda run: set_manifest(run, "host", {}))
_of_both("no-software", lambda run: set_manifest(run, "software", {}))
_of_both("engine-nobody-knows", lambda run: set_manifest(run, "resolved.engine", "my-engine"))
_of_both("benchmark-nobody-knows", lambda run: set_manifest(run, "resolved.loadgen_key", "my-llama"))
_of_both("no-process", lambda run: set_manifest(run, "pid", None))
_of_both("no-loop-lag", lambda run: set_manifest(run, "observed.loop_lag", {}))
_of_both("contention-of-nothing", lambda run: set_manifest(run, "observed.contention", {}))
_of_both("older-version-of-the-record", lambda run: set_manifest(run, "schema_version", 1), covered=False)
_of_both("unknown-field", lambda run: set_manifest(run, "observed.verified_by", "MLCommons"))
_of_both("replicas-that-were-not", lambda run: set_manifest(run, "replicas", [{"pid": 4242}]))
_of_both("start-and-end-left-out", lambda run: set_manifest(run, "start_time_ns", None))


@tampering()
def requests_of_a_replica_that_was_not(pair: Pair) -> None:
    each_record(pair.performance, lambda one: one | {"replica": 7})


@tampering()
def requests_with_a_field_of_its_own(pair: Pair) -> None:
    each_record(pair.performance, lambda one: one | {"true_ttft_ns": 1})


@tampering(covered=False)
def a_key_twice_in_the_manifest(pair: Pair) -> None:
    """Of which one reader takes the first and another the last."""
    cover(pair.performance)
    text = pair.performance.manifest.read_text()
    pair.performance.manifest.write_text(
        text.replace('"official": false,', '"official": true,\n  "official": false,', 1)
    )


@tampering()
def a_key_twice_in_a_request(pair: Pair) -> None:
    text = pair.performance.requests.read_text()
    pair.performance.requests.write_text(text.replace('"seq":3,', '"output_tokens":128,"seq":3,', 1))


# Files of other legs --------------------------------------------------------------------------------------------------


@tampering()
def heartbeat_of_the_other_leg(pair: Pair) -> None:
    take(pair.performance, pair.accuracy, "progress.json")


@tampering(covered=False)
def result_of_the_other_leg(pair: Pair) -> None:
    take(pair.performance, pair.accuracy, "result.json")


@tampering()
def legs_exchanged(pair: Pair) -> None:
    """The accuracy leg's record beside the performance leg's logs."""
    take(pair.performance, pair.accuracy, "manifest.json", "requests.jsonl", "progress.json")


@tampering()
def user_conf_of_another_rate(pair: Pair) -> None:
    """The configuration that is submitted is not the one that LoadGen ran with."""
    text = pair.performance.user_conf.read_text()
    pair.performance.user_conf.write_text(text.replace("*.Server.target_qps = 400", "*.Server.target_qps = 4000"))


@tampering()
def user_conf_of_a_shorter_run(pair: Pair) -> None:
    text = pair.performance.user_conf.read_text()
    pair.performance.user_conf.write_text(text.replace("*.Server.min_duration = 1500", "*.Server.min_duration = 15"))


@tampering()
def user_conf_emptied(pair: Pair) -> None:
    pair.performance.user_conf.write_text("")


@tampering()
def audit_config_that_was_not_read(pair: Pair) -> None:
    pair.performance.audit_config.write_text("*.*.mode = 2\n")


@tampering(covered=False, sealed=False)
def seal_of_the_other_leg(pair: Pair) -> None:
    shutil.copy(pair.accuracy.seal, pair.performance.seal)


@tampering("Offline")
def data_set_by_another_hash(pair: Pair) -> None:
    """The hash that is compared is not the one that is shown."""
    for run in pair.legs:
        set_manifest(run, "dataset.sha256", "0" * 64)


# Scores ---------------------------------------------------------------------------------------------------------------


def _raised(run: RunDir) -> None:
    run.accuracy_text.write_text(run.accuracy_text.read_text().replace("'rouge1': ", "'rouge1': 4"))
    if run.accuracy_json.is_file():
        run.accuracy_json.unlink()


@tampering("Offline")
def scores_raised_and_the_data_set_gone(pair: Pair) -> None:
    for run in pair.legs:
        set_manifest(run, "resolved.dataset_path", "/data/cnn_eval.json")
        set_manifest(run, "resolved.dataset_sha256", "0" * 64)
        set_manifest(run, "dataset.path", "/data/cnn_eval.json")
        set_manifest(run, "dataset.sha256", "0" * 64)
    _raised(pair.accuracy)


@tampering("Offline")
def scores_raised_and_the_model_gone(pair: Pair) -> None:
    for run in pair.legs:
        set_manifest(run, "resolved.model_path", "/data/model")
    _raised(pair.accuracy)


@tampering("Offline")
def scores_raised_and_the_log_cut(pair: Pair) -> None:
    """As the official tool cuts it, with a hash that fits what it says."""
    _raised(pair.accuracy)
    content = pair.accuracy.accuracy_log.read_bytes()
    pair.accuracy.accuracy_log.write_bytes(content[:4096] + b"\n\n...\n\n" + content[-4096:])


@tampering("Offline")
def scores_raised(pair: Pair) -> None:
    _raised(pair.accuracy)


@tampering("Offline")
def accuracy_text_with_two_scores(pair: Pair) -> None:
    text = pair.accuracy.accuracy_text
    text.write_text(text.read_text() + "{'rouge1': 44.4, 'rouge2': 22.2, 'rougeL': 28.1}\n")


# Forgeries that agree -------------------------------------------------------------------------------------------------


@tampering("Offline")
def longer_outputs(pair: Pair) -> None:
    """A tenth more tokens a second, in record, heartbeat and LoadGen's results."""
    run = pair.performance
    each_record(run, lambda one: one | {"output_tokens": min(128, one["output_tokens"] + 9)})
    rebuild(run, 1)
    beat(run)


@tampering("SingleStream")
def faster_by_a_fifth_but_for_the_heartbeat(pair: Pair) -> None:
    run = pair.performance
    stretch_requests(run, 0.8)
    rebuild(run, 1)
    scale_clock(run, 0.8)


@tampering()
def a_higher_rate_in_log_summary_and_settings(pair: Pair) -> None:
    run = pair.performance
    for key in ("effective_target_qps", "requested_server_target_qps"):
        set_detail(run, key, 440.0)
    set_summary(run, "target_qps", "440")
    set_manifest(run, "loadgen_settings.server_target_qps", 440.0)


@tampering()
def prompts_of_another_length(pair: Pair) -> None:
    each_record(pair.performance, lambda one: one | {"prompt_tokens": 900})


@tampering()
def half_of_the_answers_invented(pair: Pair) -> None:
    run = pair.performance
    each_record(run, lambda one: one | {"output_sha256": "ab" * 32} if one["seq"] % 2 else one)


@tampering()
def official_after_all(pair: Pair) -> None:
    for run in pair.legs:
        set_manifest(run, "official", True)
        set_manifest(run, "unofficial_reasons", [])


# Told twice: what one file has of another, or of itself --------------------------------------------------------------

_of_both("nothing-was-asked-for", lambda run: set_manifest(run, "asked", {}))
_of_both("another-scenario-was-asked-for", lambda run: set_manifest(run, "asked.scenario", "Offline"))
_of_both("other-sampling-was-asked-for", lambda run: set_manifest(run, "asked.sampling_arg", {"temperature": 1.0}))
_of_both("data-set-in-another-place", lambda run: set_manifest(run, "dataset.path", "/data/cnn_eval.json"))
_of_both(
    "a-rate-that-nobody-chose", lambda run: set_manifest(run, "resolved.rate_choice", {"share": 1, "highest_qps": 9})
)
_of_both("settings-of-another-mode", lambda run: set_manifest(run, "loadgen_settings.mode", "SubmissionRun"))
_of_both("settings-with-another-limit", lambda run: set_manifest(run, "loadgen_settings.ttft_latency", 10**12))
_of_both("answers-that-were-given-up", lambda run: each_record(run, lambda one: one | {"finish_reason": "abort"}))


@tampering()
def exit_code_of_an_invalid_leg(pair: Pair) -> None:
    set_manifest(pair.performance, "exit_code", 1)


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


def _edit(path: Path, change: Callable[[Json], object]) -> None:
    content = orjson.loads(path.read_bytes())
    change(content)
    write_json(path, content)


@tampering(covered=False)
def another_count_in_the_result(pair: Pair) -> None:
    _edit(pair.performance.result, lambda content: content["counts"].update(queries=9999))


@tampering(covered=False)
def other_tokens_in_the_result_of_the_answers(pair: Pair) -> None:
    _edit(pair.accuracy.result, lambda content: content["tokens"].update(output_total=10**9))


@tampering("Offline", covered=False)
def scores_raised_in_the_record_alone(pair: Pair) -> None:
    _edit(pair.accuracy.accuracy_json, lambda content: content["scores"].update(rouge1=44.0))


@tampering("Offline", covered=False)
def record_of_the_scores_gone(pair: Pair) -> None:
    pair.accuracy.accuracy_json.unlink()


@tampering(covered=False, sealed=False)
def sealed_long_after_the_leg(pair: Pair) -> None:
    _edit(pair.performance.seal, lambda content: content.update(sealed_ns=content["sealed_ns"] + 86_400 * 10**9))


@tampering(covered=False, sealed=False)
def sealed_before_the_leg(pair: Pair) -> None:
    _edit(pair.performance.seal, lambda content: content.update(sealed_ns=0))


# Several engines ------------------------------------------------------------------------------------------------------

REPLICAS = "Server --replicas 2"


def _of_a_replica(name: str, **values: Any) -> None:
    def change(pair: Pair) -> None:
        _edit(pair.performance.manifest, lambda content: content["replicas"][1].update(values))

    TAMPERINGS.append(Tampering(name, REPLICAS, change))


_of_a_replica("replica-with-other-queries", queries=1)
_of_a_replica("replica-with-other-tokens", output_tokens=1)
_of_a_replica("replica-with-faster-first-tokens", ttft_p99_ms=0.1)
_of_a_replica("replica-that-took-from-a-cache", cached_prompt_tokens=100)
_of_a_replica("replica-of-other-software", software={"python": "2.7"})
_of_a_replica("replica-with-other-options", in_force={"ttft_ms": 1.0})
_of_a_replica("replica-with-other-weights", weights_sha256={"model.safetensors": "0" * 64})


@tampering(REPLICAS)
def a_replica_left_out(pair: Pair) -> None:
    _edit(pair.performance.manifest, lambda content: content["replicas"].pop())


@tampering(REPLICAS)
def answers_of_the_other_replica(pair: Pair) -> None:
    each_record(pair.performance, lambda one: one | {"replica": 1 - one["replica"]} if one["seq"] % 9 == 0 else one)
