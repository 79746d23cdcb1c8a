"""What a round of MLPerf Endpoints asks of one point of a curve, which is one run folder.

The numbers stand in configs/rounds/endpoints/, each with its source. What the published rules leave open for a model is
not judged, and so is what a point does not show by itself (which points a curve has, steady state, power).
"""

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import orjson

from compliance.accuracy.scores import score_texts
from compliance.endpoints.endpoints_evidence import EndpointsEvidence
from compliance.judge.check import decides
from compliance.judge.finding import Finding, compared, note
from compliance.judge.rule import OURS, RERUN
from qsl.dataset_file import parse_rows, read_bytes
from runs.endpoints.folder import PERFORMANCE, EndpointsRun
from runs.endpoints.layout import CONFIG, REPORT, SAMPLES
from runs.errors import InputError
from runs.reading import read_object
from runs.rounds import TABLES
from runs.wording import printable, shortened_list

NEWEST = "v1.0"
ACCURACY = "accuracy/accuracy_results.json"
ROUGE_DECIMALS = 4  # of the client, whose procedure is that of the reference
_IN_REPORT = {"unit": "unit_samples", "repeats": "num_repeats", "total": "total_samples"}
_ENDPOINTS = "[endpoints]"
_FIX = "take the unchanged file of the client's run folder"


@cache
def round_rules(name: str = NEWEST) -> dict[str, Any]:
    """The table of a round.

    Raises:
        InputError: there is none of that name.
    """
    known = sorted(path.stem for path in (TABLES / "endpoints").glob("v*.json"))
    if name not in known:
        raise InputError(f"{name!r} is no round of MLPerf Endpoints", f"give one of {', '.join(known)}")
    table: dict[str, Any] = orjson.loads((TABLES / "endpoints" / f"{name}.json").read_bytes())
    return table


def model_rules(case: EndpointsEvidence) -> tuple[str, dict[str, Any]]:
    """The benchmark's name and what is asked of it, by the last part of the model's name; nothing of other models."""
    config = case.run.config
    name = "" if config is None else config.model_params.name.rstrip("/").rpartition("/")[2].lower()
    models = round_rules()["models"]
    return next(((benchmark, rules) for benchmark, rules in models.items() if name in rules["names"]), ("", {}))


