"""The directory of a tune and its file names."""

from pathlib import Path

from runs.record.layout import Folder, PathIn


class TuneDir(Folder):
    """Paths inside one tune's directory. Its runs are started directories."""

    lock = PathIn("tune.lock")  # held while a tune runs here
    journal = PathIn("journal.jsonl")  # one JSON line a finished step; what the search goes on from
    record = PathIn("tune.json")  # the outcome
    user_conf = PathIn("user.conf")  # the one that it was given, with the rate that was found
    best = PathIn("best.yaml")  # the options of `run` that go with it: what was given, and what a search found
    search_conf = PathIn("search.user.conf")  # what LoadGen is given in the short runs of a search
    study = PathIn("search.study.jsonl")  # optuna's, of the search
    plot = PathIn("rates.svg")
    estimate_conf = PathIn("estimate.user.conf")  # what the Offline estimate's LoadGen is given
    estimate = PathIn("estimate")
    discarded = PathIn("discarded")  # runs that were interrupted, and tunes of another configuration

    def run(self, step: str, number: int) -> Path:
        """The run directory of the n-th probe (of a search, of the rate) or confirmation, from 1."""
        return self.root / f"{step}-{number}"

    def contents(self) -> list[Path]:
        """Everything of a tune that is there, but for the lock and what was discarded."""
        files = (self.journal, self.record, self.user_conf, self.best, self.plot, self.estimate_conf, self.estimate)
        runs = [path for step in ("search", "probe", "confirm") for path in self.root.glob(f"{step}-*")]
        return [path for path in (*files, self.search_conf, self.study, *sorted(runs)) if path.exists()]
