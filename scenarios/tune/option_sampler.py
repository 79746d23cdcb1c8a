"""Which settings of the scheduling options to try next, by optuna's TPE sampler.

A function of what has been tried: the sampler is made anew for every question, told everything, and seeded with the
number of settings it was told. A search that goes on from its journal therefore asks as one that was never ended.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from scenarios.tune.option_space import Options, Space

SEEDS = 32  # samples drawn for settings that are new; after that, the first new one in a fixed order


@dataclass(frozen=True)
class ScoredOptions:
    """Settings that were tried. Only the order of the scores counts."""

    options: Options
    score: float


def suggest(space: Space, tried: Sequence[ScoredOptions], best: Options) -> Options | None:
    """New settings, or None when all have been tried.

    First each option alone departs from the best so far, at the middle one of its values: a few trials that tell
    options that matter from those that do not. Then the sampler asks.

    Args:
        space: what may be asked.
        tried: everything so far, each settings once.
        best: the best settings among them.
    """
    seen = [one.options for one in tried]
    for name in space.values:
        if not any(name in options for options in seen):
            options = space.alone(name, best)
            if options not in seen:
                return options
    return _sampled(space, tried, seen) or next((one for one in space.combinations() if one not in seen), None)


def _sampled(space: Space, tried: Sequence[ScoredOptions], seen: Sequence[Options]) -> Options | None:
    import optuna  # takes a second, and only a search needs it

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    kinds = {name: optuna.distributions.CategoricalDistribution((None, *of)) for name, of in space.values.items()}
    trials = []
    for one in tried:
        parameters = {name: one.options.get(name) for name in space.values if space.matters(name, one.options)}
        trials.append(
            optuna.trial.create_trial(
                params=parameters, distributions={name: kinds[name] for name in parameters}, value=one.score
            )
        )
    for attempt in range(SEEDS):
        sampler = optuna.samplers.TPESampler(seed=SEEDS * len(tried) + attempt, n_startup_trials=0)
        study = optuna.create_study(direction="maximize", sampler=sampler)
        study.add_trials(trials)
        trial = study.ask()
        options: Options = {}
        for name, values in space.values.items():
            if space.matters(name, options):
                options[name] = trial.suggest_categorical(name, (None, *values))
        options = space.reduced(options)
        if options not in seen:
            return options
    return None