@decides(
    "official",
    ("endpoints-rule-model", "error", f"{_ENDPOINTS} §3.2", "the model is the round's", "run a model of the round"),
    ("endpoints-rule-pattern", "error", f"{_ENDPOINTS} §6.1", "a point has a fixed concurrency, or all samples at once",
     "set load_pattern to concurrency; a curve has one Offline point"),
    ("endpoints-rule-dataset", "error", f"{_ENDPOINTS} §2.9.1", "the dataset is the benchmark's", "use that one"),
    ("endpoints-rule-sampling", "error", f"{_ENDPOINTS} §2.9.1", "sampling is the benchmark's", "set model_params so"),
    ("endpoints-rule-seeds", "error", f"{_ENDPOINTS} §4.6", "the seeds are those of a published set",
     "set both seeds to those of one set"),
    ("endpoints-rule-streaming", "error", f"{_ENDPOINTS} §4.1", "a point with a concurrency streams",
     "set model_params.streaming to on"),
    ("endpoints-rule-warm-up", "error", f"{_ENDPOINTS} §6.3.1", "warm-up takes no sample of the performance data",
     "set warmup.salt: the client warms up with the performance data"),
    ("endpoints-rule-failures", "error", f"{_ENDPOINTS} §9.1", "no sample failed", RERUN),
    ("endpoints-rule-samples", "error", f"{_ENDPOINTS} §6.4", "samples are whole passes over the dataset",
     "set n_samples_to_issue to a multiple of its rows"),
    ("endpoints-rule-duration", "warning", f"{_ENDPOINTS} §6.2", "a point lasts as long as its concurrency asks for",
     "issue more passes"),
    ("endpoints-rule-tpot", "error", f"{_ENDPOINTS} §9.1", "the P90 of TPOT is above 0", "stream, with a tokenizer"),
    needs=("load",),
)  # fmt: skip
def point(case: EndpointsEvidence) -> Iterator[Finding]:
    """What config.yaml asks for, and what was measured."""
    load, table = case.load, round_rules()
    assert load is not None  # see `needs`
    model, settings, (benchmark, rules) = load.config.model_params, load.config.settings, model_rules(case)
    pattern, warm_up, size, sent = settings.load_pattern, settings.warmup, load.size[0], len(load.rows)
    patterns = ("agentic_inference",) if rules.get("agentic") else ("concurrency", "max_throughput")
    seeds = {key: getattr(settings.runtime, key) for key in ("scheduler_random_seed", "dataloader_random_seed")}
    failed = int(load.events.failed[load.rows].sum())
    rows: list[tuple[str, bool, object, object]] = [
        ("model", bool(benchmark), model.name, ", ".join(table["models"])),
        ("pattern", pattern.type in patterns, pattern.type, " or ".join(patterns)),
        ("seeds", seeds in table["seed_sets"].values(), seeds, " or ".join(f"set {one}" for one in table["seed_sets"])),
        ("warm-up", warm_up.salt or not warm_up.enabled, f"salt {warm_up.salt}", "a salt, or no warm-up"),
        ("failures", not failed, failed, 0),
    ]
    if pattern.type == "concurrency":
        low = (pattern.target_concurrency or 0) <= table["points"]["ultra_low"]
        duration_s, least_s = (
            (load.end_ns - load.start_ns) / 1e9,
            table["min_duration_s"]["ultra_low" if low else "above"],
        )
        p90 = None if case.run.summary is None else case.run.summary.tpot.percentiles.get("90.0")
        rows += [
            ("streaming", load.config.streaming is True, model.streaming, "on"),
            ("duration", duration_s >= least_s, f"{duration_s:.1f} s", f"{least_s} s"),
            ("tpot", bool(p90 and p90 > 0), "none" if p90 is None else f"{p90 / 1e6:.3f} ms", "above 0"),
        ]
    else:
        case.leave("duration", "the published rules name none for the Offline point")
    if size is None:
        case.leave("number of samples", "the dataset's size is not known")
    else:
        rows.append(("samples", sent % size == 0, f"{sent} of {size} rows", f"a multiple of {size}"))
    if "dataset" in rules:
        names = [str(one.get("name")) for one in case.run.datasets()]
        right = rules["dataset"] in names and size == rules["rows"]
        wanted = f"{rules['dataset']}, {rules['rows']} rows"
        rows.append(("dataset", right, f"{', '.join(names)}, {size} rows", wanted))
    else:
        case.leave("dataset", "the published rules name none for this model")
    if "sampling" in rules:
        given = case.run.raw_config.get("model_params")
        sampling = {key: given.get(key) for key in rules["sampling"]} if isinstance(given, dict) else {}
        rows.append(("sampling", sampling == rules["sampling"], sampling, rules["sampling"]))
    else:
        case.leave("sampling and output limits", "the published rules name none for this model")
    case.leave("steady state and power", "the client writes neither")
    for rule, right, found, required in rows:
        yield compared(
            f"endpoints-rule-{rule}", "", right, str(found), str(required), case.run.path(CONFIG), load.events.path
        )


@decides(
    "official",
    ("endpoints-rule-accuracy", "error", f"{_ENDPOINTS} §4.3", "the accuracy meets the benchmark's targets",
     "correct the model or its sampling; run again with an accuracy dataset"),
    ("endpoints-rule-accuracy-there", "note", f"{_ENDPOINTS} §4.3", "four points and the Offline one have one",
     "add the benchmark's dataset with type accuracy"),
)  # fmt: skip
def accuracy(case: EndpointsEvidence) -> Iterator[Finding]:
    """What accuracy_results.json claims."""
    entries, path = accuracy_entries(case.run), case.run.path(ACCURACY)
    if not entries:
        yield note("endpoints-rule-accuracy-there", f"there is no {ACCURACY}", path)
        return
    _, rules = model_rules(case)
    if "targets" not in rules:
        case.leave("accuracy", "the published rules name no target for this model")
        return
    for name, entry in entries.items():
        count, least = entry.get("num_samples", entry.get("unit_samples")), rules["accuracy_samples"]
        enough = isinstance(count, int) and count >= least
        yield compared("endpoints-rule-accuracy", f"{name}: samples scored", enough, f"{count}", f"{least}", path)
        scores = scores_of(entry)
        for score, (low, high) in rules["targets"].items():
            found = scores.get(score, scores.get("score") if len(rules["targets"]) == 1 else None)
            if found is None:
                case.leave("accuracy", f"{name} has no {score}")
                continue
            right = found >= low and (high is None or found <= high)
            limit = f"at least {low:g}" + ("" if high is None else f", at most {high:g}")
            yield compared("endpoints-rule-accuracy", f"{name}: {score}", right, f"{found:g}", limit, path)


def accuracy_entries(run: EndpointsRun) -> dict[str, dict[str, Any]]:
    """The scores of each dataset, by its name; without those of the measured phase."""
    if not run.has(ACCURACY):
        return {}
    content = read_object(run.path(ACCURACY), _FIX, within=run.root).get("accuracy_scores")
    entries = content if isinstance(content, list) else []
    found = [one for one in entries if isinstance(one, dict) and isinstance(one.get("dataset_name"), str)]
    return {one["dataset_name"]: one for one in found if one.get("dataset_type") != PERFORMANCE}


