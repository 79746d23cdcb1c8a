"""The files of a bench's runs: a dataset whose rows LoadGen issues once each, and a user.conf."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from qsl.dataset_file import MAX_BYTES
from runs.bench.bench_record import RUNS, WARM_UP, numbered
from runs.benchmark import LOADGEN_SCENARIO, Scenario
from runs.errors import ExecutionError, InputError, SetupError
from runs.files.writing import write_atomic
from runs.wording import NO_LIMIT_MS
from scenarios.bench.bench_plan import Bench, benchmark_of
from scenarios.bench.ladder import PlannedBenchRun
from scenarios.launch.run_config import RunConfig, make_config

ROWS_OF_ESTIMATE = 16


def scenario_of(bench: Bench, spec: PlannedBenchRun) -> Scenario:
    """Return the LoadGen scenario of a run; a fixed number of open queries is a form of Offline."""
    return bench.options.scenario if spec.kind == "server" else "Offline"


def run_name(spec: PlannedBenchRun) -> str:
    """Return the name of a run's directory and files."""
    load = spec.asked_qps if spec.asked_qps is not None else spec.concurrency
    kind = "warm-up" if spec.number == WARM_UP else spec.kind
    return f"{numbered(spec.number)}{kind}" + ("" if load is None else f"-{load:.4g}")


def run_folder(bench: Bench, spec: PlannedBenchRun) -> Path:
    """Return the run's directory."""
    return bench.folder / RUNS / run_name(spec)


def write_run_files(bench: Bench, spec: PlannedBenchRun) -> RunConfig:
    """Write the dataset and the user.conf of a run; return its configuration.

    Raises:
        SetupError: If the dataset would be larger than a dataset may be.
    """
    scenario = scenario_of(bench, spec)
    values = {key: value for key, value in bench.values.items() if scenario != "Offline" or "admission" not in key}
    name = run_name(spec)
    data, conf = bench.folder / "data" / f"{name}.json", bench.folder / "conf" / f"{name}.conf"
    for path in (data, conf):
        path.parent.mkdir(parents=True, exist_ok=True)
    some = bench.prompts.rows(spec.first_row, min(spec.queries, ROWS_OF_ESTIMATE))
    if sum(map(len, some)) / len(some) * spec.queries > MAX_BYTES:  # before all rows fill the memory
        raise SetupError(
            f"run {spec.number}: {spec.queries:,} prompts exceed {MAX_BYTES >> 20} MiB, the limit of a dataset",
            "give a shorter --duration, shorter prompts or lower --rates",
        )
    rows = b",\n".join(bench.prompts.rows(spec.first_row, spec.queries))
    write_atomic(data, b"[" + rows + b"]\n")
    write_atomic(conf, conf_text(bench, spec))
    values |= {"scenario": scenario, "dataset_path": data, "user_conf": conf}
    values |= {"output_log_dir": run_folder(bench, spec), "label": bench.label}  # signed with the run
    if "lg_model_name" in values:
        values["lg_model_name"] = benchmark_of(values, scenario).loadgen_key
    if spec.concurrency is not None:
        values["concurrency"] = spec.concurrency
    return make_config(values)


def conf_text(bench: Bench, spec: PlannedBenchRun) -> str:
    """Return the user.conf: each row once, at the rate, and the limits if the bench has a percentile."""
    scenario = LOADGEN_SCENARIO[scenario_of(bench, spec)]
    limits = bench.limits.model_dump() if bench.limits and spec.percentile else {}
    settings: dict[str, float | int | str] = {"min_duration": 0, "min_query_count": spec.queries}
    settings |= {"performance_sample_count_override": spec.queries, "sample_concatenate_permutation": 1}
    settings["target_qps"] = 1 if spec.asked_qps is None else f"{spec.asked_qps:.10f}".rstrip("0").rstrip(".")
    if scenario == "Server":
        settings |= {f"{name}_latency": round(limits.get(name) or NO_LIMIT_MS) for name in ("ttft", "tpot")}
        # Without a percentile, use a percentile that LoadGen's early stopping accepts with so few queries.
        lowest = f"{min(50, 100 * 0.009 ** (1 / spec.queries)):.4g}"
        settings["target_latency_percentile"] = spec.percentile.removeprefix("p") if spec.percentile else lowest
    return "".join(f"*.{scenario}.{key} = {value}\n" for key, value in settings.items())


def run_fields(bench: Bench, spec: PlannedBenchRun, root: Path) -> dict[str, Any]:
    """Return the fields of a run's record that are known before its start.

    Args:
        root: Directory of the bench or the comparison.
    """
    names = ("number", "kind", "repetition", "again", "share", "asked_qps", "concurrency")
    return {name: getattr(spec, name) for name in names} | {"folder": root, "scenario": scenario_of(bench, spec)}


@contextlib.contextmanager
def run_of_started_system(config: RunConfig, *, has_started: bool) -> Iterator[None]:
    """Delete the dataset of a run after the run, because the seed recreates it.

    Raises:
        ExecutionError: If a system refuses the run, but was usable before.
    """
    try:
        yield
    except (InputError, SetupError) as error:
        if not has_started:
            raise
        raise ExecutionError(error.message, error.fix) from error
    finally:
        if config.dataset_path is not None:
            config.dataset_path.unlink(missing_ok=True)


def repeated_rows(bench: Bench, spec: PlannedBenchRun) -> str:
    """Return a warning in the first run whose prompts repeat; otherwise an empty text."""
    total = bench.prompts.total
    if not spec.first_row <= total < spec.first_row + spec.queries:
        return ""
    return f"prompts repeat from run {spec.number} on, because the source has only {total:,} prompts"
