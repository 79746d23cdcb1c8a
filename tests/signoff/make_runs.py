"""Makes the legs of the sign-off's back-test anew: `python -m tests.signoff.make_runs DEMO [FOLDER]`.

Real legs of `main.py`, one after the other, through the real LoadGen: most with the dummy engine, and the two of DEMO,
a directory that `make demo` filled. They end up in runs.tar.xz. About five minutes on two cores. The archive is frozen:
with new legs, every case has to be looked at again.
"""

import io
import lzma
import shutil
import sys
import tarfile
import tempfile
from pathlib import Path

from tests.signoff.backtest import LEGS as IN_ARCHIVE
from tests.signoff.backtest import RUNS
from tests.support import warm
from tests.support.cheats import CHEAT

TIMEOUT_S = 300.0  # of a leg
DICTIONARY_BYTES = 64 << 20  # larger than all files together: most are near copies of others
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
# A system that answers at once needs more queries to run for 400 ms.
FAST_CONF = USER_CONF.replace("target_latency = 60", "target_latency = 2")
MODEL = ("--total-sample-count", "32", "--dummy-ttft-ms", "20", "--dummy-prefill-us", "10", "--dummy-tpot-ms", "0.2")
SLOTS = {"Offline": "4", "Server": "16", "SingleStream": "16", "Interactive": "16"}

_ACCURACY, _TRACE, _FAST = "--accuracy", "--enable-log-trace", "--dummy-tpot-ms 0.1"
_NULL = "--dummy-ttft-ms 0.5 --dummy-prefill-us 0 --dummy-tpot-ms 0.02"


def _cheat(kind: str, more: str = "") -> str:
    return f"{CHEAT}={kind} {more}"


# Name of each leg, and its options beyond MODEL; before them its variable of the environment.
LEGS: dict[str, tuple[str, str]] = {
    "ss-1": ("SingleStream", ""),
    "ss-2": ("SingleStream", ""),
    "ss-acc": ("SingleStream", _ACCURACY),
    "ss-trace": ("SingleStream", _TRACE),
    "srv-1": ("Server", ""),
    "srv-2": ("Server", ""),
    "srv-acc": ("Server", _ACCURACY),
    "srv-trace": ("Server", _TRACE),
    "off-1": ("Offline", ""),
    "off-2": ("Offline", ""),
    "off-acc": ("Offline", _ACCURACY),
    "off-trace": ("Offline", _TRACE),
    "ss-3": ("SingleStream", ""),
    "off-3": ("Offline", ""),
    "srv-3": ("Server", ""),
    "int-1": ("Interactive", ""),
    "int-2": ("Interactive", _TRACE),
    "int-acc": ("Interactive", _ACCURACY),
    "ss-fast-1": ("SingleStream", _FAST),
    "ss-fast-2": ("SingleStream", _FAST),
    "ss-fast-acc": ("SingleStream", f"{_FAST} {_ACCURACY}"),
    "off-fast-1": ("Offline", _FAST),
    "off-fast-2": ("Offline", _FAST),
    "off-slots-1": ("Offline", "--dummy-slots 6"),
    "off-slots-2": ("Offline", "--dummy-slots 6"),
    "off-two-1": ("Offline", f"{_FAST} --dummy-slots 6"),
    "off-two-2": ("Offline", f"{_FAST} --dummy-slots 6"),
    "off-two-acc": ("Offline", f"{_FAST} --dummy-slots 6 {_ACCURACY}"),
    "off-cold-1": ("Offline", "--dummy-ttft-ms 21"),
    "off-params": ("Offline", "--sampling-arg max_tokens=64"),
    "off-params-acc": ("Offline", f"--sampling-arg max_tokens=64 {_ACCURACY}"),
    "off16-1": ("Offline", "--total-sample-count 16"),
    "off16-2": ("Offline", "--total-sample-count 16"),
    "off16-acc": ("Offline", f"--total-sample-count 16 {_ACCURACY}"),
    "off64-1": ("Offline", "--total-sample-count 64"),
    "off64-2": ("Offline", f"--total-sample-count 64 {_TRACE}"),
    "off64-acc": ("Offline", f"--total-sample-count 64 {_ACCURACY}"),
    "srv-qps-1": ("Server", "--target-qps 220"),
    "srv-qps-2": ("Server", "--target-qps 220"),
    "srv-slots-1": ("Server", "--target-qps 220 --dummy-slots 12"),
    "srv-slots-2": ("Server", "--target-qps 220 --dummy-slots 12"),
    "srv-gen": ("Server", _TRACE),
    "srv-fault": ("Server", "--dummy-fault die@100"),
    "ss-same-a": ("SingleStream", ""),
    "ss-null": ("SingleStream", _NULL),
    "ss-null-acc": ("SingleStream", f"{_NULL} {_ACCURACY}"),
    "ss-other": ("SingleStream", _cheat("other-model")),
    "off-other": ("Offline", _cheat("other-model")),
    "ss-truncate": ("SingleStream", _cheat("truncate")),
    "off-truncate": ("Offline", _cheat("truncate")),
    "ss-cache": ("SingleStream", _cheat("cache-index")),
    "ss-early": ("SingleStream", _cheat("first-early")),
    "ss-answer-early": ("SingleStream", _cheat("answer-early")),
    "ss-refs-acc": ("SingleStream", _cheat("reference", _ACCURACY)),
    "ss-pad-acc": ("SingleStream", _cheat("pad-eos", _ACCURACY)),
    "off-drop": ("Offline", _cheat("drop-always")),
    "off-drop-acc": ("Offline", _cheat("drop-always", _ACCURACY)),
}


