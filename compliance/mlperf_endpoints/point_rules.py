"""Rules of a round of MLPerf Endpoints on one point of a curve, which is one run directory.

configs/rounds/endpoints/ has the limits with their sources. Requirements that the published rules do not state for a
model are not checked, nor is what one point cannot show (the other points, power).
"""

import math
import re
from collections.abc import Iterator
from typing import Any

from compliance.accuracy.scores import score_texts
from compliance.judge.rule import OURS, decides
from compliance.judge.verdict import Finding, NotApplied, compared, stated
from compliance.mlperf_endpoints.endpoints_evidence import EndpointsEvidence
from compliance.mlperf_endpoints.load import RERUN
from qsl.dataset_file import parse_rows, read_dataset_bytes
from runs.errors import InputError
from runs.mlperf_endpoints.accuracy import AccuracyResults, read_accuracy
from runs.mlperf_endpoints.folder import Config, EndpointsRun
from runs.mlperf_endpoints.layout import CONFIG, REPORT, SAMPLES
from runs.wording import printable, shortened_list

ACCURACY = "accuracy/accuracy_results.json"
ROUGE_DECIMALS = 4  # decimals that the client writes
_IN_REPORT = {"unit": "unit_samples", "repeats": "num_repeats", "total": "total_samples"}
_ENDPOINTS = "[endpoints]"
UNKNOWN_SET = "the seed set is unknown to this version"
# Names of seeds in config.yaml → names in seedset.yaml and point.yaml.
_PUBLISHED = {
    "scheduler_random_seed": "scheduler_rng_seed", "dataloader_random_seed": "sample_index_rng_seed",
    "model_seed": "model_seed",
}  # fmt: skip
_FIX = "restore the file that the client wrote"


def model_rules(case: EndpointsEvidence) -> tuple[str, dict[str, Any]]:
    """Return the benchmark and its rules, by the last part of the model's name; empty for other models."""
    config = case.run.config
    name = "" if config is None else config.model_params.name.rstrip("/").rpartition("/")[2].lower()
    models = case.tables.models.items()
    return next(((benchmark, rules) for benchmark, rules in models if name in rules["names"]), ("", {}))


def seeds_of(config: Config) -> dict[str, int]:
    """Return the seeds of a configuration by their names in the tables of rounds."""
    runtime, seed = config.settings.runtime, config.model_params.seed
    seeds = {key: getattr(runtime, key) for key in ("scheduler_random_seed", "dataloader_random_seed")}
    # The chat API has signed seeds, so that a large seed is the negative number with the same 64 bits.
    return seeds if seed is None else seeds | {"model_seed": seed % 2**64}


def published_names(seeds: dict[str, int]) -> dict[str, int]:
    """Return seeds by their names in the tables of rounds and in point.yaml."""
    return {_PUBLISHED[name]: seed for name, seed in seeds.items()}


def _listed(seeds: dict[str, int]) -> str:
    return ", ".join(f"{name} {seed}" for name, seed in seeds.items())


def _seeds(case: EndpointsEvidence, config: Config) -> Iterator[tuple[str, bool, object, object] | NotApplied]:
    """Compare the seeds with the known sets. Seeds that belong to no known set may be a newer set."""
    seeds, tables = seeds_of(config), case.tables
    published, unpublished = published_names(seeds), list(tables.client_seed_sets.values())
    pinned = (name for name, seed_set in tables.client_seed_sets.items() if seeds == seed_set)
    by_client = next((f" (the unpublished seeds of the client's ruleset {name})" for name in pinned), "")
    parts = [{_PUBLISHED[name]: seed for name, seed in seed_set.items()} for seed_set in unpublished]
    parts += [dict(seed_set.seeds) for seed_set in tables.seed_sets]
    right = tables.set_with(published) is not None
    if right or any(part.items() & published.items() for part in parts):
        sets = ", or ".join(seed_set.text for seed_set in tables.seed_sets)
        yield "seeds", right, f"{_listed(seeds)}{by_client}", sets
    else:
        yield NotApplied(f"{UNKNOWN_SET}: {_listed(seeds)}", what="endpoints-rule-seeds")


