"""The run directory and its file names.

Each run has its own directory. LoadGen's logs are never changed after LoadGen closed them.
"""

from dataclasses import dataclass
from pathlib import Path

LOADGEN_LOGS = ("mlperf_log_summary.txt", "mlperf_log_detail.txt", "mlperf_log_accuracy.json", "mlperf_log_trace.json")


class PathIn:
    """An attribute that is the `Path` of a file or directory in a folder."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, folder: "Folder", _: object) -> Path:
        return folder.root / self.name


@dataclass(frozen=True)
class Folder:
    """A directory with attributes for its files."""

    root: Path


class RunDir(Folder):
    """Paths inside one run's directory."""

    summary = PathIn(LOADGEN_LOGS[0])
    detail = PathIn(LOADGEN_LOGS[1])
    accuracy_log = PathIn(LOADGEN_LOGS[2])
    trace = PathIn(LOADGEN_LOGS[3])
    manifest = PathIn("manifest.json")
    requests = PathIn("requests.jsonl")
    user_conf = PathIn("user.conf")
    audit_config = PathIn("audit.config")
    no_audit_config = PathIn("no-audit.config")  # never exists: LoadGen's argument in a run without an audit
    engine_log = PathIn("engine.log")
    progress = PathIn("progress.json")
    result = PathIn("result.json")
    accuracy_text = PathIn("accuracy.txt")
    accuracy_json = PathIn("accuracy.json")
    quality_results = PathIn("quality_results.json")  # copy of the results file that the declaration names
    page = PathIn("report.html")  # written after seal.json, which does not cover it
    seal = PathIn("seal.json")  # the signed attestation of all other files; written last
    time_stamp = PathIn("seal.tsr")  # time stamp of seal.json by an authority (`main.py anchor`)

    # Names of the files of a run.
    own_names = frozenset(
        (*LOADGEN_LOGS, manifest.name, requests.name, user_conf.name, audit_config.name, engine_log.name,
         progress.name, result.name, accuracy_text.name, accuracy_json.name, quality_results.name)
    )  # fmt: skip


BENCH_FILE = "bench.json"  # record of a bench, in its directory; its runs are below
SIGNOFF_LEDGER = "signoffs.jsonl"  # one line for each sign-off whose verdict is in the same directory


def audit_record(folder: Path, test: str) -> Path:
    """Return the file with the result of an audit."""
    return folder / f"audit_{test}.json"


class ResultDir(Folder):
    """The runs and audits of one scenario of one benchmark."""

    discarded = PathIn("discarded")  # runs that failed, were interrupted or are out of date

    @property
    def performance(self) -> RunDir:
        return RunDir(self.root / "performance" / "run_1")

    @property
    def accuracy(self) -> RunDir:
        return RunDir(self.root / "accuracy")

    def audit(self, test: str) -> Path:
        """Return the directory of an audit, as written by `audit --output-log-dir ROOT --test TEST`."""
        return self.root / "audit" / test


class CampaignDir(Folder):
    """A campaign; each `<benchmark>/<scenario>/` in it is a ResultDir."""

    configuration = PathIn("campaign.json")  # resolved options
    lock = PathIn("campaign.lock")  # held while the campaign runs

    def result(self, submission_name: str, scenario: str) -> ResultDir:
        return ResultDir(self.root / submission_name / scenario)

    def results(self) -> list[tuple[str, str, ResultDir]]:
        """Return benchmark directory, scenario and ResultDir of all existing results."""
        return [
            (scenario.parent.name, scenario.name, ResultDir(scenario))
            for scenario in sorted(self.root.glob("*/*"))
            if (scenario / "performance").is_dir() or (scenario / "accuracy").is_dir()
        ]


_LEVELS = 4  # levels of a run directory below its campaign: BENCHMARK/SCENARIO/performance/run_1


def campaign_of(folder: Path) -> CampaignDir | None:
    """Return the campaign that a directory is or belongs to, if any."""
    root = folder.resolve()
    campaigns = (CampaignDir(parent) for parent in (root, *root.parents[:_LEVELS]))
    return next((campaign for campaign in campaigns if campaign.configuration.is_file()), None)