def make(folder: Path) -> None:
    """Run all legs that are not there yet. What a leg is for says whether it may end well, so no exit code counts."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in (("user.conf", USER_CONF), ("null.conf", FAST_CONF)):
        (folder / name).write_text(text)
    for name, (scenario, options) in LEGS.items():
        conf = "null.conf" if name == "ss-null" else "user.conf"
        if (folder / name).exists():
            continue
        words = options.split()
        variables = dict(word.split("=") for word in words if word.startswith(CHEAT))
        arguments = [
            "--scenario", scenario, "--engine", "dummy", "--user-conf", conf, "--output-log-dir", name, *MODEL,
            "--dummy-slots", SLOTS[scenario], *(word for word in words if not word.startswith(CHEAT)),
        ]  # fmt: skip
        warm.run(arguments, folder, TIMEOUT_S, variables)


def gather(folder: Path, demo: Path, legs: Path) -> None:
    """The files of all legs, each in a folder of its name."""
    sources = {name: folder / name for name in LEGS}
    sources |= {"vllm-off": demo / "performance", "vllm-off-acc": demo / "accuracy"}
    for name, source in sources.items():
        (legs / name).mkdir(parents=True)
        for path in source.iterdir():
            if path.is_file():
                shutil.copy(path, legs / name / path.name)


def pack(legs: Path) -> None:
    """Write the archive, without anything that differs from packing to packing; like files side by side."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        paths = [path for path in legs.rglob("*") if path.is_file()]
        for path in sorted(paths, key=lambda path: (path.name, path)):
            entry = tarfile.TarInfo(f"{IN_ARCHIVE}/{path.relative_to(legs).as_posix()}")
            entry.size = path.stat().st_size
            archive.addfile(entry, io.BytesIO(path.read_bytes()))
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "dict_size": DICTIONARY_BYTES}]
    RUNS.write_bytes(lzma.compress(buffer.getvalue(), filters=filters))


def main() -> None:
    demo = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(sys.argv[2]) if len(sys.argv) > 2 else Path(temporary)
        make(folder)
        gather(folder, demo, Path(temporary) / "packed")
        pack(Path(temporary) / "packed")


if __name__ == "__main__":
    main()
