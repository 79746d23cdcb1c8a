"""Logs and audits of multiple benchmarks, changed as a mistake or a cheat would change them: `check` finds each change.

The logs are short runs of the real LoadGen, so no test needs published logs.
"""

import re
import shutil
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest

from compliance.trees.tree import Place, Tree
from runs.errors import InputError
from runs.loadgen.detail_log import PREFIX, power_time, read_detail
from runs.record.layout import RunDir
from tests.support.files.editing import edit_detail
from tests.support.trees.any_tree import ROUND, any_tree
from tests.support.trees.checked_tree import check_submission_tree
from tests.support.trees.tree_mutations import edit_object, edit_text

SDXL, RESNET, STREAMS, GPT = (
    "stable-diffusion-xl/Server",
    "resnet50/SingleStream",
    "resnet50/MultiStream",
    "gpt-oss-120b/Offline",
)
Change = Callable[[Tree, Place], None]


def place_of(tree: Tree, name: str) -> Place:
    return next(place for place in tree.places() if f"{place.benchmark}/{place.scenario}" == name)


def run_of(tree: Tree, place: Place, run: str) -> RunDir:
    if run.startswith("TEST"):
        return RunDir(tree.audit(place, run) / "performance" / "run_1")
    return tree.performance(place) if run == "performance" else tree.accuracy(place)


def in_logs(tree: Tree, place: Place, run: str, **changes: object) -> None:
    """Change records of the detail log, and the same texts in the summary. {"times": 1.05} multiplies a value."""
    run_dir = run_of(tree, place, run)
    for key, value in changes.items():
        old = read_detail(run_dir.detail).get(key)
        new = value
        if isinstance(value, dict):
            new = type(old)(old * value["times"])
        edit_detail(run_dir, key, new)
        summary = run_dir.summary.read_text()
        old_text = f"{old:.2f}" if isinstance(old, float) else str(old)
        again = f"{new:.2f}" if isinstance(new, float) else str(new)
        run_dir.summary.write_text(summary.replace(f": {old_text}\n", f": {again}\n"))


def numbers(run: str = "performance", **changes: object) -> Change:
    return partial(in_logs, run=run, **changes)


def in_records(change: Callable[[list[dict[str, Any]]], object]) -> Change:
    """Change the records of the detail log."""

    def changed(tree: Tree, place: Place) -> None:
        path = run_of(tree, place, "performance").detail
        lines = path.read_bytes().splitlines()
        records = [orjson.loads(line.removeprefix(PREFIX)) for line in lines]
        change(records)
        path.write_bytes(b"".join(PREFIX + orjson.dumps(record) + b"\n" for record in records))

    return changed


def times(by: float, *keys: str) -> Change:
    return numbers(**{key: {"times": by} for key in keys})


