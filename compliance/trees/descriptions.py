"""Rules on files by submitters: system descriptions, measurements, README.md, model_mapping.json and source code."""

import json
import re
from collections.abc import Iterator
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any, TypeGuard

from compliance.judge.rule import OURS, Rank, decides
from compliance.judge.verdict import Finding, compared
from compliance.trees.findings import (
    SHOWN,
    is_folder,
    is_regular,
    object_or_empty,
    read_tree_bytes,
    read_tree_object,
)
from compliance.trees.layout import Contents
from compliance.trees.system_fields import FIELDS as SYSTEM_FIELDS
from compliance.trees.system_fields import (
    IS_NETWORK,
    MEASUREMENT_FIELDS,
    MIN_COUNTS,
    NETWORK_FIELDS,
    STATUSES,
    count_problem,
)
from compliance.trees.system_names import check_system_names
from compliance.trees.tree import DIVISIONS, Place, Tree, subfolders
from runs.rounds import Round, RoundBenchmark

# [checker] constants.py, VALID_SYSTEM_TYPES
SYSTEM_TYPES = ("datacenter", "edge", "datacenter,edge", "edge,datacenter")
_COUNT = re.compile(r"^number_|_count$|_per_node$")  # fields with these names may be JSON numbers
# Model names with these parts need no mapping in the open division. [submission_checker_old.py, get_mlperf_model]
_RESNET_ALIKE = ("mobilenet", "efficientnet", "resnet50")
_PLACEHOLDER = re.compile(
    r"\b(todo|tbd|fixme|placeholder|change ?me|replace[ -]?me|lorem ipsum|your (company|organi[sz]ation|system))\b"
    r"|<[^<>]+>|\?\?\?|x{3,}",
    re.IGNORECASE,
)
_WORD = re.compile(r"\w+(?:['/]\w+)?")
# A text states "not retrained" if all its words are in these two sets. Any other word describes a retraining.
_NEGATIONS = frozenset((
    "no", "not", "none", "n/a", "na", "false", "never", "don't", "didn't", "doesn't", "isn't", "wasn't", "weren't",
))  # fmt: skip
_ADD_NOTHING = frozenset((
    "we", "it", "is", "was", "were", "do", "did", "has", "have", "been", "any", "the", "this", "of", "for", "our",
    "model", "models", "weight", "weights", "applicable", "applied", "done", "performed", "used", "retrain",
    "retrained", "retraining", "train", "trained", "training",
))  # fmt: skip
_SIZE = re.compile(r"(?i)(?<![\w.])\d+(?:\.\d+)?(?=b\b)")
ALIKE = 0.6  # minimum similarity of two names of one model; names differ in spelling, host and quantization
_FEWER_WEIGHTS = re.compile(
    r"(?<!no )(?<!not )(?<!non-)\b((prun|spars|distil|low[- ]rank)\w*|layers? (removed|dropped|skipped))", re.IGNORECASE
)
FILLED = "at least one file with content"
_SPECULATION = re.compile(
    r"(?<!no )(?<!not )(?<!without )\b(speculative[ _-]?(decoding|sampling|num|config|model)|eagle-?3|medusa heads?)\b",
    re.IGNORECASE,
)
_NO_MODEL = re.compile(r"\bdummy\b", re.IGNORECASE)  # name of the engine without a model, which rehearsals use


@decides(
    "tree",
    ("tree-no-results", "error", "[checker] loader.Loader.load", "results of the submitter", "add results/"),
    ("system-unused", "warning", "tools/submission/submission_checker_old.py:2833", "results of a described system",
     "remove the description, or add results of the system"),
)  # fmt: skip
def check_systems(tree: Tree, contents: Contents) -> Iterator[Finding]:
    """Check each system description, and that its system has results with all required scenarios."""
    for division, organization in tree.organizations():
        results = tree.results(division, organization)
        systems = subfolders(results)
        if not systems:
            yield compared("tree-no-results", False, "none", "at least 1 system", results)
        for system in systems:
            yield from _check_system(tree, division, organization, system)
    for path in contents.files:
        match path.relative_to(tree.root).parts:
            case (division, organization, "systems", _) if division in DIVISIONS and path.suffix == ".json":
                if not is_folder(tree.results(division, organization) / path.stem):
                    yield compared("system-unused", False, "none", "at least 1", path)


