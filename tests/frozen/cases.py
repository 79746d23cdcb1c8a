"""The cases of each command: an input and the arguments of the command."""

import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar, cast

import pytest

from runs.benchmark import Scenario
from tests.conftest import ROOT, run_here
from tests.frozen import inputs
from tests.frozen.facts import CommandOutcome, Facts, facts_of, facts_of_page, with_names
from tests.frozen.inputs import Input
from tests.frozen.judge import ask, rule_ids
from tests.redteam.matrix import KINDS
from tests.redteam.virtual_audits import AUDITS, audited
from tests.signoff import backtest
from tests.support.engines.cheats import STORE
from tests.support.mlperf_endpoints.table_day import fix_day
from tests.support.runs.recorded import RESULTS, recorded

FROZEN = Path(__file__).parent
T = TypeVar("T")


@dataclass(frozen=True)
class FrozenCase:
    """A command and its input.

    Its words may contain {input}, {made} (the folder in which the input was created) and {out} (a folder that does not
    exist yet).
    """

    name: str
    input: Input
    words: tuple[str, ...]
    base: str = ""  # case to which this one is compared
    before: tuple[str, ...] = ()  # command that runs first

    def facts(self, folder: Path) -> Facts:
        """Return the findings of the command, in an empty folder."""
        outcome, places = self._run(folder, ask)
        return facts_of(outcome, places)

    def text(self, folder: Path) -> str:
        """Return the exit code and the text that the command prints, in an empty folder."""
        finished, places = self._run(folder, run_here)
        return with_names(f"exit code {finished.code}\n{finished.stdout}--- stderr\n{finished.stderr}", places)

    def _run(self, folder: Path, run: Callable[..., T]) -> tuple[T, dict[Path, str]]:
        """Return what `run` returns for the command, and a name for each directory that it can print."""
        with pytest.MonkeyPatch.context() as monkeypatch:
            monkeypatch.setenv("HF_HUB_OFFLINE", "1")
            fix_day(monkeypatch)
            self.input.rules(monkeypatch)
            made = folder / "made"
            made.mkdir()
            path, out = self.input.make(made), folder / "out"
            for words in filter(None, (self.before, self.words)):
                finished = run(*(word.format(input=path, made=made, out=out) for word in words))
        places = {ROOT: "CHECKOUT", recorded(): "RECORDED", inputs.endpoints(): "RECORDED", out: "OUT", made: "MADE"}
        return finished, places | {path: ""}


@dataclass(frozen=True)
class PageCase:
    """The verification document of an input."""

    name: str
    input: Input
    base: str = ""

    def facts(self, folder: Path) -> Facts:
        """Return the facts of the page."""
        page, path = folder / "page.md", self.input.make(folder)
        outcome = ask("verify", path, "--output", folder / "out", "--document", page)
        facts = facts_of_page(page.read_text(), rule_ids(), {path: ""}) if page.exists() else Facts()
        return facts + Facts([f"code {outcome.code}"])

    def text(self, folder: Path) -> str:
        """Return the page, written in an empty folder."""
        page, path = folder / "page.md", self.input.make(folder)
        run_here("verify", path, "--output", folder / "out", "--document", page)
        return with_names(page.read_text(), {path: "", ROOT: "CHECKOUT", recorded(): "RECORDED", folder: "OUT"})


@dataclass(frozen=True)
class AuditCase:
    """An audit of a system that cheats, in virtual time."""

    audit: str
    kind: str
    scenario: Scenario
    base: str = ""

    @property
    def name(self) -> str:
        return f"{self.audit} {self.scenario} of {self.kind or 'an honest system'}"

    def facts(self, folder: Path) -> Facts:
        """Return the result of the audit, with its runs in an empty folder."""
        with pytest.MonkeyPatch.context() as monkeypatch:
            monkeypatch.setenv(STORE, str(folder / "store"))
            result = audited(self.audit, self.kind, self.scenario, folder)
        if isinstance(result, str):
            return Facts([result])
        return facts_of(CommandOutcome("audit", int(not result.passed), result.record()), {folder: ""})


AnyCase = FrozenCase | PageCase | AuditCase


