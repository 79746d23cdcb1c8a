"""The state of a run of the MLPerf Endpoints client, from its summary, which `verify` compares with the events."""

from functools import partial
from pathlib import Path

from runs.errors import ExitCode
from runs.mlperf_endpoints.folder import Config, EndpointsRun, Series, Summary, read_folder
from runs.mlperf_endpoints.layout import is_run_folder
from scenarios.status.run_status import LATENCIES, STATISTICS, Row, RunStatus


def is_client_run(folder: Path) -> bool:
    """Return whether a directory is a run folder of the client, with more than its audit."""
    return is_run_folder(folder) and not EndpointsRun(folder).only_audit


def client_run_status(root: Path) -> RunStatus:
    """Return the state of a run.

    Raises:
        InputError: If the client is not supported, or config.yaml or result_summary.json is damaged.
    """
    run = read_folder(root)
    summary, config = run.summary, run.config
    title = f"Endpoints {config.settings.load_pattern.text}" if config is not None else "Endpoints"
    seen_ns = root.stat().st_mtime_ns
    if summary is None or not summary.complete:
        text = "no result_summary.json" if summary is None else f"client state {summary.state}, not complete"
        return RunStatus(root=root, state="failed", what=title, seen_ns=seen_ns, text=text, exit_code=ExitCode.FAILED)
    failed = f", {summary.n_samples_failed:,} failed" if summary.n_samples_failed else ""
    row = partial(_row, title, summary, config)
    return RunStatus(root=root, state="finished", what=title, seen_ns=seen_ns, text=f"complete{failed}", row=row)


def _row(title: str, summary: Summary, config: Config | None) -> Row:
    """Return the facts and numbers that the client reports."""
    from runs.numbers.numbers import measured_row

    pattern = config.settings.load_pattern if config is not None else None
    parts: dict[str, Series] = {name: getattr(summary, name) for name in LATENCIES}
    mean, *shares = STATISTICS
    times_ns = {
        name: {mean: part.avg, **{share: part.percentiles.get(f"{share.removeprefix('p')}.0") for share in shares}}
        for name, part in parts.items()
    }
    return {
        "scenario": title,
        "mode": "performance",
        "official": False,
        "engine": "endpoint",
        "model": Path(config.model_params.name).name if config is not None else None,
        "target_qps": pattern.target_qps if pattern is not None else None,
        "samples": summary.n_samples_completed,
        **measured_row(summary.qps, summary.tps, times_ns),
    }
