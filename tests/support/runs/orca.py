"""Generated rows of the second benchmark, and a campaign of short dummy runs over them."""

import json
import random
import subprocess
import sys
from pathlib import Path

from runs.record.layout import CampaignDir
from tests.conftest import ROOT
from tests.support.processes import warm

BENCHMARK = "llama2-70b-99.9"
SAMPLES = 64
WORDS = [
    "river", "council", "market", "energy", "treaty", "winter", "harbour", "signal", "garden", "copper", "ladder",
]  # fmt: skip
USER_CONF = """
*.Offline.min_duration = 200
*.Offline.min_query_count = 64
*.Offline.target_qps = 50
*.Server.target_qps = 150
*.Server.min_duration = 4000
"""


def write_rows(path: Path, count: int = SAMPLES) -> list[dict[str, str]]:
    """Write OpenOrca's columns as JSON lines; each third row has no system prompt."""
    draw = random.Random("orca")
    rows = [
        {
            "system_prompt": "" if number % 3 == 0 else "You are a careful assistant.",
            "question": f"Explain why the {' '.join(draw.choices(WORDS, k=20))} matters, case {number}.",
            "response": f"Because the {' '.join(draw.choices(WORDS, k=30))}. It is so.",
        }
        for number in range(count)
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    return rows


def run(program: str, *arguments: object) -> str:
    """Run a program of the checkout that must succeed. Return its output."""
    command = [sys.executable, str(ROOT / program), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def prepare(folder: Path, model: Path | str = "bytes", count: int = SAMPLES) -> Path:
    """Write a dataset in the MLCommons format."""
    rows, output = folder / "rows.jsonl", folder / "orca.json"
    write_rows(rows, count)
    run(
        "scripts/prepare_dataset.py", "--lg-model-name", "llama2-70b", "--source", rows, "--model-path", model,
        "--output", output,
    )  # fmt: skip
    return output


def make_campaign(folder: Path) -> CampaignDir:
    """Run performance, accuracy and TEST06 of all three scenarios."""
    (folder / "user.conf").write_text(USER_CONF)
    campaign = CampaignDir(folder / "campaign")
    config = {
        "benchmark": BENCHMARK,
        "engine": "dummy",
        "dataset_path": str(prepare(folder)),
        "user_conf": str(folder / "user.conf"),
        "output_log_dir": str(campaign.root),
        "scenarios": {"Offline": {"dummy_ttft_ms": 250}, "Server": None, "Interactive": None},
    }
    (folder / "campaign.yaml").write_text(json.dumps(config))
    code, stdout, stderr = warm.run(["campaign", "--config", folder / "campaign.yaml"], folder)
    assert code == 0, stdout + stderr
    return campaign