@decides(
    "tree",
    ("system-missing", "error", "[checker] system_check.missing_check", "system description",
     "write systems/<system>.json"),
    ("system-json", "error", "[checker] loader.Loader.load", "format of the system description", "write valid JSON"),
    also=("scenario-set", "suite-benchmark"),
)  # fmt: skip
def _check_system(tree: Tree, division: str, organization: str, results: Path) -> Iterator[Finding]:
    """Check one system description, and the sets of scenarios of the system."""
    path = tree.system(division, organization, results.name)
    value = yield from read_tree_object(path, "system-missing", "system-json")
    if value is not None:
        yield from _check_fields(path, value)
        yield from _check_identity(path, value, division, organization)
        yield from check_system_names(path, value)
    system_type = (value or {}).get("system_type")
    for folder in subfolders(results) if division != "open" else ():
        entry = tree.round.table.entry(folder.name)
        if entry is not None:
            yield from _check_set(folder, entry, system_type if system_type in SYSTEM_TYPES else None)


def _check_set(folder: Path, entry: RoundBenchmark, system_type: str | None) -> Iterator[Finding]:
    """Check that a closed benchmark has all scenarios that the type of the system or of the benchmark requires."""
    kind = ",".join(sorted(system_type.split(","))) if system_type else next(iter(entry.required))
    if kind not in entry.required:
        yield compared("suite-benchmark", False, f"system_type {system_type}", " or ".join(entry.required), folder)
        return
    names = {scenario.name.lower() for scenario in subfolders(folder)}
    existing = [scenario for scenario in entry.scenarios if scenario.lower() in names]
    all_of, one_of = entry.set_of(kind)
    if missing := entry.missing(existing, kind):
        required = ", ".join(all_of) + (f" and {' or '.join(one_of)}" if one_of else "")
        yield compared("scenario-set", False, f"{', '.join(missing)} missing", required, folder)
    if extra := sorted(set(existing) - {*all_of, *entry.optional.get(kind, ())}):
        value = f"{', '.join(extra)} (system_type {kind})"
        yield compared("suite-benchmark", False, value, ", ".join((*all_of, *entry.optional.get(kind, ()))), folder)


def _is_network(value: dict[str, Any]) -> bool:
    """Return True if a system description declares a network SUT."""
    return str(value.get("is_network")).lower() == "true"


def says_network(tree: Tree, place: Place) -> bool:
    """Return True if the system description states that LoadGen reached the system over a network."""
    return _is_network(object_or_empty(tree.system(place.division, place.organization, place.system)))


@decides(
    "tree",
    ("system-field", "error", "[checker] system_check.required_fields_check", "field of the system description",
     'fill in every field as a string; write "N/A" for a field that does not apply'),
    ("system-number", "error", "[checker] system_check.required_fields_check", "count in the system description",
     'write a whole number, for example "1"'),
)  # fmt: skip
def _check_fields(path: Path, value: dict[str, Any]) -> Iterator[Finding]:
    for field in (*SYSTEM_FIELDS, *(NETWORK_FIELDS if value.get("is_network") else ())):
        if field.name not in value:
            yield compared("system-field", False, f"{field.name} is missing", f"{field.name}: {field.meaning}", path)
        elif wanted := field.name in MIN_COUNTS and count_problem(field.name, value[field.name]):
            value_text = f"{field.name} is {value[field.name]!r}"
            yield compared("system-number", False, value_text, wanted, path, decided_by=[field.name])
        elif _is_empty(value[field.name]) and not field.may_be_empty:
            text = f"{field.name} is empty ({value[field.name]!r})"
            yield compared("system-field", False, text, f"{field.name}: {field.meaning}", path, decided_by=[field.name])
        else:
            yield from _check_type(path, field.name, value[field.name], "system-field")
    yield from _check_words(path, value)