@decides(
    "official",
    ("endpoints-rule-model", "error", f"{_ENDPOINTS} §3.2", "model", "run a model of the round"),
    ("endpoints-rule-pattern", "error", f"{_ENDPOINTS} §6.1", "load pattern",
     "set load_pattern to concurrency, or to max_throughput for the Offline point"),
    ("endpoints-rule-dataset", "error", f"{_ENDPOINTS} §2.9.1", "dataset", "run with the dataset of the benchmark"),
    ("endpoints-rule-sampling", "error", f"{_ENDPOINTS} §2.9.1", "sampling parameters",
     "set model_params to the required values"),
    ("endpoints-rule-seeds", "error", f"{_ENDPOINTS} §4.6", "random seeds",
     "set scheduler_random_seed and dataloader_random_seed to the values of one published set"),
    ("endpoints-rule-streaming", "error", f"{_ENDPOINTS} §4.1", "streaming at a fixed concurrency",
     "set model_params.streaming to on"),
    ("endpoints-rule-warm-up", "error", f"{_ENDPOINTS} §6.3.1", "salt of the warm-up prompts",
     "set warmup.salt, because the client warms up with samples of the performance dataset"),
    ("endpoints-rule-failures", "error", f"{_ENDPOINTS} §9.1", "failed samples", RERUN),
    ("endpoints-rule-samples", "error", f"{_ENDPOINTS} §6.4", "issued samples",
     "set n_samples_to_issue to a multiple of the dataset's rows"),
    ("endpoints-rule-duration", "warning", f"{_ENDPOINTS} §6.2", "duration of the measured phase",
     "raise n_samples_to_issue"),
    ("endpoints-rule-tpot", "error", f"{_ENDPOINTS} §9.1", "p90 of TPOT",
     "set model_params.streaming to on, and give the client a tokenizer"),
    needs=("load",),
)  # fmt: skip
def point(case: EndpointsEvidence) -> Iterator[Finding | NotApplied]:
    """Check the settings in config.yaml and the measured values against the rules of the round."""
    load, table = case.load, case.tables
    assert load is not None  # see `needs`
    model, settings, (benchmark, rules) = load.config.model_params, load.config.settings, model_rules(case)
    pattern, warm_up, size, sent = settings.load_pattern, settings.warmup, load.size[0], len(load.rows)
    patterns = ("agentic_inference",) if rules.get("agentic") else ("concurrency", "max_throughput")
    failed = int(load.events.failed[load.rows].sum())
    rows: list[tuple[str, bool, object, object] | NotApplied] = [
        ("model", bool(benchmark), model.name, ", ".join(table.models)),
        ("pattern", pattern.type in patterns, pattern.type, " or ".join(patterns)),
        *_seeds(case, load.config),
        ("warm-up", warm_up.salt or not warm_up.enabled, warm_up.salt, "true, or no warm-up"),
        ("failures", not failed, failed, 0),
    ]
    if pattern.type == "concurrency":
        low = (pattern.target_concurrency or 0) <= table.points["ultra_low"]
        duration_s, least_s = (
            (load.end_ns - load.start_ns) / 1e9,
            table.limits["min_duration_s"]["ultra_low" if low else "above"],
        )
        p90 = None if case.run.summary is None else case.run.summary.tpot.percentiles.get("90.0")
        rows += [
            ("streaming", load.config.streaming is True, model.streaming, "on"),
            ("duration", duration_s >= least_s, f"{duration_s:.1f} s", f"at least {least_s} s"),
            ("tpot", bool(p90 and p90 > 0), "none" if p90 is None else f"{p90 / 1e6:.3f} ms", "above 0 ms"),
        ]
    else:
        yield NotApplied("the published rules state no duration for the Offline point", what="duration")
    if size is None:
        yield NotApplied("the size of the dataset is unknown", what="number of samples")
    else:
        rows.append(("samples", sent % size == 0, sent, f"a multiple of the dataset's {size} rows"))
    if "dataset" in rules:
        names = [str(dataset.get("name")) for dataset in case.run.datasets()]
        right = rules["dataset"] in names and size == rules["rows"]
        wanted = f"{rules['dataset']}, {rules['rows']} rows"
        rows.append(("dataset", right, f"{', '.join(names)}, {size} rows", wanted))
    else:
        yield NotApplied("the published rules state no dataset for this model", what="dataset")
    if "sampling" in rules:
        params = case.run.raw_config.get("model_params")
        sampling = {key: params.get(key) for key in rules["sampling"]} if isinstance(params, dict) else {}
        rows.append(("sampling", sampling == rules["sampling"], sampling, rules["sampling"]))
    else:
        yield NotApplied(
            "the published rules state no sampling parameters for this model", what="sampling and output limits"
        )
    yield NotApplied("the client does not record it", what="power")
    for row in rows:
        if isinstance(row, NotApplied):
            yield row
            continue
        rule, right, value, required = row
        yield compared(
            f"endpoints-rule-{rule}", right, str(value), str(required), case.run.path(CONFIG), load.events.path
        )