def _cases_of_inputs(case_inputs: Iterator[Input], *words: str, **options: tuple[str, ...]) -> Iterator[FrozenCase]:
    """Yield a case for each input, compared with the first one if it has no base, and one more for each option."""
    first = ""
    for case_input in case_inputs:
        yield FrozenCase(case_input.name, case_input, words, case_input.base or first)
        first = first or case_input.name
        for name, more in options.items():
            yield FrozenCase(f"{case_input.name} ({name})", case_input, (*words, *more), case_input.name)


def _verify() -> Iterator[FrozenCase]:
    words = ("verify", "{input}", "--output", "{out}")
    yield from _cases_of_inputs(inputs.results(), *words, official=("--official",))
    yield from _cases_of_inputs(inputs.changed_runs(), *words)
    yield from _cases_of_inputs(inputs.mutated_runs(), *words)
    yield from _cases_of_inputs(inputs.pairs(), *words)
    yield from _cases_of_inputs(inputs.results_in_trees(), *words)
    yield from _cases_of_inputs(inputs.folders(), *words, official=("--official",))
    yield from _cases_of_inputs(inputs.mutated_folders(), *words)
    for case_input in inputs.results():
        if case_input.name in RESULTS:
            yield FrozenCase(
                f"{case_input.name} (v6.0)",
                case_input,
                (*words, "--official", "--round", "v6.0"),
                f"{case_input.name} (official)",
            )


def _document() -> Iterator[PageCase]:
    for case_input in (*inputs.results(), *inputs.unusual_pairs()):
        if case_input.rules == inputs.product_rules:
            yield PageCase(case_input.name, case_input, case_input.base)


def _check() -> Iterator[FrozenCase]:
    yield from _cases_of_inputs(inputs.short_trees(), "check", "{input}")
    yield from _cases_of_inputs(inputs.mutated_trees(), "check", "{input}")
    yield from _cases_of_inputs(inputs.any_trees(), "check", "{input}")
    yield from _cases_of_inputs(inputs.folders(), "check", "{input}")
    yield from _cases_of_inputs(inputs.trees_of_nonsense(), "check", "{input}")
    for name in ("v5.1", "v6.0"):
        (short_tree, *_) = inputs.short_trees()
        yield FrozenCase(f"short tree ({name})", short_tree, ("check", "{input}", "--round", name), "short tree")
    yield from _cases_of_inputs(
        inputs.built_trees(), "check", "{input}", "--runs", "{made}/campaign", "--source", "{made}/code"
    )


def _signoff() -> Iterator[FrozenCase]:
    out = ("--out", "{made}/verdict.json")  # recorded runs are only read
    yield from _cases_of_inputs(inputs.results(), "signoff", "--scope", "harness", "--ref", "{input}", *out)
    bundle = ("signoff", "--scope", "bundle", "--ref", "{input}")
    for case_input in inputs.results():
        if case_input.name.endswith("campaign"):
            yield FrozenCase(f"{case_input.name} (bundle)", case_input, (*bundle, *out), case_input.name)
    yield from _cases_of_inputs(inputs.pairs(), *bundle)
    for case, made in inputs.signoff_cases():
        ref, cand = ([f"{{input}}/{name}" for name in side] for side in case.sides())
        words = ["signoff", "--scope", case.scope, "--ref", *ref, *(["--cand", *cand] if cand else [])]
        words += ["--claim", f"{{input}}/{backtest.CLAIM}"] if case.claim is not None else []
        yield FrozenCase(made.name, made, tuple(words))


def _gate() -> Iterator[FrozenCase]:
    strict = ("--strict", "--division", "closed")
    yield from _cases_of_inputs(inputs.results(), "gate", "{input}", strict=strict)
    yield from _cases_of_inputs(inputs.unusual_pairs(), "gate", "{input}", strict=strict)
    yield from _cases_of_inputs(inputs.rows(), "gate", "{input}", strict=strict)
    declared = ("gate", "{input}", "--mechanism", "kv_quantization", "--mechanism-variant", "fp8_e4m3")
    for case_input in inputs.results():
        if case_input.name in RESULTS:
            yield FrozenCase(f"{case_input.name} (declared)", case_input, declared, case_input.name)