def _check_type(path: Path, name: str, value: Any, rule_id: str) -> Iterator[Finding]:
    """Check that a value is a string or a count. An object of strings causes only a warning, because it is common."""
    if value is None or isinstance(value, str) or (type(value) is int and _COUNT.search(name)) or name == IS_NETWORK:
        return
    parts = isinstance(value, dict) and all(isinstance(part, str) for part in value.values())
    shown = f"{name} is {json.dumps(value)[:SHOWN]}"
    yield compared(rule_id, False, shown, "a string", path, severity="warning" if parts else None, decided_by=[name])


def _is_empty(value: Any) -> bool:
    """Return True if a value is empty for the official checker, or contains no visible character."""
    return not ("".join(filter(str.isprintable, value)).strip() if isinstance(value, str) else value)


@decides(
    "tree",
    ("system-status", "error", "[checker] system_check.availability_check", "status of the system",
     "set status to available, preview or rdi"),
    ("system-type", "error", "[checker] system_check.system_type_check", "type of the system",
     "set system_type to datacenter, edge or datacenter,edge"),
    ("system-submitter", "error", "[checker] system_check.submitter_check", "submitter in the system description",
     "set submitter to the name of the directory"),
    ("system-division", "error", "[checker] system_check.division_check", "division in the system description",
     "set division to the name of the directory"),
    ("system-network", "error", "[checker] system_check.network_check", "is_network in the system description",
     'set is_network to "true" in the network division, and remove it in the closed division'),
)  # fmt: skip
def _check_identity(path: Path, value: dict[str, Any], division: str, organization: str) -> Iterator[Finding]:
    def same(name: str, wanted: str) -> bool:
        return str(value.get(name, "")).lower() == wanted.lower()

    kind, of_network = value.get("system_type"), division == "network"
    is_text = isinstance(value.get("is_network", ""), str)  # The official checker crashes on other types.
    fits = not is_text or division == "open" or _is_network(value) == of_network
    in_division = " in the network division" if of_network else ""
    for rule, name, right, wanted in (
        ("system-status", "status", str(value.get("status")).lower() in STATUSES, ", ".join(STATUSES)),
        ("system-type", "system_type", kind in SYSTEM_TYPES, " | ".join(SYSTEM_TYPES)),
        ("system-submitter", "submitter", same("submitter", organization), organization),
        ("system-division", "division", same("division", division), division),
        ("system-network", "is_network", is_text, 'the string "true", or no is_network'),
        ("system-network", "is_network", fits, '"true"' if of_network else f"no is_network in {division}"),
    ):
        if not right:
            yield compared(rule, False, f"{name} is {value.get(name)!r}", wanted, path, decided_by=[name])
    if of_network and kind != "datacenter":
        shown = f"system_type is {kind!r}{in_division}"
        yield compared("system-type", False, shown, "datacenter", path, decided_by=["system_type"])


@decides("tree", ("system-placeholder", "error", OURS, "placeholder in a description", "replace the placeholder"))
def _check_words(path: Path, value: dict[str, Any]) -> Iterator[Finding]:
    parts = [
        (name, text)
        for name, content in value.items()
        for text in (content.values() if isinstance(content, dict) else [content])
    ]
    for name, text in parts:
        if not isinstance(text, str):
            continue
        if match := _PLACEHOLDER.search(text):
            quoted = f"{match[0]!r} in {name}: {text!r}"
            yield compared("system-placeholder", False, quoted, "none", path, decided_by=[name])
        if match := _NO_MODEL.search(text):
            quoted = f"{name} names the engine {match[0]}, which runs no model: {text!r}"
            yield compared("rehearsal", False, quoted, "an engine that runs the model", path, decided_by=[name])