@decides(
    "official",
    ("endpoints-rule-accuracy", "error", f"{_ENDPOINTS} §4.3", "accuracy",
     "correct the model or its sampling parameters, and run again with an accuracy dataset"),
    ("endpoints-rule-accuracy-there", "note", f"{_ENDPOINTS} §4.3", "accuracy results of the point",
     "add the benchmark's dataset to config.yaml with type accuracy"),
)  # fmt: skip
def accuracy(case: EndpointsEvidence) -> Iterator[Finding | NotApplied]:
    """Check the scores in accuracy_results.json against the targets of the benchmark."""
    (entries, fault), path = accuracy_results(case.run), case.run.path(ACCURACY)
    if fault:
        text, wanted = f"form of {ACCURACY}", "an entry with dataset_name and score for each dataset"
        yield compared("endpoints-rule-accuracy", False, fault, wanted, path, text=text)
        return
    if not entries:
        text = f"{ACCURACY} is missing; four points and the Offline point of a curve need it"
        yield stated("endpoints-rule-accuracy-there", text, path)
        return
    _, rules = model_rules(case)
    if "targets" not in rules:
        yield NotApplied("the published rules state no target for this model", what="accuracy")
        return
    for name, entry in entries.items():
        count, least = entry.get("num_samples", entry.get("unit_samples")), rules["accuracy_samples"]
        enough = isinstance(count, int) and count >= least
        text = f"{name}: scored samples"
        yield compared("endpoints-rule-accuracy", enough, f"{count}", f"at least {least}", path, text=text)
        if "complete" in entry:
            text, complete = f"{name}: complete", entry["complete"]
            yield compared("endpoints-rule-accuracy", complete is True, f"{complete}", "True", path, text=text)
        scores = scores_of(entry)
        for score, (low, high) in rules["targets"].items():
            score_value = scores.get(score, scores.get("score") if len(rules["targets"]) == 1 else None)
            right = score_value is not None and low <= score_value <= (math.inf if high is None else high)
            limit = f"at least {low:g}" + ("" if high is None else f", at most {high:g}")
            value = "missing" if score_value is None else f"{score_value:g}"
            yield compared("endpoints-rule-accuracy", right, value, limit, path, text=f"{name}: {score}")


def accuracy_results(run: EndpointsRun) -> AccuracyResults:
    """Return the accuracy results of a run."""
    return read_accuracy(run.path(ACCURACY), run.root)


def scores_of(entry: dict[str, Any]) -> dict[str, float]:
    """Return the scores of an accuracy result by name; a score without a name is called `score`."""
    score = entry.get("score")
    named = score if isinstance(score, dict) else {"score": score}
    texts = {str(name): str(value) for name, value in named.items()}
    return {name: float(text) for name, text in texts.items() if re.fullmatch(r"\d{1,15}(\.\d{1,20})?", text)}


