"""Which legs lie in the directories that were named, and which of them belong to one result."""

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from runs.benchmark import LOADGEN_SCENARIO, Benchmark, Scenario
from runs.benchmarks import BENCHMARKS, default_benchmark
from runs.errors import ExecutionError, HarnessError, InputError
from runs.loadgen.detail_log import DetailLog, read_detail
from runs.record.layout import LOADGEN_LOGS, RunDir
from runs.record.manifest import Manifest, read_manifest
from runs.record.requests_log import RequestTable, read_requests
from runs.record.unfinished import unfinished

PERFORMANCE, ACCURACY = "PerformanceOnly", "AccuracyOnly"
# Where the legs of one result lie in a submission.
_PARTS = ("performance/run_*", "performance", "accuracy")


@dataclass(frozen=True)
class Leg:
    """One LoadGen leg whose detail log could be read. `manifest` is None for a leg that is not ours."""

    run: RunDir
    detail: DetailLog
    manifest: Manifest | None
    scenario: Scenario  # Interactive, where LoadGen ran Server with tighter limits
    benchmark: Benchmark

    @property
    def mode(self) -> str:
        return self.detail.mode

    @property
    def claims_official(self) -> bool:
        """Only our own record of an unofficial leg takes back the claim."""
        return self.manifest is None or self.manifest.official

    @cached_property
    def requests(self) -> RequestTable | None:
        """Our own record of every request, read once; None where there is none.

        Raises:
            InputError: it is damaged.
        """
        return read_requests(self.run.requests) if self.run.requests.is_file() else None


@dataclass
class ResultLegs:
    """The legs of one result: one of performance, one of accuracy, or either."""

    home: Path  # where its verdict is written by default
    directories: list[Path]
    legs: list[Leg] = field(default_factory=list)
    error: HarnessError | None = None  # why a leg cannot be judged

    def leg(self, mode: str) -> Leg | None:
        return next((leg for leg in self.legs if leg.mode == mode), None)


def find_results(paths: list[Path], scenario: Scenario | None = None, only: str | None = None) -> list[ResultLegs]:
    """Group the legs in `paths` into results.

    A path is a leg's directory, or one with `performance/run_1` and `accuracy` in it. A performance and an accuracy
    leg of the same scenario and benchmark are one result.

    Args:
        paths: as given by the user.
        scenario: what the legs claim to be; else the manifest or the limits in the log tell.
        only: leave out legs of the other mode (PERFORMANCE or ACCURACY).

    Raises:
        InputError: a path holds no logs, or nothing is left to verify.
    """
    results: list[ResultLegs] = []
    seen: set[Path] = set()
    for path in paths:
        directories = [part for part in _leg_directories(path) if part.resolve() not in seen]
        seen |= {part.resolve() for part in directories}
        try:
            legs = [_load(directory, scenario) for directory in directories]
        except HarnessError as error:  # one damaged leg leaves nothing to say about the result it belongs to
            results.append(ResultLegs(path, directories, error=error))
            continue
        for leg in legs:
            if scenario is not None and leg.scenario != scenario:
                raise InputError(
                    f"--scenario {scenario}: LoadGen ran {leg.detail.scenario} in {leg.run.root}",
                    "leave --scenario out, or name the leg that you mean",
                )
        _add(results, [leg for leg in legs if only is None or leg.mode == only], path)
    if not results:
        wanted = {None: "", PERFORMANCE: "performance ", ACCURACY: "accuracy "}[only]
        raise InputError(f"no {wanted}leg in {', '.join(map(str, paths))}", "name the directory of such a leg")
    return results


def _leg_directories(path: Path) -> list[Path]:
    if not path.is_dir():
        raise InputError(
            f"{path} is no directory" if path.exists() else f"{path} does not exist",
            "name a run directory, or a directory with LoadGen's logs",
        )
    if _holds_leg(path):
        return [path]
    found = [part for pattern in _PARTS for part in sorted(path.glob(pattern)) if part.is_dir() and _holds_leg(part)]
    if not found:
        raise InputError(
            f"{path} holds no LoadGen logs, nor do performance/run_1 and accuracy in it",
            "name a directory with mlperf_log_detail.txt and mlperf_log_summary.txt",
        )
    return found


