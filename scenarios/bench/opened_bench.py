"""The record of a bench at its start: a new record, or the record that the same command continues."""

from collections.abc import Iterator

from rich.console import Console

from qsl.tokenizers import BYTES
from runs.bench.bench_record import BenchRecord, Conditions, Fact, read_bench_record
from runs.errors import InputError, SetupError
from runs.record.fingerprint import Facts, changes, conditions_of
from runs.record.layout import BENCH_FILE
from runs.record.planned_fingerprint import machine_now, planned_fingerprint
from runs.wording import counted
from scenarios.bench.bench_plan import Bench
from scenarios.console import say
from scenarios.discarded import set_aside
from scenarios.launch.plan import PreparedRun
from scenarios.resumed import CHANGED_FIX, DISCARDED, LOCK, model_hashes
from scenarios.served_commands import SERVER_LOG
from sut.http.dialects import DIALECTS


def planned_conditions(bench: Bench, prepared: PreparedRun) -> Conditions:
    """Return the conditions that are known before the start."""
    facts = planned_fingerprint(
        prepared.plan, prepared.user_conf, prepared.run_dir, model_hashes(prepared), machine_now()
    )
    conditions = {key: value for key, value in facts.items() if not key.startswith("user.conf ")}
    return conditions_with(bench, conditions, Conditions(equal={}, system={}))


def conditions_with(bench: Bench, facts: Facts, before: Conditions) -> Conditions:
    """Return the conditions with the facts of a run."""
    equal, system = conditions_of(facts, of_bench=True)
    dialect = DIALECTS.get(bench.values.get("api_dialect", ""))
    counting: dict[str, Fact] = {"token_counting": "token IDs"}
    if dialect is not None and dialect.sends_text:
        otherwise = "chunks" if bench.values.get("model_path") == BYTES else "tokenizer on text"
        counting = {"token_counting": f"usage of the server, else {otherwise}"}
    return Conditions(
        equal=before.equal | equal | counting | bench.equal_conditions(),
        system=before.system | system | bench.other_conditions(),
    )


def open_bench_record(bench: Bench, now: Conditions, console: Console, restart_changed: bool) -> BenchRecord:
    """Return the record of the directory, or a new one.

    Raises:
        InputError: If the directory has a bench with another command or configuration.
        SetupError: If it has other files.
    """
    folder = bench.folder
    entries = sorted(path for path in folder.iterdir() if path.name not in (LOCK, DISCARDED, SERVER_LOG))
    if (folder / BENCH_FILE).exists():
        record = read_bench_record(folder / BENCH_FILE)
        changes = list(_changed(bench, record, now))
        if not changes:
            # Failed and unfinished runs are repeated.
            kept = [run for run in record.runs if run.verdict != "failed"]
            record = record.model_copy(update={"runs": kept, "status": "running", "error": None})
            if kept:
                say(console, f"continued after {counted(len(kept), 'run')}")
            return record
        what = f"{folder} has a bench with another command or configuration:\n" + "\n".join(
            f"  {change}" for change in changes
        )
        if not restart_changed:
            raise InputError(what, CHANGED_FIX)
        say(console, f"{what}\nthe earlier files are now in {set_aside(entries, folder / DISCARDED)}")
    elif entries:
        raise SetupError(f"{entries[0]} already exists and does not belong to a bench", "give a new --output-log-dir")
    like = bench.like
    return BenchRecord(
        status="running",
        label=bench.label,
        metadata=bench.metadata,
        command=bench.command,
        target=bench.target,
        model=bench.values.get("api_model_name"),
        tokenizer=None if bench.values.get("model_path") == BYTES else bench.values.get("model_path"),
        conditions=now,
        limits=bench.limits,
        percentile=like.percentile if like is not None else None,
        percentile_reason=f"the percentile of {like.label}" if like is not None else "",
        accelerators=_accelerators(now),
    )


def _changed(bench: Bench, then: BenchRecord, now: Conditions) -> Iterator[str]:
    """Yield the differences between the record of a bench and the command that would continue it."""
    ignored = {"--restart-changed", "--resume"}
    commands = [[word for word in words if word not in ignored] for words in (then.command, bench.command)]
    if commands[0] != commands[1]:
        yield f"command: {' '.join(then.command)} in the earlier bench, {' '.join(bench.command)} now"
    facts = now.equal | now.system
    conditions = then.conditions.equal | then.conditions.system
    yield from changes({key: conditions.get(key) for key in facts}, facts)


def _accelerators(conditions: Conditions) -> int | None:
    names = conditions.system.get("accelerators.name")
    return len(names.split(", ")) if isinstance(names, str) and names else None
