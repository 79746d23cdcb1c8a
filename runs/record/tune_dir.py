"""The directory of a tuning and its file names."""

from pathlib import Path

from runs.record.layout import SIGNOFF_LEDGER, Folder, PathIn


class TuneDir(Folder):
    """The paths in the directory of a tuning. It also contains the run directories."""

    lock = PathIn("tune.lock")  # lock file, held during a tuning
    journal = PathIn("journal.jsonl")  # one JSON line per finished step, from which a tuning continues
    record = PathIn("tune.json")  # the result
    user_conf = PathIn("user.conf")  # user.conf of the user, with the confirmed rate
    best = PathIn("best.yaml")  # options of `run` for the rate: given options, and best options of a search
    search_conf = PathIn("search.user.conf")  # user.conf of the short runs of a search
    study = PathIn("search.study.jsonl")  # file of optuna with the trials of the search
    plot = PathIn("rates.svg")
    engine_log = PathIn("engine.log")  # output of the engine that serves the probes
    estimate_conf = PathIn("estimate.user.conf")  # user.conf of the Offline estimate
    estimate = PathIn("estimate")
    discarded = PathIn("discarded")  # interrupted runs, and tunings with another configuration

    def run(self, step: str, number: int) -> Path:
        """Return the n-th run directory of a step, from 1."""
        return self.root / f"{step}-{number}"

    def signoff(self, option: str) -> Path:
        """Return the file of the verdict on an option of the search."""
        return self.root / f"signoff_patch_{option}.json"

    def contents(self) -> list[Path]:
        """Return the existing files of a tuning, except the lock and the discarded files."""
        files = (self.journal, self.record, self.user_conf, self.best, self.plot, self.engine_log)
        steps = ("search-*", "repeat-*", "accuracy-*", "probe-*", "confirm-*", self.signoff("*").name, SIGNOFF_LEDGER)
        more = sorted(path for pattern in steps for path in self.root.glob(pattern))
        return [
            path
            for path in (*files, self.estimate_conf, self.estimate, self.search_conf, self.study, *more)
            if path.exists()
        ]
