"""Create the recorded runs: `make record-runs`, three minutes on two idle cores (recorded.py reads them).

Real runs in sequence, each in a process of its own: runs of the dummy engine and their audits, runs of the real
LoadGen around a system that sleeps, and a campaign against a server of the tests.
"""

import io
import json
import lzma
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from runs.errors import ExitCode
from tests.conftest import ROOT
from tests.support.engines.null_sut import NullRunSpec, start
from tests.support.processes import warm
from tests.support.runs import http_campaign
from tests.support.runs.loadgen_runs import ALL
from tests.support.runs.recorded import ARCHIVE, HOME, MADE_OF, NULL, OVER_HTTP, RESULTS, datasets, harness_files
from tests.support.trees.any_tree import ANY_RUNS
from tests.support.trees.clean_trees import SHORT_RUNS

# Enough queries for VALID: Server 640 (early stopping needs 459), SingleStream 128, Offline all 64 at once.
USER_CONF = """
*.Offline.min_duration = 200
*.Offline.min_query_count = 64
*.Offline.target_qps = 50
*.Server.target_qps = 400
*.Server.min_duration = 1500
*.SingleStream.target_latency = 8
*.SingleStream.min_duration = 400
"""
# Offline: longer than the minimum duration. Server: so long that the delays of a busy host do not look like a cache.
DUMMY = {"Offline": "--dummy-ttft-ms 250", "Server": "--dummy-ttft-ms 20", "Interactive": "--dummy-ttft-ms 20"}
_MTIME_S = 946_684_800  # the year 2000, because ZIP files have no time before 1980
# Recorded by an earlier version and kept, because an audit of an earlier version is refused
KEPT = ("caching-of-an-earlier-version",)
# An audit of samples that take as long as it requires
_CACHING = "--scenario Offline --dummy-ttft-ms 100 --dummy-slots 1"


def commands() -> Iterator[tuple[str, str]]:
    """Yield (directory, options) of each run and audit of the dummy engine, in order."""
    for scenario in ("Offline", "Server", "SingleStream", "Interactive"):
        root, common = RESULTS[scenario], f"--scenario {scenario} {DUMMY.get(scenario, '')}"
        yield f"{root}/performance/run_1", common
        yield f"{root}/accuracy", f"{common} --accuracy"
        if scenario in ("Offline", "Server"):
            yield root, f"audit --test TEST06 {common}"
    yield "caching/performance/run_1", _CACHING
    yield "caching", f"audit --test output_caching {_CACHING} --samples 20"
    yield "replicas", "--scenario Server --replicas 2 --dummy-tpot-ms 1"


def null_runs() -> dict[str, NullRunSpec]:
    """Return the runs around a system that sleeps, by directory."""
    return {**{f"{NULL}/{name}": spec for name, spec in ALL.items()}, **SHORT_RUNS, **ANY_RUNS}


def recording_inputs() -> dict[str, Any]:
    """Return the inputs of the recording except the product. They are stored with the runs."""
    return json.loads(
        json.dumps(
            {
                "user.conf": USER_CONF,
                "commands": list(commands()),
                "null": {name: asdict(spec) for name, spec in null_runs().items()},
                OVER_HTTP: [http_campaign.CONFIG, http_campaign.USER_CONF],
            }
        )
    )


def make(root: Path) -> None:
    """Create all runs in a folder."""
    (root / "user.conf").write_text(USER_CONF)
    with tarfile.open(ARCHIVE) as archive:
        kept = [member for member in archive.getmembers() if member.name.partition("/")[0] in KEPT]
        archive.extractall(root, members=kept, filter="data")
    for name, options in commands():
        words = [*options.split(), "--engine", "dummy", "--user-conf", root / "user.conf", "--output-log-dir"]
        code, stdout, stderr = warm.run([*words, root / name], root)
        if code != ExitCode.OK:
            raise SystemExit(f"{name}: {options} ended with {code}\n{stdout}{stderr}")
    for name, spec in null_runs().items():
        start(replace(spec, outdir=str(root / name))).root.with_name(f"{Path(name).name}.spec.json").unlink()
    http_campaign.run_campaign(root / OVER_HTTP)
    (root / MADE_OF).write_text(json.dumps(recording_inputs(), indent=1))


def relocate(root: Path) -> None:
    """Remove facts of this host and checkout, and the load of other processes."""
    places = {HOME: str(root), **datasets(root), "/recorded-checkout": str(ROOT)}
    for path in harness_files(root):
        text = path.read_text()
        for placeholder, place in places.items():
            text = text.replace(place, placeholder)
        if path.name == "manifest.json":
            manifest = json.loads(text)
            seen = manifest["observed"]
            seen["harness"] |= {"git_commit": "0" * 40, "git_changed": False}
            seen["contention"] |= {"busy_cpu_s": seen["contention"]["own_cpu_s"], "foreign_cpu_s": 0.0}
            seen["loop_lag"] |= {"p99_ms": 1.0, "worst_ms": 4.0}
            text = json.dumps(manifest, indent=2)
        path.write_text(text)


def pack(root: Path, to: Path = ARCHIVE) -> None:
    """Pack equal files beside each other, without values that differ between packings."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path in sorted((path for path in root.rglob("*") if path.is_file()), key=lambda path: (path.name, path)):
            entry = tarfile.TarInfo(path.relative_to(root).as_posix())
            entry.size, entry.mtime = path.stat().st_size, _MTIME_S
            with path.open("rb") as stream:
                archive.addfile(entry, stream)
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "dict_size": 64 << 20}]
    to.write_bytes(lzma.compress(buffer.getvalue(), filters=filters))


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="record-runs-") as folder:
        make(Path(folder))
        relocate(Path(folder))
        pack(Path(folder))
    print(f"{ARCHIVE}: {ARCHIVE.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
