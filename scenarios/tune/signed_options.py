"""The sign-off of each option that a search accepted, before the tuning recommends it.

Each option is a patch: the reference runs without the option, the candidate with it, both at their highest VALID rates.
The probes of the search have one run of each, so that the runs are repeated. An option with a FAIL is not recommended.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from compliance.judge.record import record
from compliance.signoff.baseline import MIN_REPEATS
from compliance.signoff.claim import Claim
from compliance.signoff.judge import sign_off
from compliance.signoff.signoff_verdict import SignOff, action, blocks, headline
from scenarios.audit.saved_verdict import save_verdict
from scenarios.tune.decisions import recommendable
from scenarios.tune.journal import SchedulingOptions, TuneRun, best_probe, with_options
from scenarios.tune.option_space import Space, shown
from scenarios.tune.rates import BACK_OFF, rounded
from scenarios.tune.tune_runs import TuneRuns

_NEEDS_ACCURACY = "C-3/diverges_needs_accuracy_probe"


class SignedOptions:
    """The sign-offs of a search.

    Args:
        runs: Short runs, as those of the search.
    """

    def __init__(self, runs: TuneRuns, space: Space) -> None:
        self._runs, self._space = runs, space
        self.records: list[dict[str, Any]] = []  # sign-offs in the form of tune.json

    def accepted(self, probes: Sequence[TuneRun]) -> TuneRun | None:
        """Return the best probe whose options all sign off; None if no probe was VALID."""
        refused: set[str] = set()
        candidates = recommendable(probes)
        while (
            best := best_probe([candidate for candidate in candidates if not refused & candidate.options.keys()])
        ) is not None:
            failed = next((name for name in best.options if not self._passes(name, best.options, probes)), None)
            if failed is None:
                break
            refused.add(failed)
        return best

    def _passes(self, name: str, options: SchedulingOptions, probes: Sequence[TuneRun]) -> bool:
        """Sign an option off, and keep the verdict. Without a verdict the option is accepted, with a note."""
        without, place = self._space.without(name, options), self._runs.tune.place
        sides = [without, self._space.reduced({**without, name: options[name]})]
        runs = [self._valid_runs(side, probes) for side in sides]
        directories = [[place.root / run.directory for run in side] for side in runs]
        entry: dict[str, Any] = {"option": name, "value": options[name], "without": without}
        if lacking := [shown(side) for side, side_runs in zip(sides, runs, strict=True) if not side_runs]:
            self._runs.say(f"sign-off of {name}={options[name]}: refused, because no run of {lacking[0]} was VALID")
            self.records.append(entry | {"verdict": None, "file": None})
            return False
        option = name.removeprefix(f"{self._runs.tune.config.engine}_")  # the engine's own name
        signed = _patch(option, *directories)
        if any(finding.rule == _NEEDS_ACCURACY for finding in signed.of("error")):
            for side, run, where in zip(sides, runs, directories, strict=True):
                where.append(self._runs.accuracy_run(run[0].target_qps, side))
            signed = _patch(option, *directories)
        file = place.signoff(name)
        save_verdict(file, record(signed))
        self.records.append(entry | {"verdict": signed.outcome, "action": action(signed), "file": file.name})
        self._runs.say(f"sign-off of {name}={options[name]}: {headline(signed)}")
        self._runs.say(
            f"  {signed.details.measured_headline}; {'refused' if blocks(signed) else 'accepted'}; see {file}"
        )
        return not blocks(signed)

    def _valid_runs(self, options: SchedulingOptions, probes: Sequence[TuneRun]) -> list[TuneRun]:
        """Return the VALID runs of these settings at their highest rates, after repeating missing runs."""
        journal = self._runs.journal
        best = best_probe(with_options(probes, options)) or best_probe(with_options(probes, {}))
        assert best is not None  # the search ends if no rate is VALID with the defaults
        rates = [rounded(best.target_qps * (1 - share)) for share in BACK_OFF]
        while True:
            repeats = journal.runs("repeat", options)
            valid = [run for run in (*with_options(probes, options), *repeats) if run.valid and run.target_qps in rates]
            missed = sum(not run.valid for run in repeats)
            if len(valid) >= MIN_REPEATS or missed >= len(rates):
                return valid
            self._runs.run("repeat", rates[missed], options, f": for the sign-off ({shown(options)})", may_fail=True)


def _patch(option: str, ref: list[Path], cand: list[Path]) -> SignOff:
    return sign_off("patch", ref, cand, Claim(short_name=option, levers=[option]))
