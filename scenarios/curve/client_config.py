"""The configuration of the MLPerf Endpoints client for a point or a probe.

The client refuses unknown keys, and all releases report one version. `accepted_release` therefore asks the client which
form of its settings it accepts.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from runs.errors import SetupError
from runs.files.temporary import temporary_folder
from runs.files.writing import write_atomic
from runs.processes.child import run_program
from scenarios.curve.curve_config import ACCURACY, PERFORMANCE, CurveConfig

DRAIN_TIMEOUT_S = 86_400.0
START_TIMEOUT_S = 300.0  # for the client's processes, which start slowly on a busy host
VALIDATE_TIMEOUT_S = 300.0
# Settings by release, the newest first. [mlcommons/endpoints #514, #409, ea332753]
FORMS: Mapping[str, dict[str, Any]] = {
    "since 24 September 2026": {
        "steady_state": {"enabled": True}, "timeouts": {"service_ready_timeout_s": START_TIMEOUT_S},
    },
    "since 25 August 2026": {"timeouts": {"service_ready_timeout_s": START_TIMEOUT_S}},
    "until August 2026": {
        "runtime": {"min_duration_ms": 0}, "drain": {"performance_timeout_s": DRAIN_TIMEOUT_S},
        "service_ready_timeout_s": START_TIMEOUT_S,
    },
}  # fmt: skip


@dataclass(frozen=True)
class ClientForm:
    """The form of a configuration that the client and the servers accept."""

    release: str  # key of FORMS
    model_seed: int | None  # seed of the requests; None: the client sends none

    @classmethod
    def from_json(cls, record: Any) -> "ClientForm | None":
        """Read the form in a record; None if it is missing, or of a release that this version does not know."""
        if not isinstance(record, dict) or record.get("release") not in FORMS:
            return None
        return cls(record["release"], record.get("model_seed"))


@dataclass(frozen=True)
class PlannedLoad:
    """What one run of the client issues."""

    concurrency: int  # for a dedicated Offline run: ignored
    samples: int
    is_offline: bool = False
    accuracy: bool = False

    @property
    def mode(self) -> str:
        """The client's option --mode."""
        return "both" if self.accuracy else "perf"


def client_config(curve: CurveConfig, form: ClientForm, load: PlannedLoad, report_dir: Path) -> dict[str, Any]:
    """Return the content of the configuration file of one run."""
    seeds, settings = curve.seed_set.seeds, FORMS[form.release]
    pattern = {"type": "max_throughput"}
    if not load.is_offline:
        pattern = {"type": "concurrency", "target_concurrency": load.concurrency}  # type: ignore[dict-item]
    model_seed = {} if form.model_seed is None else {"seed": form.model_seed}
    api_type = {"api_type": curve.options.api_type} if curve.options.api_type else {}
    return {
        "type": "offline" if load.is_offline else "online",
        "model_params": {
            "name": curve.options.model,
            **({"tokenizer_name": curve.options.tokenizer} if curve.options.tokenizer else {}),
            **curve.model_params,
            **model_seed,
            "streaming": "off" if load.is_offline else "on",
        },
        "datasets": [*curve.datasets[PERFORMANCE], *(curve.datasets[ACCURACY] if load.accuracy else ())],
        "settings": {
            **settings,
            "runtime": {
                **settings.get("runtime", {}),
                "n_samples_to_issue": load.samples,
                "scheduler_random_seed": seeds["scheduler_rng_seed"],
                "dataloader_random_seed": seeds["sample_index_rng_seed"],
            },
            "load_pattern": pattern,
            "client": {
                "worker_initialization_timeout": START_TIMEOUT_S,
                # By default, the client opens thousands of connections before it starts.
                **({} if load.is_offline else {"warmup_connections": load.concurrency}),
                **curve.options.client_settings,
            },
            "warmup": {"enabled": False},
        },
        "endpoint_config": {"endpoints": [address.url for address in curve.servers], **api_type},
        "report_dir": str(report_dir),
    }  # fmt: skip


def point_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parts of a configuration that all runs of a point share: without the number of samples and the path.

    Two runs with equal settings measure the same point.
    """
    runtime = {key: value for key, value in config["settings"]["runtime"].items() if key != "n_samples_to_issue"}
    return {**config, "settings": {**config["settings"], "runtime": runtime}, "report_dir": ""}


def accepted_release(curve: CurveConfig, model_seed: int | None) -> str:
    """Return the newest form of the settings that the client accepts.

    Raises:
        SetupError: If the client accepts none; the message has the client's reason for the newest form.
    """
    reasons = []
    with temporary_folder("curve-client-") as folder:
        for release in FORMS:
            load = PlannedLoad(curve.ultra_low, curve.rows, accuracy=True)
            config = client_config(curve, ClientForm(release, model_seed), load, folder / "run")
            path = folder / "client.yaml"
            write_atomic(path, yaml.safe_dump(config, sort_keys=False))
            done = run_program([curve.client, "validate-yaml", "--config", path], timeout_s=VALIDATE_TIMEOUT_S)
            if done.returncode == 0:
                return release
            lines = (done.stdout + done.stderr).decode(errors="replace").strip().splitlines()
            reasons.append(" ".join(line.strip() for line in lines[-6:])[:600])
    raise SetupError(
        f"client {curve.client} refuses its configuration: {reasons[-1]}", "correct the keys in the file of --config"
    )