P99, P50 = "result_99.00_percentile_latency_ns", "result_50.00_percentile_latency_ns"
MEAN, MOST, LEAST = "result_mean_latency_ns", "result_max_latency_ns", "result_min_latency_ns"
# Name → result, change, and the violated rule
NUMBERS: dict[str, tuple[str, Change, str]] = {
    "server-completed-rate": (SDXL, times(1.2, "result_completed_samples_per_sec"), "log-arithmetic"),
    "server-mean-halved": (SDXL, times(0.5, MEAN), "log-arithmetic"),
    "server-mean-above-all": (SDXL, times(1000, MEAN), "log-arithmetic"),  # at most 1,000 queries, for each percentile
    "server-p99": (SDXL, times(0.4, P99), "log-arithmetic"),
    "server-limit-broken": (SDXL, numbers(effective_target_latency_ns=1, requested_server_target_latency_ns=1),
                            "log-arithmetic"),
    "server-late": (SDXL, numbers(result_overlatency_query_count=400), "log-arithmetic"),
    "server-constraints": (SDXL, numbers(result_perf_constraints_met=False, result_validity="INVALID"),
                           "log-arithmetic"),
    "server-early-stopping": (SDXL, numbers(early_stopping_met=False, result_validity="INVALID"), "log-arithmetic"),
    "server-min-queries": (SDXL, numbers(effective_min_query_count=10**6, requested_min_query_count=10**6,
                                         effective_min_sample_count=10**6), "log-arithmetic"),
    "server-queries": (SDXL, times(2, "result_query_count"), "log-arithmetic"),
    "single-mean": (RESNET, times(0.8, MEAN), "log-arithmetic"),
    "single-p90": (RESNET, times(0.001, "result_90.00_percentile_latency_ns"), "log-arithmetic"),
    "single-all-percentiles": (RESNET, times(0.5, LEAST, P50, "result_90.00_percentile_latency_ns",
        "result_95.00_percentile_latency_ns", "result_97.00_percentile_latency_ns", P99,
        "result_99.90_percentile_latency_ns", MOST), "log-arithmetic"),
    "single-rate": (RESNET, times(2, "result_qps_with_loadgen_overhead"), "log-arithmetic"),
    "single-estimate": (RESNET, times(0.5, "early_stopping_latency_ss"), "log-arithmetic"),
    "single-min-duration": (RESNET, numbers(result_min_duration_met=False), "log-arithmetic"),
    "multi-mean": (STREAMS, times(0.001, "result_mean_query_latency_ns"), "log-arithmetic"),
    "multi-p99": (STREAMS, times(0.001, "result_99.00_percentile_per_query_latency_ns"), "log-arithmetic"),
    "multi-queries": (STREAMS, times(100, "result_query_count"), "log-clock"),
    "multi-most": (STREAMS, times(0.9, MOST), "log-settings"),
    "multi-samples-a-query": (STREAMS, numbers(effective_samples_per_query=16), "log-settings"),
    "multi-summary": (STREAMS, lambda tree, place: edit_detail(run_of(tree, place, "performance"),
                      "result_90.00_percentile_per_query_latency_ns", 1), "log-summary"),
    "offline-rate": (GPT, times(1.05, "result_samples_per_second", "result_tokens_per_second"), "log-arithmetic"),
    "offline-target": (GPT, numbers(effective_target_qps=10**4, requested_offline_expected_qps=10**4),
                       "log-arithmetic"),
    "offline-generated": (GPT, times(0.5, "generated_samples_per_query"), "log-arithmetic"),
    "offline-whole-sets": (GPT, numbers(generated_samples_per_query=257), "log-arithmetic"),
    "offline-p50": (GPT, times(1.95, P50), "log-arithmetic"),
    "dated-years-before": (RESNET, numbers(test_datetime="2020-01-01T00:00:00Z"), "log-clock"),
    "two-processes": (SDXL, in_records(lambda records: records[-1]["metadata"].update(pid=1)), "log-clock"),
    "no-process": (SDXL, in_records(lambda records: records[-1]["metadata"].pop("pid")), "log-clock"),
    "a-clock-that-goes-back": (SDXL, in_records(lambda records: records[-2].update(time_ms=0.001)), "log-clock"),
    "clocks-at-0": (SDXL, in_records(lambda records: [record.update(time_ms=0.0) for record in records]), "log-clock"),
    "a-warning": (SDXL, in_records(lambda records: records[-2]["metadata"].update(is_warning=True)), "log-summary"),
    "max-queries": (RESNET, numbers(effective_max_query_count=10, requested_max_query_count=10), "perf-cut-short"),
    "set-size": (GPT, numbers(qsl_reported_performance_count=32, requested_performance_sample_count_override=0),
                 "log-settings"),
}  # fmt: skip
# Tokens that the accuracy run does not have
TOKENS: dict[str, tuple[str, Change, str]] = {
    "tokens-up": (GPT, times(1.08, "result_tokens_per_second"), "audit-tokens"),
    "tokens-down": (GPT, times(0.9, "result_tokens_per_second"), "audit-tokens"),
}  # fmt: skip


def copied(source: str, from_run: str, *changed: str) -> Change:
    """Use the run of another result as performance run, with other bytes, another time and changed records."""

    def change(tree: Tree, place: Place) -> None:
        source_run, here = run_of(tree, place_of(tree, source), from_run), tree.performance(place)
        shutil.copy(source_run.detail, here.detail)
        shutil.copy(source_run.summary, here.summary)
        for key in ("power_begin", "power_end"):
            edit_detail(here, key, f"01-01-2026 10:00:0{len(key) % 10}.000")
        for key in changed:
            edit_detail(here, key, "Another")

    return change


def edited_copy(tree: Tree, place: Place) -> None:
    """Copy a run with another mean. Its percentiles are those of the other run."""
    copied(SDXL, "performance", "sut_name")(tree, place)
    in_logs(tree, place, "performance", result_mean_latency_ns={"times": 1.001})