@decides(
    "tree",
    ("measurements-missing", "error", "[checker] measurements_checks.missing_check", "measurements file",
     "write the measurements file"),
    ("measurements-field", "error", "[checker] measurements_checks.required_fields_check",
     "field of the measurements file", "fill in every field as a string"),
    ("scenario-file", "error", "[checker] measurements_checks.required_files_check",
     "user.conf and README.md of the scenario", "add the file"),
)  # fmt: skip
def check_measurements(tree: Tree, place: Place) -> Iterator[Finding]:
    """Check measurements.json, user.conf and README.md of a scenario."""
    path = tree.measurements(place)
    value = yield from read_tree_object(path, "measurements-missing", "measurements-field")
    for name in MEASUREMENT_FIELDS if value is not None else ():
        field_value = value.get(name) if value else None
        if not field_value:
            state = f"{name} is {'missing' if field_value is None else 'empty'}"
            yield compared("measurements-field", False, state, "a value", path, decided_by=[name])
        else:
            yield from _check_type(path, name, field_value, "measurements-field")
    yield from _check_words(path, value or {})
    if place.division != "open":
        yield from _check_closed_model(path, value or {})
        yield from _check_speculation(tree, place, path, json.dumps(value))
    for path in (tree.user_conf(place), tree.readme(place)):
        content = yield from read_tree_bytes(path, "scenario-file")
        if content is not None and not content.strip():
            yield compared("scenario-file", False, f"{path.name} is empty", "a file with content", path)
        elif content is not None and place.division != "open":
            yield from _check_speculation(tree, place, path, content.decode(errors="replace"))


@decides(
    "tree",
    ("measurements-retraining", "error", "[rules] closed division: no retraining", "retraining of a closed model",
     "submit the result in the open division"),
    ("measurements-fewer-weights", "error", "[rules] closed division: no pruning, no sparsifying",
     "weights removed from a closed model", "submit the result in the open division"),
    rank=Rank.LIMITS,
)  # fmt: skip
def _check_closed_model(path: Path, value: dict[str, Any]) -> Iterator[Finding]:
    """Check that the described changes of a model are allowed in the closed division."""
    retraining, changes = (str(value.get(name) or "") for name in ("retraining", "weight_transformations"))
    words = set(_WORD.findall(retraining.lower().replace("’", "'")))
    if retraining and not (words & _NEGATIONS and words <= _NEGATIONS | _ADD_NOTHING):
        yield compared(
            "measurements-retraining", False, f"retraining is {retraining!r}", "no", path, decided_by=["retraining"]
        )
    if match := _FEWER_WEIGHTS.search(changes):
        key = "weight_transformations"
        yield compared(
            "measurements-fewer-weights", False, f"{match[0]!r} in {key}: {changes!r}", "none", path, decided_by=[key]
        )


@decides(
    "tree",
    ("measurements-speculation", "warning", "[rules] appendix Speculative Decoding",
     "speculative decoding in a scenario that has none", "submit it in the open division"),
    rank=Rank.LIMITS,
)  # fmt: skip
def _check_speculation(tree: Tree, place: Place, path: Path, text: str) -> Iterator[Finding]:
    entry, match = tree.round.table.entry(place.benchmark), _SPECULATION.search(text)
    if entry is not None and match and place.scenario.lower() not in map(str.lower, entry.speculative_decoding):
        line = text.count("\n", 0, match.start()) + 1
        allowed = f"only in {', '.join(entry.speculative_decoding) or 'no scenario'} of this benchmark"
        yield compared("measurements-speculation", False, f"it names {match[0]!r}", allowed, path, line=line)


@decides(
    "tree",
    ("measurements-model", "error", "[rules] one model in all scenarios of a benchmark",
     "model, compared with the benchmark's other scenarios", "correct the file, or repeat the runs with one model"),
)  # fmt: skip
def check_models(tree: Tree, places: list[Place]) -> Iterator[Finding]:
    """Compare the models of the scenarios of each closed benchmark; their quantization may differ."""
    first_of: dict[tuple[str, ...], tuple[Place, str]] = {}
    for place in places:
        model = object_or_empty(tree.measurements(place)).get("starting_weights_filename")
        if place.division == "open" or not isinstance(model, str):
            continue
        first, first_model = first_of.setdefault(
            (place.division, place.organization, place.system, place.benchmark), (place, model)
        )
        if model != first_model and _other_model(model, first_model):
            key = "starting_weights_filename"
            wanted = f"{first_model!r}, as in {first.scenario}"
            yield compared(
                "measurements-model", False, f"{model!r}", wanted, tree.measurements(place), decided_by=[key]
            )


