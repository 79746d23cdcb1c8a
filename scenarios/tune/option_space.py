"""The scheduling options that a search may change, their values, and what they become in a run.

Only options that decide when something is computed, never what: nothing that loses precision, reuses work across
queries or changes a response stands here, so that no search can leave the rules.
"""

import dataclasses
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from runs.errors import InputError
from scenarios.run.config import RunConfig, make_config
from scenarios.tune.journal import Options
from sut.engine_kind import EngineKind
from sut.engines import engine_kind
from sut.vllm.parallel import parallel_size

# Options of `run` itself. The dummy engine's slots stand for max_num_seqs.
ADMISSION_BOUNDS = ("admission_tokens", "admission_queries")  # without effect while admission is off
RUN_OPTIONS = ("admission", *ADMISSION_BOUNDS, "dummy_slots")
# In the order in which they are tried; one that depends on another comes after it. The others are vLLM's engine
# arguments. [vllm 0.32 SchedulerConfig, ParallelConfig]
ALLOWED = (
    "data_parallel_size", "max_num_seqs", *RUN_OPTIONS, "max_num_batched_tokens", "long_prefill_token_threshold",
    "async_scheduling",
)  # fmt: skip


@dataclass(frozen=True)
class Space:
    """The options and values of a search."""

    values: Mapping[str, tuple[Any, ...]]  # for each option, the values tried besides leaving it as it is
    admission: str = "off"  # the admission policy where the search sets none
    copies: int = 1  # of the model, in all engines together, where the search sets none
    # queries that may be in the engine at a time, all copies together, for output tokens within their limit; 0 where it
    # is not known
    in_time: int = 0

    def with_queries_in_time(self, queries: int) -> "Space":
        """With `max_num_seqs` so that no copy has more queries than keep its output tokens in time.

        vLLM admits queries to its batch as long as there is room. In a burst each one more slows the output tokens of
        all, while a query that waits in vLLM's queue only uses its own time to the first token, which is longer.
        """
        copies = (self.copies, *self.values.get("data_parallel_size", ()))
        bounds = {max(1, queries // number) for number in copies}
        seqs = tuple(sorted(bounds.union(self.values["max_num_seqs"])))
        return dataclasses.replace(self, values={**self.values, "max_num_seqs": seqs}, in_time=queries)

    def alone(self, name: str, best: Options) -> Options:
        """The best settings with one option at its likeliest value or the middle one, and what it needs to matter."""
        likely = _middle(self.values[name])
        if name == "max_num_seqs" and self.in_time:
            likely = max(1, self.in_time // best.get("data_parallel_size", self.copies))
        options = {**best, name: likely}
        if not self.matters(name, options) and "admission" in self.values:
            options["admission"] = _middle(self.values["admission"])
        return self.reduced(options)

    def matters(self, name: str, options: Options) -> bool:
        """Whether an option has an effect beside these."""
        return name not in ADMISSION_BOUNDS or (options.get("admission") or self.admission) != "off"

    def reduced(self, options: Options) -> Options:
        """Without options that are left as they are or have no effect: equal settings are equal dictionaries."""
        return {
            name: options[name] for name in self.values if options.get(name) is not None and self.matters(name, options)
        }

    def without(self, name: str, options: Options) -> Options:
        """The settings with one option put back."""
        return self.reduced({key: value for key, value in options.items() if key != name})

    def combinations(self) -> Iterator[Options]:
        """All settings, each once, the defaults first."""
        for row in itertools.product(*((None, *values) for values in self.values.values())):
            options = dict(zip(self.values, row, strict=True))
            kept = {name: value for name, value in options.items() if value is not None}
            if self.reduced(options) == kept:
                yield kept

    def count(self) -> int:
        return sum(1 for _ in self.combinations())


def make_space(
    values: dict[str, Any],
    config: RunConfig,
    asked: Mapping[str, Any],
    kind: EngineKind[Any] | None = None,
    *,
    replicas: int = 0,
) -> Space:
    """The options to be searched.

    Args:
        values: fields of RunConfig that the user gave. What is given is not searched unless it is asked for; then the
            search begins with the value that is given.
        asked: option → values to be tried, instead of the usual ones; empty for those.
        kind: knows the usual ones; None = the kind that `config` names.
        replicas: that the runs have; 0 = one engine, or so many as `config` asks for and nobody has counted yet.

    Raises:
        InputError: an option that is never searched, a value that is not allowed, or nothing to search.
    """
    given = {**config.engine_arg, **{name: values[name] for name in RUN_OPTIONS if name in values}}
    if asked:
        chosen = {name: _checked(name, of, given, values) for name, of in asked.items()}
    else:
        kind = kind or engine_kind(config.engine)
        usual = kind.search_values(config)
        if replicas or config.has_replicas:
            usual.pop("data_parallel_size", None)  # the devices and cores are the replicas'
        chosen = {name: of for name, of in usual.items() if name not in given}
    if "admission" in chosen:
        chosen["admission"] = tuple(policy for policy in chosen["admission"] if policy != config.admission)
    elif config.admission == "off":
        for name in ADMISSION_BOUNDS:
            if name in asked:
                raise InputError(
                    f"--search-values {name} has no effect with admission off",
                    "give --admission a policy, or search admission too",
                )
            chosen.pop(name, None)
    chosen = {name: of for name, of in chosen.items() if of}
    if not chosen:
        raise InputError("--search: every searched option is already given", "use --search-values")
    copies = max(1, replicas) * parallel_size(config.engine_arg, "data_parallel_size")
    return Space({name: chosen[name] for name in ALLOWED if name in chosen}, config.admission, copies)


def applied(values: dict[str, Any], options: Options) -> dict[str, Any]:
    """The fields of RunConfig of a run with these options."""
    changed = values | {name: value for name, value in options.items() if name in RUN_OPTIONS}
    if engine := {name: value for name, value in options.items() if name not in RUN_OPTIONS}:
        changed["engine_arg"] = {**changed.get("engine_arg", {}), **engine}
    return changed


def shown(options: Options) -> str:
    """As text."""
    return ", ".join(f"{name}={value}" for name, value in options.items()) or "defaults"


def _middle(values: tuple[Any, ...]) -> Any:
    return values[len(values) // 2]


def _checked(name: str, asked: Any, given: dict[str, Any], values: dict[str, Any]) -> tuple[Any, ...]:
    flag = f"--search-values {name}"
    if name not in ALLOWED:
        raise InputError(f"{flag}: this option cannot be searched", f"choose from {', '.join(ALLOWED)}")
    if not isinstance(asked, list) or not asked:
        raise InputError(f"{flag}={asked}: not a list of values", f"write {flag}='[64, 128]', for example")
    for value in asked:
        if isinstance(value, list | dict | float) or value is None:
            raise InputError(f"{flag}: {value!r} is not an allowed value", "give whole numbers or words")
        # A bound alone is no allowed setting; with a policy it is.
        policy = {"admission": "fcfs"} if name in ADMISSION_BOUNDS else {}
        make_config(applied(values, {**policy, name: value}))
    if len(set(asked)) < len(asked):
        raise InputError(f"{flag}={asked}: a value is given twice", "give each once")
    return tuple(value for value in asked if value != given.get(name))