def scores_of(entry: dict[str, Any]) -> dict[str, float]:
    """The numbers of an entry; one without a name is `score`."""
    score = entry.get("score")
    named = score if isinstance(score, dict) else {"score": score}
    texts = {str(name): str(value) for name, value in named.items()}
    return {name: float(text) for name, text in texts.items() if re.fullmatch(r"\d{1,15}(\.\d{1,20})?", text)}


@decides(
    "contradiction",
    ("endpoints-accuracy", "error", _ENDPOINTS, "the scores follow from the responses", _FIX),
)  # fmt: skip
def rescored(case: EndpointsEvidence) -> Iterator[Finding]:
    """ROUGE of the logged responses against the dataset's references, as the client's own scorer computes it.

    Raises:
        InputError: the dataset has no such rows.
    """
    run, events, dataset_path = case.run, case.run.events, case.dataset_path
    for one in run.datasets():
        how = one.get("accuracy_config")
        if not isinstance(how, dict) or how.get("eval_method") != "rouge" or events is None:
            continue
        name, column = str(one.get("name")), str(how.get("ground_truth") or "ground_truth")
        indices = (run.indices or {}).get(name, {})
        place = {events.rows[uuid]: index for uuid, index in indices.items() if uuid in events.rows}
        if not place:
            continue
        if dataset_path is None:
            case.leave("scores", "give --dataset-path to score the responses again")
            continue
        rows = parse_rows(read_bytes(dataset_path), dataset_path, (column,))
        if max(place.values()) >= len(rows):
            text = f"{dataset_path} has {len(rows)} rows, and the run asked for row {max(place.values())}"
            raise InputError(text, "give the dataset of the run")
        pairs = [
            (response.text, str(rows[place[row]].get(column))) for row, response in events.responses() if row in place
        ]
        scores = score_texts([text for text, _ in pairs], [reference for _, reference in pairs])
        for score, reported in scores_of(accuracy_entries(run).get(name, {})).items():
            if score in scores:
                right = round(reported, ROUGE_DECIMALS) == round(scores[score], ROUGE_DECIMALS)
                text, path = f"{name}: {score} of {len(pairs)} responses", run.path(ACCURACY)
                yield compared("endpoints-accuracy", text, right, f"{reported:g}", f"{scores[score]:g}", path)


@decides(
    "contradiction",
    (
        "endpoints-accuracy-files",
        "warning",
        OURS,
        "datasets of config.yaml and accuracy_results.json that differ",
        _FIX,
    ),
    ("endpoints-accuracy-counts", "warning", OURS, "samples in accuracy_results.json", _FIX),
    ("endpoints-accuracy-report", "warning", OURS, "lines of report.txt on accuracy", _FIX),
    needs=("events", "complete"),
)
def accuracy_files(case: EndpointsEvidence) -> Iterator[Finding]:
    """Compare accuracy_results.json with the phases of the run and with report.txt."""
    run, entries, path = case.run, accuracy_entries(case.run), case.run.path(ACCURACY)
    configured = {str(one.get("name")) for one in run.datasets() if one.get("type") == "accuracy"}
    phases = {name: len(samples) for name, samples in (run.indices or {}).items()}
    differ = ((phases.keys() & configured) - entries.keys()) | (entries.keys() - configured)
    found = shortened_list(sorted(differ), 3) or "none"
    yield compared("endpoints-accuracy-files", "", not differ, found, "none", path, run.path(CONFIG))
    for name, entry in entries.items():
        counts = entry.get("response_counts")
        reported = {
            "total": entry.get("total_samples"),
            "issued": counts.get("issued") if isinstance(counts, dict) else None,
        }
        for what, value in reported.items():
            if name in phases and value is not None:
                text = f"{printable(name, 40)}: samples, {what}"
                right, files = value == phases[name], (path, run.path(SAMPLES))
                yield compared("endpoints-accuracy-counts", text, right, f"{value}", f"{phases[name]}", *files)
        score = entry.get("score")
        shown = "N/A" if score is None else f"{score:.4g}" if isinstance(score, int | float) else f"{score}"
        numbers = ", ".join(f"{key}={entry.get(of)}" for key, of in _IN_REPORT.items())
        if run.report is not None and "\nAccuracy:\n" in run.report:
            line = f"  {name}: {shown} ({numbers}"
            found = "reported" if line in run.report else "not reported"
            text, files = printable(line.strip(), 100), (run.path(REPORT), path)
            yield compared("endpoints-accuracy-report", text, found == "reported", found, "reported", *files)
