"""The scheduling options that a search may change, with their values and effects on a run.

These options decide only when work is computed. Options that lose precision, reuse work across queries or change a
response are excluded, so that every search follows the rules.
"""

import dataclasses
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from runs.errors import InputError
from scenarios.launch.run_config import RunConfig, make_config
from scenarios.tune.journal import SchedulingOptions
from sut.engine_kind import EngineKind
from sut.engines import engine_kind
from sut.vllm.parallel import parallel_size

# Options of `run`. The dummy engine's slots correspond to max_num_seqs.
ADMISSION_BOUNDS = ("admission_tokens", "admission_queries")  # no effect with admission off
RUN_OPTIONS = ("admission", *ADMISSION_BOUNDS, "dummy_slots")
# Searched options in their order of trials, after the options that they depend on. The other options are vLLM's
# engine arguments. [vllm 0.32 SchedulerConfig, ParallelConfig]
ALLOWED = (
    "data_parallel_size", "max_num_seqs", *RUN_OPTIONS, "max_num_batched_tokens", "long_prefill_token_threshold",
    "async_scheduling",
)  # fmt: skip


@dataclass(frozen=True)
class Space:
    """The options and values of a search."""

    values: Mapping[str, tuple[Any, ...]]  # option → values to try in addition to the given value
    admission: str = "off"  # admission policy, unless the search sets it
    copies: int = 1  # number of model replicas in all engines, unless the search sets it
    # maximum number of concurrent queries in all replicas with output tokens within their limit; 0 if unknown
    in_time: int = 0

    def with_queries_in_time(self, queries: int) -> "Space":
        """Return the space with a `max_num_seqs` that keeps the output tokens of each copy within their limit.

        vLLM adds queries to its batch up to this number. In a burst, each further query slows the output tokens of all
        queries. A query in vLLM's queue delays only its own first token, which has a longer limit.
        """
        copies = (self.copies, *self.values.get("data_parallel_size", ()))
        bounds = {max(1, queries // number) for number in copies}
        seqs = tuple(sorted(bounds.union(self.values["max_num_seqs"])))
        return dataclasses.replace(self, values={**self.values, "max_num_seqs": seqs}, in_time=queries)

    def alone(self, name: str, best: SchedulingOptions) -> SchedulingOptions:
        """Return the best settings with one option at its likeliest or middle value, and the options that it needs."""
        likely = _middle(self.values[name])
        if name == "max_num_seqs" and self.in_time:
            likely = max(1, self.in_time // best.get("data_parallel_size", self.copies))
        options = {**best, name: likely}
        if not self.matters(name, options) and "admission" in self.values:
            options["admission"] = _middle(self.values["admission"])
        return self.reduced(options)

    def matters(self, name: str, options: SchedulingOptions) -> bool:
        """Return whether an option has an effect in combination with these options."""
        return name not in ADMISSION_BOUNDS or (options.get("admission") or self.admission) != "off"

    def reduced(self, options: SchedulingOptions) -> SchedulingOptions:
        """Remove options without a value or an effect, so that equal settings are equal dictionaries."""
        return {
            name: options[name] for name in self.values if options.get(name) is not None and self.matters(name, options)
        }

    def without(self, name: str, options: SchedulingOptions) -> SchedulingOptions:
        """Return the settings with one option reset."""
        return self.reduced({key: value for key, value in options.items() if key != name})

    def combinations(self) -> Iterator[SchedulingOptions]:
        """Yield all settings once, the defaults first."""
        for row in itertools.product(*((None, *values) for values in self.values.values())):
            options = dict(zip(self.values, row, strict=True))
            complete = {name: value for name, value in options.items() if value is not None}
            if self.reduced(options) == complete:
                yield complete

    def count(self) -> int:
        return sum(1 for _ in self.combinations())


def make_space(
    config: RunConfig, requested: Mapping[str, Any], kind: EngineKind[Any] | None = None, *, replicas: int = 0
) -> Space:
    """Return the options to search.

    Args:
        config: Options of the runs. An option that the user gave is searched only on request, from its value.
        requested: Option → values to try instead of the usual values; empty for the usual values.
        kind: Engine kind with the usual values; None = the kind in `config`.
        replicas: Number of replicas of the runs; 0 = one engine, or a number that is not planned yet.

    Raises:
        InputError: If an option cannot be searched, a value is not allowed, or no option remains.
    """
    current = {**config.engine_arg, **config.model_dump(include=set(RUN_OPTIONS), exclude_unset=True)}
    if requested:
        chosen = {name: _checked(name, values, current, config) for name, values in requested.items()}
    else:
        kind = kind or engine_kind(config.engine)
        usual = kind.search_values(config)
        if replicas or config.has_replicas:
            usual.pop("data_parallel_size", None)  # The replicas use all devices and cores.
        chosen = {name: values for name, values in usual.items() if name not in current}
    if "admission" in chosen:
        chosen["admission"] = tuple(policy for policy in chosen["admission"] if policy != config.admission)
    elif config.admission == "off":
        for name in ADMISSION_BOUNDS:
            if name in requested:
                raise InputError(
                    f"--search-values {name}: no effect with admission off",
                    "set --admission, or add --search-values admission='[\"fcfs\"]'",
                )
            chosen.pop(name, None)
    chosen = {name: values for name, values in chosen.items() if values}
    if not chosen:
        raise InputError("--search: every searched option is already given", "add --search-values OPTION=VALUES")
    copies = max(1, replicas) * parallel_size(config.engine_arg, "data_parallel_size")
    return Space({name: chosen[name] for name in ALLOWED if name in chosen}, config.admission, copies)


def applied(values: dict[str, Any], options: SchedulingOptions) -> dict[str, Any]:
    """Return the fields of RunConfig of a run with these options."""
    changed = values | {name: value for name, value in options.items() if name in RUN_OPTIONS}
    if engine := {name: value for name, value in options.items() if name not in RUN_OPTIONS}:
        changed["engine_arg"] = {**changed.get("engine_arg", {}), **engine}
    return changed


def shown(options: SchedulingOptions) -> str:
    """Return the options as text."""
    return ", ".join(f"{name}={value}" for name, value in options.items()) or "defaults"


def _middle(values: tuple[Any, ...]) -> Any:
    return values[len(values) // 2]


def _checked(name: str, requested: Any, current: dict[str, Any], config: RunConfig) -> tuple[Any, ...]:
    flag = f"--search-values {name}"
    if name not in ALLOWED:
        raise InputError(f"{flag}: the search does not support this option", f"choose from {', '.join(ALLOWED)}")
    if not isinstance(requested, list) or not requested:
        raise InputError(f"{flag}={requested}: not a list of values", f"write, for example, {flag}='[64, 128]'")
    for value in requested:
        if isinstance(value, list | dict | float) or value is None:
            raise InputError(f"{flag}: {value!r} is not an allowed value", "give whole numbers or words")
        # An admission bound is allowed only with a policy.
        policy = {"admission": "fcfs"} if name in ADMISSION_BOUNDS else {}
        make_config(applied(config.model_dump(exclude_unset=True), {**policy, name: value}))
    if len(set(requested)) < len(requested):
        raise InputError(f"{flag}={requested}: a value is given twice", "give each value once")
    return tuple(value for value in requested if value != current.get(name))
