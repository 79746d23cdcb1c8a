"""A campaign against a server of the tests."""

import json
from pathlib import Path

from runs.errors import ExitCode
from tests.conftest import ROOT
from tests.support.engines.small_tokenizer import make_tokenizer
from tests.support.processes import warm
from tests.support.servers.computing_server import Computing
from tests.support.servers.http_server import HttpServer, serving

CONFIG = {
    "benchmark": "llama3.1-8b", "division": "network", "engine": "endpoint", "api_connections": 256,
    # 64 articles have 16 new samples for each of four reference runs.
    "scenarios": {"Offline": {"audits": ["TEST06", {"test": "output_caching", "samples": 16}]}, "Server": {}},
}  # fmt: skip
USER_CONF = """
*.Offline.min_duration = 200
*.Offline.min_query_count = 64
*.Offline.target_qps = 50
*.Server.target_qps = 100
*.Server.min_duration = 5000
"""


def make_model(folder: Path) -> Path:
    """Write a model folder with the tokenizer of prompts and responses."""
    model = make_tokenizer(folder)
    config = {"vocab_size": 258, "max_position_embeddings": 100_000, "architectures": ["LlamaForCausalLM"]}
    (model / "config.json").write_text(json.dumps(config))
    (model / "generation_config.json").write_text(json.dumps({"bos_token_id": 0, "eos_token_id": 1}))
    return model


def run_campaign(root: Path) -> None:
    """Run a network campaign in `root/campaign`, against a server that does not count its cached tokens."""
    root.mkdir()
    (root / "user.conf").write_text(USER_CONF)
    (root / "declared.yaml").write_text((ROOT / "configs" / "endpoint-declaration.yaml").read_text())
    with serving(HttpServer("/v1/completions", Computing(tokens_s=2.0, counts=False), "vllm")) as server:
        config = CONFIG | {
            "api_server": server.url, "api_declaration": str(root / "declared.yaml"),
            "model_path": str(make_model(root / "model")), "user_conf": str(root / "user.conf"),
            "output_log_dir": str(root / "campaign"),
        }  # fmt: skip
        (root / "campaign.yaml").write_text(json.dumps(config))
        code, stdout, stderr = warm.run(["campaign", "--config", root / "campaign.yaml"], root)
    if code not in (ExitCode.OK, ExitCode.NEGATIVE):
        raise SystemExit(f"the campaign over HTTP ended with {code}\n{stdout}{stderr}")
    (root / "campaign" / "report.html").unlink()