COPIES: dict[str, tuple[str, Change, str]] = {
    "audit-as-performance": (SDXL, copied(SDXL, "TEST01"), "log-duplicate"),
    "other-audit-as-performance": (RESNET, copied(RESNET, "TEST04", "sut_name", "qsl_name"), "log-duplicate"),
    "audit-of-llm": (GPT, copied(GPT, "TEST09", "sut_name"), "log-duplicate"),
    "other-benchmark": (GPT, copied(SDXL, "performance", "sut_name", "test_datetime"), "log-duplicate"),
    "other-system": (RESNET, copied(GPT, "performance", "sut_name"), "log-duplicate"),
    "edited": (GPT, edited_copy, "log-duplicate"),
    "other-result": (STREAMS, copied(SDXL, "TEST04"), "log-duplicate"),
}


def text(test: str, name: str, old: str, new: str) -> Change:
    """Replace a text of an audit."""

    def change(tree: Tree, place: Place) -> None:
        edit_text(tree.audit(place, test) / name, old, new)

    return change


LENGTHS, SCORES, RATES = "verify_output_len.txt", "verify_accuracy.txt", "verify_performance.txt"
AUDITED: dict[str, tuple[str, Change, str]] = {
    "test07-score": (GPT, text("TEST07", SCORES, "score: 66.2", "score: 80.1"), "audit-numbers"),
    "test07-threshold": (GPT, text("TEST07", SCORES, "threshold: 60.698", "threshold: 10.5"), "audit-numbers"),
    "test07-below": (GPT, text("TEST07", SCORES, "score: 66.2", "score: 50.1"), "audit-verdict"),
    "test07-fails": (GPT, text("TEST07", SCORES, "check pass: True", "check pass: False"), "audit-verdict"),
    "test09-mean": (GPT, text("TEST09", LENGTHS, "Mean output tokens: ", "Mean output tokens: 9"), "audit-numbers"),
    "test09-samples": (GPT, text("TEST09", LENGTHS, "samples: ", "samples: 9"), "audit-numbers"),
    "test09-fails": (GPT, text("TEST09", LENGTHS, "Max check pass: True", "Max check pass: False"), "audit-verdict"),
    "test01-reference": (SDXL, text("TEST01", SCORES, "num_acc_log_entries = ", "num_acc_log_entries = 9"),
                         "audit-numbers"),
    "test01-none": (SDXL, text("TEST01", SCORES, "log_qsl_idx_match = ", "log_qsl_idx_match = 0\nx = "),
                    "audit-verdict"),
    "test01-mismatch": (SDXL, text("TEST01", SCORES, "perf_log_data_mismatch = 0", "perf_log_data_mismatch = 2"),
                        "audit-verdict"),
    "test01-fails": (SDXL, text("TEST01", SCORES, "TEST PASS", "TEST FAIL"), "audit-verdict"),
    "test01-rate-fails": (SDXL, text("TEST01", RATES, "TEST PASS", "TEST FAIL"), "audit-verdict"),
    "test01-cut": (SDXL, text("TEST01", RATES, "TEST PASS\n", ""), "audit-verdict"),
    "test01-score": (SDXL, text("TEST01", RATES, "Reference score = ", "Reference score = 1"), "audit-numbers"),
    "test04-score": (RESNET, text("TEST04", RATES, "test score = ", "test score = x"), "audit-numbers"),
    "test01-other-sut": (SDXL, numbers("TEST01", sut_name="Another"), "log-config"),
    "test04-settings": (SDXL, numbers("TEST04", effective_performance_issue_same=False,
                                      requested_performance_issue_same=False), "audit-settings"),
    "test09-tokens": (GPT, numbers("TEST09", result_tokens_per_second={"times": 1.2}), "audit-tokens"),
}  # fmt: skip


def accuracy_text(old: str, new: str) -> Change:
    """Replace a text of accuracy.txt."""
    return lambda tree, place: edit_text(tree.accuracy(place).accuracy_text, old, new)


def fewer(tree: Tree, place: Place) -> None:
    """Let the text state fewer samples than the run logged."""
    everything = {f"{kind}_accuracy_log_sampling_target": 10_000 for kind in ("requested", "effective")}
    in_logs(tree, place, "TEST07", **everything)
    edit_text(tree.audit(place, "TEST07") / SCORES, "Accuracy score", "Total samples evaluated: 12\nAccuracy score")


