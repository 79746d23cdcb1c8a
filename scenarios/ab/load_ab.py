"""The check of the command line of a comparison, and the plan that follows from it."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from runs.bench.bench_record import Fact
from runs.bench.find_bench import file_name
from runs.errors import InputError
from runs.harness import PROGRAM
from runs.mistakes import Mistakes
from scenarios.ab.ab_options import MIN_BLOCK_S, RATES, Ab, AbOptions, ComparedSystem
from scenarios.bench.bench_plan import Bench
from scenarios.bench.ladder import LoadStep
from scenarios.bench.load import load_bench
from scenarios.bench.options import NOT_FOR_BENCHES
from scenarios.checked_options import check_options
from scenarios.launch.run_config import load_yaml
from scenarios.served_commands import served_values

NAMES = "ABCDEFGH"
_URL = re.compile(r"https?://|([\w.-]+|\[[\da-f:]+\]):\d+(/|$)")


def load_ab(
    command: Sequence[str],
    targets: Sequence[str],
    ab_values: Mapping[str, Any],
    bench_values: Mapping[str, Any],
    runs: Mapping[str, Any],
) -> Ab:
    """Check the options of a comparison and resolve every default.

    Args:
        command: Words of the command line.
        targets: URLs, YAML files or models.
        ab_values: Fields of `AbOptions`.
        bench_values: Fields of `BenchOptions`.
        runs: Fields of `RunConfig`.

    Raises:
        InputError: If options, files or servers are wrong; the message lists all mistakes and fixes.
    """
    mistakes = Mistakes("ab")
    options = check_options(mistakes, AbOptions, dict(ab_values), f"see `{PROGRAM} ab --help-all`")
    assert options is not None  # No option is required.
    if options.block is not None and options.block < MIN_BLOCK_S:
        mistakes.add(f"--block {options.block:g}: must be at least {MIN_BLOCK_S:g} s", "write --block 20s")
    _check_number(mistakes, targets, options.serve)
    mistakes.refuse()
    values = {"rates": RATES, "limits": "none", **bench_values, "label": "ab"}
    if "concurrency" in bench_values:
        del values["rates"]
    systems: list[ComparedSystem] = []
    sides = [*((url, None) for url in targets), *((serve, serve) for serve in options.serve)]
    for name, (target, serve) in zip(NAMES, sides, strict=False):
        with mistakes.collected():
            bench = _bench(list(command), target, serve, values, runs)
            systems.append(ComparedSystem(name, target, bench, bench.values["serve"][0] if serve else None))
    mistakes.refuse()
    base = systems[0].bench
    systems = [replace(system, bench=replace(system.bench, prompts=base.prompts)) for system in systems]
    _check_conditions(systems)
    urls = [str(system.bench.values.get("api_server")) for system in systems]
    are_servers = not options.serve and all("api_server" in system.bench.values for system in systems)
    is_open_loop = all(step.kind == "server" for step in loads_of(base.steps))
    notes = list(dict.fromkeys(note for system in systems for note in system.bench.notes))
    is_together = are_servers and len(set(urls)) in (1, len(urls))
    if len(set(urls)) < len(urls) and are_servers:
        notes.append("two systems are one server: their prompts differ, so that no prompt is in the prefix cache")
    folder = bench_values.get("output_log_dir") or Path("output") / f"ab-{_folder_name(systems)}"
    return Ab(
        command=list(command),
        folder=Path(folder),
        systems=systems,
        steps=base.steps,
        method="interleaved" if is_together and not options.turns and is_open_loop else "turns",
        precision=options.precision,
        max_time_s=options.max_time,
        fail_if_slower=options.fail_if_slower,
        block_s=options.block,
        seed=base.seed,
        has_equal_urls=len(set(urls)) < len(urls),
        notes=notes,
    )


def conditions_of_ab(ab: Ab) -> dict[str, Fact]:
    """Return the conditions that all systems share."""
    facts = ab.base.equal_conditions()
    return {name: value for name, value in facts.items() if name != "duration_s"}


def _folder_name(systems: Sequence[ComparedSystem]) -> str:
    names = (file_name(Path(system.target.split()[-1] if system.serve else system.target).name) for system in systems)
    return "-".join(name[-30:].strip("-.") or "system" for name in names)


def _check_number(mistakes: Mistakes, targets: Sequence[str], serve: Sequence[str]) -> None:
    if targets and serve:
        mistakes.add("--serve with a URL, file or model: exclude each other", "give one --serve for each system")
    elif len(targets) + len(serve) < 2:
        subject = targets[0] if targets else "--serve" if serve else "no system"
        mistakes.add(f"ab {subject}: two systems are required", "write, for example, ab URL_A URL_B")
    elif len(targets) + len(serve) > len(NAMES):
        mistakes.add(f"ab: at most {len(NAMES)} systems", "give fewer systems")


def _bench(
    command: list[str], target: str, serve: str | None, bench_values: Mapping[str, Any], runs: Mapping[str, Any]
) -> Bench:
    values = dict(runs)
    words = [target]
    if serve is not None:
        values = {**served_values(serve), **values}
        words = []
    elif not _URL.match(target) and (Path(target).suffix in (".yaml", ".yml") or Path(target).is_file()):
        file = load_yaml(Path(target))
        values = {**{key: value for key, value in file.items() if key not in NOT_FOR_BENCHES}, **values}
        words = []
    return load_bench(command, words, bench_values, values, {})


def _check_conditions(systems: Sequence[ComparedSystem]) -> None:
    base, *candidates = systems
    for candidate in candidates:
        before, after = base.bench.equal_conditions(), candidate.bench.equal_conditions()
        unequal = [name for name in before | after if before.get(name) != after.get(name)]
        dialects = {str(system.bench.values.get("api_dialect", "")) for system in (base, candidate)}
        if unequal or len(dialects) > 1:
            name = unequal[0] if unequal else "api_dialect"
            texts = [before.get(name), after.get(name)] if unequal else sorted(dialects)
            raise InputError(
                f"{base.target} and {candidate.target} are not comparable: {name} {texts[0]} and {texts[1]}",
                "give equal data, lengths and dialects, for example with --input-len, --output-len and --api-dialect",
            )


def loads_of(steps: Sequence[LoadStep]) -> list[LoadStep]:
    """Return the loads to compare, without the Offline run that shares refer to."""
    if any(step.share is not None for step in steps):
        return [step for step in steps if step.kind != "offline"]
    return list(steps)