@decides(
    "contradiction",
    ("endpoints-accuracy", "error", _ENDPOINTS, "score, compared with the score of the responses", _FIX),
)  # fmt: skip
def rescored(case: EndpointsEvidence) -> Iterator[Finding | NotApplied]:
    """Score the logged responses with ROUGE as the client does, and compare the scores.

    Raises:
        InputError: If the dataset lacks rows of the run.
    """
    run, events, dataset_path = case.run, case.run.events, case.dataset_path
    for dataset in run.datasets():
        how = dataset.get("accuracy_config")
        if not isinstance(how, dict) or how.get("eval_method") != "rouge" or events is None:
            continue
        name, column = str(dataset.get("name")), str(how.get("ground_truth") or "ground_truth")
        indices = (run.indices or {}).get(name, {})
        place = {events.rows[uuid]: index for uuid, index in indices.items() if uuid in events.rows}
        if not place:
            continue
        if dataset_path is None:
            yield NotApplied("give --dataset-path to rescore the responses", what="scores")
            continue
        rows = parse_rows(read_dataset_bytes(dataset_path), dataset_path, (column,))
        if max(place.values()) >= len(rows):
            text = f"--dataset-path {dataset_path}: {len(rows)} rows, but the run used row {max(place.values())}"
            raise InputError(text, "give the dataset of the run")
        pairs = [
            (response.text, str(rows[place[row]].get(column))) for row, response in events.responses() if row in place
        ]
        scores = score_texts([text for text, _ in pairs], [reference for _, reference in pairs])
        for score, reported in scores_of(accuracy_results(run).entries.get(name, {})).items():
            if score in scores:
                right = round(reported, ROUGE_DECIMALS) == round(scores[score], ROUGE_DECIMALS)
                text, path = f"{name}: {score} of {len(pairs)} responses", run.path(ACCURACY)
                yield compared("endpoints-accuracy", right, f"{reported:g}", f"{scores[score]:g}", path, text=text)


@decides(
    "contradiction",
    ("endpoints-accuracy-form", "warning", OURS, "form of accuracy_results.json", _FIX),
    ("endpoints-accuracy-files", "warning", OURS, "datasets missing in config.yaml or in the accuracy results", _FIX),
    ("endpoints-accuracy-counts", "warning", OURS, "samples in accuracy_results.json", _FIX),
    ("endpoints-accuracy-report", "warning", OURS, "accuracy lines of report.txt", _FIX),
    needs=("events", "complete"),
)
def accuracy_files(case: EndpointsEvidence) -> Iterator[Finding]:
    """Compare accuracy_results.json with the phases of the run and with report.txt."""
    run, (entries, fault), path = case.run, accuracy_results(case.run), case.run.path(ACCURACY)
    if run.has(ACCURACY):
        yield compared("endpoints-accuracy-form", not fault, fault or "known", "a form of the client", path)
    if fault:
        return
    configured = {str(dataset.get("name")) for dataset in run.datasets() if dataset.get("type") == "accuracy"}
    phases = {name: len(samples) for name, samples in (run.indices or {}).items()}
    differ = ((phases.keys() & configured) - entries.keys()) | (entries.keys() - configured)
    names = shortened_list(sorted(differ), 3) or "none"
    yield compared("endpoints-accuracy-files", not differ, names, "none", path, run.path(CONFIG))
    for name, entry in entries.items():
        counts = entry.get("response_counts")
        reported = {
            "total": entry.get("total_samples"),
            "issued": counts.get("issued") if isinstance(counts, dict) else None,
        }
        for what, value in reported.items():
            if name in phases and value is not None:
                text = f"{printable(name, 40)}: {what} samples"
                right, files = value == phases[name], (path, run.path(SAMPLES))
                yield compared("endpoints-accuracy-counts", right, f"{value}", f"{phases[name]}", *files, text=text)
        score = entry.get("score")
        shown = "N/A" if score is None else f"{score:.4g}" if isinstance(score, int | float) else f"{score}"
        numbers = ", ".join(f"{key}={entry.get(field)}" for key, field in _IN_REPORT.items())
        if run.report is not None and "\nAccuracy:\n" in run.report:
            line = f"  {name}: {shown} ({numbers}"
            names = "present" if line in run.report else "missing"
            text, files = f"line {printable(line.strip(), 100)!r}", (run.path(REPORT), path)
            yield compared("endpoints-accuracy-report", names == "present", names, "present", *files, text=text)