TEXTS: dict[str, tuple[str, Change, str]] = {
    "accuracy-fails": (GPT, accuracy_text("hash=", "accuracy: 83.1, threshold: 90.0 (Failed)\nhash="),
                       "accuracy-failure"),
    "accuracy-parts": (GPT, accuracy_text("hash=", "FINAL SCORE: 93.10% (83.10/100.00)\nhash="), "accuracy-numbers"),
    "accuracy-above-all": (GPT, accuracy_text("83.1", "183.1"), "accuracy-range"),
    "accuracy-beyond": (GPT, accuracy_text("83.1", "97.5"), "accuracy-reach"),
    "accuracy-of-fewer": (GPT, accuracy_text("hash=", "Total samples evaluated: 12\nhash="), "accuracy-samples"),
    "accuracy-of-another": (GPT, accuracy_text("hash=", "read /data/resnet50/Offline/mlperf_log_accuracy.json\nhash="),
                            "text-place"),
    "audit-of-another": (SDXL, text("TEST01", RATES, "Verifying", "loaded /logs/SingleStream/run_1/x\nVerifying"),
                         "text-place"),
    "test07-of-fewer": (GPT, fewer, "audit-numbers"),
    "test01-unmatched": (SDXL, text("TEST01", SCORES, "num_missing_qsl_idxs = 0", "num_missing_qsl_idxs = 7"),
                         "audit-verdict"),
    "test01-invalid": (SDXL, numbers("TEST01", result_validity="INVALID"), "audit-verdict"),
    "test04-faster": (RESNET, text("TEST04", RATES, "test score = ", "test score = 9"), "audit-verdict"),
    "test01-slower": (SDXL, text("TEST01", RATES, "Test score = ", "Test score = 0\nx = "), "audit-verdict"),
    "test09-order": (GPT, text("TEST09", LENGTHS, "Max output tokens: ", "Max output tokens: 0\nx: "), "audit-verdict"),
}  # fmt: skip


def logged(test: str, old: bytes, new: Callable[[re.Match[bytes]], bytes]) -> Change:
    """Replace entries of the accuracy log of an audit."""

    def change(tree: Tree, place: Place) -> None:
        path = (RunDir(tree.audit(place, test) / "accuracy") if test else tree.accuracy(place)).accuracy_log
        path.write_bytes(re.sub(old, new, path.read_bytes()))

    return change


def carriage_returns(tree: Tree, place: Place) -> None:
    """Write the summary with line ends of another operating system."""
    path = tree.performance(place).summary
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))


_LONG = b"".join(b"%08X" % number for number in range(40))
RESPONSES: dict[str, tuple[str, Change, str]] = {
    "one-response": (GPT, logged("", rb'"data" : "\w+"', lambda _: b'"data" : "%s"' % _LONG), "responses-shared"),
    "audit-one-response": (GPT, logged("TEST09", rb'"data" : "\w+"', lambda _: b'"data" : "%s"' % _LONG),
                           "responses-shared"),
    "other-length": (GPT, logged("", rb'"token_count" : (\d+)', lambda match: b'"token_count" : 1%s' % match[1]),
                     "responses-length"),
    "other-samples": (SDXL, logged("", rb'"qsl_idx" : (\d+)', lambda match: b'"qsl_idx" : %d' % (63 - int(match[1]))),
                      "log-order"),
    "audit-other-samples": (GPT, logged("TEST09", rb'"qsl_idx" : (\d+)',
                            lambda match: b'"qsl_idx" : %d' % (63 - int(match[1]))), "audit-order"),
    "samples-beyond": (STREAMS, logged("", rb'"seq_id" : 3,', lambda _: b'"seq_id" : 300,'), "log-order"),
    "carriage-returns": (RESNET, carriage_returns, "log-line-ends"),
}  # fmt: skip


def described(**fields: object) -> Change:
    """Change fields of the system description."""

    def change(tree: Tree, place: Place) -> None:
        edit_object(tree.system(place.division, place.organization, place.system), **fields)

    return change


def other_scores(tree: Tree, place: Place) -> None:
    """Give one accuracy log, known by its hash, two scores."""
    content = tree.accuracy(place_of(tree, RESNET)).accuracy_text.read_text()
    tree.accuracy(place).accuracy_text.write_text(content.replace("83.1", "83.2"))