def _submit() -> Iterator[FrozenCase]:
    words = (
        "submit", "{input}", "--organization", "Org", "--system-name", "Box", "--output", "{out}",
        "--system", "{made}/system.yaml", "--source", "{made}/code", "--documentation", "{made}/documents",
    )  # fmt: skip
    yield from _cases_of_inputs(inputs.campaigns(), *words, "--rehearsal")
    for name, options in {"official": (), "open": ("--rehearsal", "--division", "open")}.items():
        (campaign, *_) = inputs.campaigns()
        yield FrozenCase(f"campaign ({name})", campaign, (*words, *options), "campaign")


def _store() -> Iterator[FrozenCase]:
    db = ("--db", "{out}.sqlite")
    case_inputs = (*inputs.results(), *inputs.unusual_pairs(), *inputs.results_in_trees(), *inputs.folders())
    for case_input in case_inputs:
        if case_input.rules == inputs.product_rules or not case_input.base:
            words = ("store", "export", *db)
            yield FrozenCase(
                case_input.name, case_input, words, case_input.base, before=("store", "ingest", "{input}", *db)
            )


def _results() -> Iterator[FrozenCase]:
    yield from _cases_of_inputs(inputs.results(), "results", "{input}")
    yield from _cases_of_inputs(inputs.unusual_pairs(), "results", "{input}")
    yield from _cases_of_inputs(inputs.folders(), "results", "{input}")


def _audit() -> Iterator[AnyCase]:
    for audit in AUDITS:
        for scenario, kinds in KINDS.items():
            yield from (AuditCase(audit, kind, cast("Scenario", scenario)) for kind in kinds)
    for case_input in inputs.results():
        if case_input.name in RESULTS:
            reference, run = "{input}/accuracy", "{input}/performance/run_1"
            for test, ref in {"output_length": reference, "output_consistency": reference, "TEST04": run}.items():
                words = ("audit", "--test", test, "--ref", ref, "--run", run, "--output-log-dir", "{out}")
                yield FrozenCase(f"{test} {case_input.name}", case_input, words)


@dataclass(frozen=True)
class FrozenCommand:
    """The cases of a command, and the share that `make test` judges: one of so many."""

    cases: Callable[[], Iterator[AnyCase]]
    one_of: int


COMMANDS = {
    "verify": FrozenCommand(_verify, 7),
    "document": FrozenCommand(_document, 8),
    "check": FrozenCommand(_check, 10),
    "signoff": FrozenCommand(_signoff, 10),
    "gate": FrozenCommand(_gate, 4),
    "submit": FrozenCommand(_submit, 4),
    "store": FrozenCommand(_store, 8),
    "results": FrozenCommand(_results, 5),
    "audit": FrozenCommand(_audit, 8),
}


def cases_of(command: str) -> dict[str, AnyCase]:
    """Return the cases of a command by name, in the order of its file."""
    by_name: dict[str, AnyCase] = {}
    for case in COMMANDS[command].cases():
        assert case.name not in by_name, case.name
        assert not case.base or case.base in by_name, case.base
        by_name[case.name] = case
    return by_name


def selected_cases(command: str) -> dict[str, AnyCase]:
    """Return the cases that `make test` judges."""
    return dict(list(cases_of(command).items())[:: COMMANDS[command].one_of])


def facts_of_cases(cases: dict[str, AnyCase]) -> dict[str, Facts]:
    """Return the current facts of each case."""
    facts = {}
    for name, case in cases.items():
        with tempfile.TemporaryDirectory(prefix="frozen-") as folder:
            facts[name] = case.facts(Path(folder))
            let_remove(Path(folder))
    return facts


def let_remove(folder: Path) -> None:
    """Make read-only folders removable for other users than root."""
    for path, folders, _ in os.walk(folder):
        for name in folders:
            if not Path(path, name).is_symlink():
                Path(path, name).chmod(0o755)


def file_of(command: str) -> Path:
    """Return the file with the findings of a command."""
    return FROZEN / f"{command}.txt"
