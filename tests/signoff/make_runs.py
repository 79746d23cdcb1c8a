"""Create the runs of the sign-off's back-test: `python -m tests.signoff.make_runs DEMO [FOLDER]`.

The runs are real runs of `main.py` in sequence, through the real LoadGen: most with the dummy engine, and the two of
DEMO, a directory of `make demo`. They are written to runs.tar.xz. This takes about five minutes on two cores. The
archive is frozen: with new runs, check each case again.
"""

import shutil
import sys
import tempfile
from pathlib import Path

from tests.signoff.backtest import ARCHIVE
from tests.signoff.backtest import RUNS as IN_ARCHIVE
from tests.support.engines.cheats import CHEAT
from tests.support.processes import warm
from tests.support.runs.make_recorded_runs import pack

USER_CONF = """
*.Offline.min_duration = 200
*.Offline.min_query_count = 32
*.Offline.target_qps = 50
*.Server.target_qps = 200
*.Server.min_duration = 1500
*.Server.min_query_count = 480
*.SingleStream.target_latency = 60
*.SingleStream.min_duration = 400
*.SingleStream.min_query_count = 96
"""
# A system without delay needs more queries to run for 400 ms.
FAST_CONF = USER_CONF.replace("target_latency = 60", "target_latency = 2")
MODEL = ("--total-sample-count", "32", "--dummy-ttft-ms", "20", "--dummy-prefill-us", "10", "--dummy-tpot-ms", "0.2")
SLOTS = {"Offline": "4", "Server": "16", "SingleStream": "16", "Interactive": "16"}
SCENARIOS = {
    "ss": "SingleStream",
    "srv": "Server",
    "off": "Offline",
    "int": "Interactive",
}  # prefix of a name → scenario
MODES = {"acc": "--accuracy", "trace": "--enable-log-trace"}  # suffix of a name → option
PLAIN = (
    "ss-1", "ss-2", "ss-acc", "ss-trace", "srv-1", "srv-2", "srv-acc", "srv-trace", "off-1", "off-2", "off-acc",
    "off-trace", "ss-3", "off-3", "srv-3", "int-1", "int-acc", "ss-same-a",
)  # fmt: skip
_FAST, _SLOTS, _QPS, _SHORT = (
    "--dummy-tpot-ms 0.1",
    "--dummy-slots 6",
    "--target-qps 220",
    "--sampling-arg max_tokens=64",
)
_NULL = "--dummy-ttft-ms 0.5 --dummy-prefill-us 0 --dummy-tpot-ms 0.02"
# Name of each run, and its options except MODEL, with its environment variable if it has one.
RUNS: dict[str, str] = {
    **dict.fromkeys(PLAIN, ""),
    "int-2": "--enable-log-trace",
    "srv-gen": "--enable-log-trace",
    **dict.fromkeys(("ss-fast-1", "ss-fast-2", "ss-fast-acc", "off-fast-1", "off-fast-2"), _FAST),
    **dict.fromkeys(("off-slots-1", "off-slots-2"), _SLOTS),
    **dict.fromkeys(("off-two-1", "off-two-2", "off-two-acc"), f"{_FAST} {_SLOTS}"),
    "off-cold-1": "--dummy-ttft-ms 21",
    **dict.fromkeys(("off-params", "off-params-acc"), _SHORT),
    **dict.fromkeys(("off16-1", "off16-2", "off16-acc"), "--total-sample-count 16"),
    **dict.fromkeys(("off64-1", "off64-acc"), "--total-sample-count 64"),
    "off64-2": "--total-sample-count 64 --enable-log-trace",
    **dict.fromkeys(("srv-qps-1", "srv-qps-2"), _QPS),
    **dict.fromkeys(("srv-slots-1", "srv-slots-2"), f"{_QPS} --dummy-slots 12"),
    "srv-fault": "--dummy-fault die@100",
    **dict.fromkeys(("ss-null", "ss-null-acc"), _NULL),
    **{
        name: f"{CHEAT}={kind}"
        for name, kind in {
            "ss-other": "other-model", "off-other": "other-model", "ss-truncate": "truncate",
            "off-truncate": "truncate", "ss-cache": "cache-index", "ss-early": "first-early",
            "ss-answer-early": "answer-early", "ss-refs-acc": "reference", "ss-pad-acc": "pad-eos",
            "off-drop": "drop-always", "off-drop-acc": "drop-always",
        }.items()
    },
}  # fmt: skip


def make(folder: Path) -> None:
    """Start all missing runs. The purpose of a run decides its expected end, so exit codes are ignored."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in (("user.conf", USER_CONF), ("null.conf", FAST_CONF)):
        (folder / name).write_text(text)
    for name, options in RUNS.items():
        if (folder / name).exists():
            continue
        scenario = SCENARIOS[name.partition("-")[0].rstrip("0123456789")]
        words = [*options.split(), *MODES.get(name.rpartition("-")[2], "").split()]
        variables = dict(word.split("=") for word in words if word.startswith(CHEAT))
        arguments = [
            "--scenario", scenario, "--engine", "dummy", "--output-log-dir", name, *MODEL,
            "--user-conf", "null.conf" if name == "ss-null" else "user.conf", "--dummy-slots", SLOTS[scenario],
            *(word for word in words if not word.startswith(CHEAT)),
        ]  # fmt: skip
        warm.run(arguments, folder, variables)


def gather(folder: Path, demo: Path, runs: Path) -> None:
    """Write the files of all runs, each into a folder of its name."""
    sources = {name: folder / name for name in RUNS}
    sources |= {"vllm-off": demo / "performance", "vllm-off-acc": demo / "accuracy"}
    for name, source in sources.items():
        (runs / name).mkdir(parents=True)
        for path in source.iterdir():
            if path.is_file():
                shutil.copy(path, runs / name / path.name)


def main() -> None:
    demo = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(sys.argv[2]) if len(sys.argv) > 2 else Path(temporary)
        make(folder)
        gather(folder, demo, Path(temporary) / "packed" / IN_ARCHIVE)
        pack(Path(temporary) / "packed", ARCHIVE)


if __name__ == "__main__":
    main()