def half_the_time(tree: Tree, place: Place) -> None:
    log = tree.performance(place).detail
    halved = re.sub(rb'"time_ms": ([\d.]+)', lambda match: b'"time_ms": %f' % (float(match[1]) / 2), log.read_bytes())
    log.write_bytes(halved)


def ended_later(by_s: int) -> Change:
    """End a run later than its results allow. Only a clock change by an hour could explain it."""

    def change(tree: Tree, place: Place) -> None:
        run = tree.performance(place)
        end = power_time(read_detail(run.detail).get("power_end"))
        assert end is not None
        edit_detail(run, "power_end", f"{end + timedelta(seconds=by_s):%m-%d-%Y %H:%M:%S.%f}"[:-3])

    return change


def redated(days: int) -> Change:
    """Move the test to another day, in all records that have its date."""
    later = timedelta(days=days)

    def change(tree: Tree, place: Place) -> None:
        run = tree.performance(place)
        detail = read_detail(run.detail)
        tested = datetime.fromisoformat(detail.get("test_datetime").removesuffix("Z")) + later
        edit_detail(run, "test_datetime", f"{tested:%Y-%m-%dT%H:%M:%S}Z")
        for key in ("power_begin", "power_end"):
            moment = power_time(detail.get(key))
            assert moment is not None
            edit_detail(run, key, f"{moment + later:%m-%d-%Y %H:%M:%S.%f}"[:-3])

    return change


def speculative(tree: Tree, place: Place) -> None:
    tree.readme(place).write_text("The server uses speculative decoding.")


_H200 = {"system_name": "a node (8x H200-SXM-141GB)", "accelerator_model_name": "NVIDIA H200-SXM-141GB",
         "accelerators_per_node": "8", "accelerator_memory_capacity": "141 GB"}  # fmt: skip
OF_STREAMS = "result_90.00_percentile_latency_ns"
FACTS: dict[str, tuple[str, Change, str]] = {
    "system-count": (GPT, described(**_H200 | {"accelerators_per_node": "4"}), "system-accelerators"),
    "system-nodes": (GPT, described(**_H200 | {"number_of_nodes": "2", "accelerators_per_node": "2"}),
                     "system-accelerators"),
    "system-kind": (GPT, described(**_H200 | {"accelerator_model_name": "NVIDIA H100"}), "system-accelerators"),
    "system-memory": (GPT, described(**_H200 | {"accelerator_memory_capacity": "288 GB"}), "system-accelerators"),
    "system-more-nodes": (GPT, described(**_H200 | {"number_of_nodes": "2"}), "system-accelerators"),
    "system-count-before-the-kind": (GPT, described(**_H200 | {"system_name": "4xH200_node"}), "system-accelerators"),
    "system-processor": (GPT, described(system_name="2xEPYC_9575F", host_processor_model_name="AMD EPYC 9554"),
                         "system-hosts"),
    "built-on-another-day": (RESNET, numbers(loadgen_build_date_local="2020-01-01T00:00:00"), "log-clock"),
    "tested-before-the-build": (RESNET, redated(days=-3000), "log-test-date"),
    "tested-in-the-future": (RESNET, redated(days=3000), "log-test-date"),
    "ended-two-hours-later": (RESNET, ended_later(7200), "log-clock"),
    "ended-50-minutes-later": (RESNET, ended_later(3000), "log-clock"),
    "records-of-half-the-time": (RESNET, half_the_time, "log-clock"),
    "test07-other-datasets": (GPT, text("TEST07", SCORES, "\n\n", "\naime25 22 54 8 2.75 40.74%\n"),
                              "audit-numbers"),
    "test07-out-of-reach": (GPT, text("TEST07", SCORES, "'exact_match': 66.2", "'exact_match': 74.6"),
                            "accuracy-reach"),
    "system-sockets": (GPT, described(system_name="1-node-2S-GNR_86C", host_processors_per_node="8"), "system-hosts"),
    "one-hash-two-scores": (STREAMS, other_scores, "accuracy-hash-scores"),
    "speculation": (GPT, speculative, "measurements-speculation"),
    "multi-sample-above-query": (STREAMS, times(3, OF_STREAMS), "log-arithmetic"),
    "multi-rate": (STREAMS, numbers(effective_target_qps={"times": 2}), "log-arithmetic"),
    "multi-16-samples": (STREAMS, numbers(requested_multi_stream_samples_per_query=16, effective_samples_per_query=16,
                                          generated_samples_per_query=16), "perf-samples-per-query"),
    "single-min-duration-of-the-clock": (RESNET, numbers(requested_min_duration_ms=10**8,
        effective_min_duration_ms=10**8, effective_target_duration_ms=10**8), "log-arithmetic"),
}  # fmt: skip
MUTATIONS = NUMBERS | TOKENS | COPIES | AUDITED | TEXTS | RESPONSES | FACTS