def _holds_leg(path: Path) -> bool:
    return any((path / name).exists() for name in (*LOADGEN_LOGS, RunDir(path).manifest.name))


def _load(directory: Path, asked: Scenario | None) -> Leg:
    run = RunDir(directory)
    manifest = read_manifest(run.manifest) if run.manifest.exists() else None
    if manifest is not None and manifest.status != "finished":
        raise ExecutionError(f"{directory}: {unfinished(manifest)}", "run the leg again")
    for path in (run.detail, run.summary):
        if not path.is_file():
            text = f"{path} is missing: LoadGen did not finish, or the copy is incomplete"
            raise ExecutionError(text, path=path, missing=True)
    detail = read_detail(run.detail)
    if detail.mode not in (PERFORMANCE, ACCURACY):
        raise InputError(
            f"{run.detail}: the mode was {detail.mode[:40]!r}", f"only {PERFORMANCE} and {ACCURACY} legs are verified"
        )
    scenario = _scenario(detail, manifest, asked)
    return Leg(run, detail, manifest, scenario, _benchmark(detail, manifest, scenario))


def _scenario(detail: DetailLog, manifest: Manifest | None, asked: Scenario | None) -> Scenario:
    known: dict[str, Scenario] = {"Offline": "Offline", "Server": "Server", "SingleStream": "SingleStream"}
    if detail.scenario not in known:
        raise InputError(
            f"{detail.path}: the scenario was {detail.scenario[:40]!r}",
            f"this benchmark has {', '.join(known)} (and Interactive, which LoadGen calls Server)",
        )
    if asked is not None and LOADGEN_SCENARIO[asked] == detail.scenario:
        return asked
    if manifest is not None and manifest.resolved.loadgen_scenario == detail.scenario:
        return manifest.resolved.scenario
    if detail.scenario == "Server":
        tight = [one for one in BENCHMARKS.values() if "Interactive" in one.scenarios]
        if any(_has_limits_of(detail, one) for one in tight):
            return "Interactive"
    return known[detail.scenario]


def _benchmark(detail: DetailLog, manifest: Manifest | None, scenario: Scenario) -> Benchmark:
    if manifest is not None and manifest.resolved.loadgen_key in BENCHMARKS:
        key = manifest.resolved.loadgen_key
        if (scenario == "Interactive") == ("Interactive" in BENCHMARKS[key].scenarios):
            return BENCHMARKS[key]
    # LoadGen's logs name no benchmark: the size of the data set tells them apart, or the limits.
    possible = [one for one in BENCHMARKS.values() if (scenario == "Interactive") == ("Interactive" in one.scenarios)]
    for size in ("qsl_reported_total_count", "effective_performance_sample_count"):
        for one in possible:
            if detail.get(size) in (one.performance_samples, one.accuracy_samples):
                return one
    if detail.scenario == "Server":
        for one in possible:
            if _has_limits_of(detail, one):
                return one
    return default_benchmark(scenario)


def _has_limits_of(detail: DetailLog, benchmark: Benchmark) -> bool:
    limits = benchmark.limits
    in_force = [detail.get(f"requested_server_{name}_latency") for name in ("ttft", "tpot")]
    return limits is not None and in_force == [limits.ttft_ms * 1_000_000, limits.tpot_ms * 1_000_000]


def _add(results: list[ResultLegs], legs: list[Leg], path: Path) -> None:
    """The first leg of each mode in one path is one result; a lone leg joins its counterpart from another path."""
    first: ResultLegs | None = None
    for leg in legs:
        if first is not None and first.leg(leg.mode) is None:
            joined = first
        elif len(legs) == 1 and (fitting := next((one for one in results if _fits(one, leg)), None)):
            joined = fitting
        else:
            home = path if first is None else leg.run.root
            results.append(joined := ResultLegs(home, []))
            first = first or joined
        joined.legs.append(leg)
        joined.directories.append(leg.run.root)


def _fits(result: ResultLegs, leg: Leg) -> bool:
    identity = (leg.scenario, leg.benchmark.submission_name)
    return len(result.legs) == 1 and all(
        (other.scenario, other.benchmark.submission_name) == identity and other.mode != leg.mode
        for other in result.legs
    )