def _other_model(first: str, second: str) -> bool:
    """Return True if two texts name different models: their sizes (8B) differ, or the names have little in common."""
    # The time of the comparison grows with the square of the length.
    first, second = first[:SHOWN].lower(), second[:SHOWN].lower()
    sizes = [set(_SIZE.findall(text)) for text in (first, second)]
    alike = SequenceMatcher(None, first, second, autojunk=False).ratio()
    return (all(sizes) and sizes[0] != sizes[1]) or alike < ALIKE


@decides(
    "tree",
    ("tree-source", "error", "[checker] measurements_checks.directory_exist_check", "source code", "add source code"),
    ("tree-documentation", "error", "[rules] Network Division: how the machines are connected",
     "diagram of the network", "add the diagram to documentation/"),
)  # fmt: skip
def check_sources(tree: Tree, contents: Contents) -> Iterator[Finding]:
    """Check the source code, the documentation and model_mapping.json of each submitter."""
    largest: dict[Path, int] = {}  # directory of a submitter → bytes of its largest file
    for path, status in contents.files.items():
        folder = tree.root.joinpath(*path.relative_to(tree.root).parts[:3])
        largest[folder] = max(status.st_size, largest.get(folder, 0))
    for division, organization in tree.organizations():
        source, documents = tree.source(division, organization), tree.documentation(division, organization)
        if source not in largest:
            state = "directory is empty" if source.is_dir() else "directory does not exist"
            yield compared("tree-source", False, state, FILLED, source)
        elif not largest[source]:
            yield compared("tree-source", False, "all files are empty", FILLED, source)
        if division == "network" and not largest.get(documents):
            yield compared("tree-documentation", False, "missing", FILLED, documents)
        mapping = tree.organization(division, organization) / "model_mapping.json"
        if is_regular(mapping) or mapping.is_symlink():
            yield from _check_mapping(mapping, division, tree.round)


@decides(
    "tree",
    ("model-mapping", "error", "[checker] configuration", "model_mapping.json", 'write {"your model": "llama3.1-8b"}'),
)
def _check_mapping(path: Path, division: str, in_round: Round) -> Iterator[Finding]:
    value = yield from read_tree_object(path, "model-mapping", "model-mapping")
    if value is None:
        return
    if division != "open":
        yield compared(
            "model-mapping", False, f"in the {division} division", "in the open division", path, fix="remove the file"
        )
    for name, benchmark in value.items():
        if not _may_be_mapped_to(benchmark, in_round):
            names = ", ".join(sorted(in_round.benchmarks))
            mapped = f"{name!r} is mapped to {benchmark!r}"
            yield compared("model-mapping", False, mapped, f"one of {names}", path, decided_by=[name])


def mapped_benchmark(tree: Tree, place: Place) -> str | None:
    """Return the benchmark that a directory name stands for; in the open division, model_mapping.json may name it."""
    if place.benchmark in tree.round.benchmarks:
        return tree.round.table.directories[place.benchmark]
    if place.division != "open":
        return None
    mapping = object_or_empty(tree.organization(place.division, place.organization) / "model_mapping.json")
    name = mapping.get(place.benchmark)
    if name is None and tree.round.split_tree and any(name in place.benchmark for name in _RESNET_ALIKE):
        name = "resnet"
    return name if _may_be_mapped_to(name, tree.round) else None


def _may_be_mapped_to(name: object, in_round: Round) -> TypeGuard[str]:
    return isinstance(name, str) and name in in_round.table.benchmarks