def findings_of(tree: Tree) -> set[tuple[str, ...]]:
    return {
        (finding.rule, str(finding.files[0]), finding.found)
        for finding in check_submission_tree(tree.root, ROUND).findings
    }


@pytest.fixture(scope="module")
def findings_before() -> set[tuple[str, ...]]:
    broken = findings_of(any_tree())
    broken -= {
        value for value in broken if value[0] == "log-same-answers"
    }  # one SUT gives the responses of all benchmarks
    # The datasets are small, and the threshold of lengths is not the official one.
    numbers = {outcome.partition(" is ")[0] for rule, _, outcome in broken if rule == "audit-numbers"}
    assert numbers == {"num_acc_log_entries", "min threshold"}
    assert not [
        rule
        for rule, _, sentence in broken
        # Queries of 3 ms vary more than an audit permits, and an audit of a small dataset has too few samples.
        if "from reference score" not in sentence
        and "audit.config requires" not in sentence
        and rule.startswith(("log-", "audit-text", "audit-verdict", "audit-tokens", "perf-audit", "perf-tokens"))
    ]
    return broken


def test_a_system_with_consistent_names_has_no_findings(tmp_path: Path) -> None:
    shutil.copytree(any_tree().root, tmp_path / "tree")
    tree = Tree(tmp_path / "tree", ROUND)
    described(**_H200)(tree, place_of(tree, GPT))
    assert not [
        finding for finding in check_submission_tree(tree.root, ROUND).findings if finding.rule.startswith("system-")
    ]


@pytest.mark.parametrize("name", MUTATIONS)
def test_each_changed_log_violates_its_rule(name: str, findings_before: set[tuple[str, ...]], tmp_path: Path) -> None:
    result, change, rule = MUTATIONS[name]
    shutil.copytree(any_tree().root, tmp_path / "tree")
    tree = Tree(tmp_path / "tree", ROUND)
    change(tree, place_of(tree, result))
    assert rule in {value for value, *_ in findings_of(tree) - findings_before}


def test_a_run_of_another_tree_is_reported_as_duplicate(tmp_path: Path) -> None:
    tree = any_tree()
    shutil.copytree(tree.performance(place_of(tree, SDXL)).root, tmp_path / "any" / "layout")
    findings = check_submission_tree(tree.root, ROUND, against=[tmp_path]).findings
    assert [finding.rule for finding in findings if str(tmp_path) in finding.found] == ["log-duplicate"]
    with pytest.raises(InputError):
        check_submission_tree(tree.root, ROUND, against=[tmp_path / "nothing"])


@pytest.mark.parametrize(("clip", "rules"), [(31.7, {"audit-fallback"}), (31.2, {"audit-fallback", "audit-verdict"})])
def test_audit_responses_may_differ_if_the_scores_are_equal(
    findings_before: set[tuple[str, ...]], tmp_path: Path, clip: float, rules: set[str]
) -> None:
    shutil.copytree(any_tree().root, tmp_path / "tree")
    tree = Tree(tmp_path / "tree", ROUND)
    audit = tree.audit(place_of(tree, SDXL), "TEST01")
    edit_text(audit / SCORES, "perf_log_data_mismatch = 0", "perf_log_data_mismatch = 3")
    edit_text(audit / SCORES, "TEST PASS", "TEST FAIL")
    for name, score in (("baseline_accuracy.txt", 31.7), ("compliance_accuracy.txt", clip)):
        (audit / "accuracy" / name).write_text(f"{{'FID_SCORE': 23.5, 'CLIP_SCORE': {score}}}")
    new = {rule: outcome for rule, _, outcome in findings_of(tree) - findings_before if rule.startswith("audit-")}
    assert new.keys() == rules
    assert "3 of " in new["audit-fallback"]
