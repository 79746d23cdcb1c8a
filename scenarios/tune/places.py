"""The directory of a tune: the only owner of its file names. Its legs are run directories."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class TuneDir:
    """Paths inside one tune's directory."""

    root: Path

    @property
    def lock(self) -> Path:
        """Held while a tune runs here."""
        return self.root / "tune.lock"

    @property
    def journal(self) -> Path:
        """One JSON line a finished step; what the search goes on from."""
        return self.root / "journal.jsonl"

    @property
    def record(self) -> Path:
        """What the tune came to."""
        return self.root / "tune.json"

    @property
    def user_conf(self) -> Path:
        """The user.conf it was given, with the rate that was found."""
        return self.root / "user.conf"

    @property
    def best(self) -> Path:
        """The options of `run` that go with user.conf: what was given, and what a search found."""
        return self.root / "best.yaml"

    @property
    def search_conf(self) -> Path:
        """What LoadGen is given in the short legs of a search."""
        return self.root / "search.user.conf"

    @property
    def plot(self) -> Path:
        return self.root / "rates.svg"

    @property
    def estimate_conf(self) -> Path:
        """What the Offline estimate's LoadGen is given."""
        return self.root / "estimate.user.conf"

    @property
    def estimate(self) -> Path:
        return self.root / "estimate"

    def leg(self, step: str, number: int) -> Path:
        """The run directory of the n-th probe (of a search, of the rate) or confirmation, from 1."""
        return self.root / f"{step}-{number}"

    def contents(self) -> list[Path]:
        """Everything of a tune that is there, but for the lock and what was discarded."""
        files = (self.journal, self.record, self.user_conf, self.best, self.plot, self.estimate_conf, self.estimate)
        legs = [path for step in ("search", "probe", "confirm") for path in self.root.glob(f"{step}-*")]
        return [path for path in (*files, self.search_conf, *sorted(legs)) if path.exists()]

    @property
    def discarded(self) -> Path:
        """Legs that were interrupted, and tunes of another configuration; nothing is deleted."""
        return self.root / "discarded"
