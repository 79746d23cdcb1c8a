"""The MLPerf Endpoints client on the server of part (l), in turns with runs of the harness: Offline, and Poisson at
80%.

It runs if MLPERF_ENDPOINTS_CLIENT names the program `inference-endpoint`, which needs a separate environment.
"""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import yaml

from qsl.dataset import load_dataset
from qsl.tokenizers import load_tokenizer
from runs.errors import ExecutionError
from runs.mlperf_endpoints.folder import Summary, read_folder

from .rates import server_run
from .report import PeerPart, at_least, at_most
from .sizes import Sizes
from .support.peer_runs import offline_run

VARIABLE = "MLPERF_ENDPOINTS_CLIENT"
SHARE = 0.8  # share of the harness's Offline rate
OUTPUT_TOKENS = 128
# The model has no chat template, and the client supports no other route without the Hugging Face Hub.
TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
PATIENCE_S = 300.0


def side_by_side(part: PeerPart, work: Path, url: str, common: dict[str, Any], sizes: Sizes) -> None:
    """Add the rates and the p99 TTFT of the client and of the harness."""
    program = os.environ.get(VARIABLE)
    if program is None:
        part.notes.append(f"the MLPerf Endpoints client was not run: {VARIABLE} is not set")
        return
    options = {**common, "engine": "endpoint", "api_server": url}
    client = ClientProgram(program, work / "endpoints-client", url, common)
    rates: dict[str, list[float]] = {"ours": [], "client": []}
    for repeat in range(sizes.repeats):
        rates["ours"].append(offline_run(work / f"ours-{repeat}", options, sizes.offline_samples).rate)
        summary = client.run(f"offline-{repeat}", {"type": "max_throughput"}, sizes.offline_samples)
        rates["client"].append(float(summary.qps or 0))
    offline = {
        side: part.add(f"T: Endpoints client's server, Offline, {side}", "samples/s", rates_of_side)
        for side, rates_of_side in rates.items()
    }
    part.add_ratio("T: ours ÷ Endpoints client, Offline", offline["ours"], offline["client"], at_least(1.0))
    rate = SHARE * offline["ours"].median
    waits: dict[str, list[float]] = {"ours": [], "client": []}
    for repeat in range(sizes.repeats):
        place = work / f"poisson-{repeat}"
        run = server_run(place, {**options, "scenario": "Server"}, rate, sizes.server_seconds)
        waits["ours"].append((run.reported.ttft_ns.p99 if run.reported.ttft_ns else 0) / 1e6)
        load = {"type": "poisson", "target_qps": rate}
        summary = client.run(f"poisson-{repeat}", load, len(run.requests))
        waits["client"].append(float(summary.ttft.percentiles.get("99.0") or 0) / 1e6)
    p99 = {side: part.add(f"T: p99 TTFT at {rate:.1f}/s, {side}", "ms", times) for side, times in waits.items()}
    part.add_ratio("T: p99 TTFT, ours ÷ Endpoints client", p99["ours"], p99["client"], at_most(1.0))
    part.notes.append("Endpoints client: chat, as text. Its TTFT counts from sending, the harness's from the schedule.")


class ClientProgram:
    """The client program, with the runs' prompts as text."""

    def __init__(self, program: str, work: Path, url: str, common: dict[str, Any]) -> None:
        self.program, self.work, self.url, self.model = program, work, url, common["model_path"]
        work.mkdir(parents=True)
        texts = load_tokenizer(self.model).batch_decode(load_dataset(Path(common["dataset_path"])).prompts)
        (work / "prompts.jsonl").write_text("".join(json.dumps({"prompt": text}) + "\n" for text in texts))

    def run(self, name: str, load: dict[str, Any], samples: int) -> Summary:
        """Execute a run of the client.

        Raises:
            ExecutionError: If it failed, or not all samples have a response.
        """
        offline = load["type"] == "max_throughput"
        config = {
            "type": "offline" if offline else "online",
            "model_params": {
                "name": self.model, "temperature": 0.0, "top_p": 1.0, "max_new_tokens": OUTPUT_TOKENS,
                "streaming": "off" if offline else "on",
            },
            "datasets": [{"path": str(self.work / "prompts.jsonl"), "parser": {"prompt": "prompt"}}],
            "settings": {
                "runtime": {"min_duration_ms": 0, "n_samples_to_issue": samples},
                "load_pattern": load,
                "client": {"worker_initialization_timeout": PATIENCE_S},
                "service_ready_timeout_s": PATIENCE_S,
            },
            "endpoint_config": {"endpoints": [self.url]},
            "report_dir": str(self.work / name),
        }  # fmt: skip
        path, log = self.work / f"{name}.yaml", self.work / f"{name}.log"
        path.write_text(yaml.safe_dump(config))
        with log.open("wb") as stream:
            code = subprocess.run(
                [self.program, "benchmark", "from-config", "--config", str(path)],
                env={**os.environ, "HF_HUB_OFFLINE": "1"}, stdout=stream, stderr=subprocess.STDOUT, check=False,
            ).returncode  # fmt: skip
        summary = None if code else read_folder(self.work / name).summary
        if summary is None or summary.n_samples_failed or summary.n_samples_completed != samples:
            raise ExecutionError(f"the Endpoints client did not complete {samples} samples (code {code})", f"see {log}")
        return summary
