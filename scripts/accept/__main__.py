"""`python -m scripts.accept`: measure what the product promises on this machine, into one directory to hand over."""

import argparse
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from qsl.embedded.articles import bundled_dataset
from qsl.embedded.default_model import ensure_default_model
from runs.accelerators import accelerators
from runs.environment import harness_facts, host_facts, software_versions
from runs.errors import ERROR_BY_EXIT_CODE, ExecutionError, ExitCode, HarnessError
from runs.files import write_atomic
from scenarios.held_directory import held
from scenarios.leg.supervisor import signals_raise
from sut.engines import engine_kind

from .acceptance import Acceptance, Asked, user_conf
from .machine import layouts
from .sizes import EMBEDDED_ON_CPU, ON_CPU, SMALLEST, AcceptSizes
from .steps import Steps
from .table import write_table

MINUTES = 45.0
DOCTOR_S = 60.0


def main(arguments: list[str] | None = None) -> int:
    """Run the program; returns the exit code."""
    options = _parser().parse_args(arguments)
    folder: Path = options.output_dir.resolve()
    try:
        with held(folder / "accept.lock", "acceptance"), signals_raise():
            return _accept(options, folder)
    except HarnessError as error:
        print(f"error: {error}", file=sys.stderr)
        if error.exit_code == ExitCode.INTERRUPTED:
            print("the same command goes on from here", file=sys.stderr)
        return error.exit_code


def _accept(options: argparse.Namespace, folder: Path) -> int:
    head = {
        "command": " ".join(["python -m scripts.accept", *sys.argv[1:]]),
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "harness": harness_facts(),
        "host": host_facts(),
        "accelerators": accelerators(),
        "software": software_versions(),
    }
    asked = _asked(options)
    notes = [asked.sizes.why] if asked.sizes.why else []
    (folder / "steps").mkdir(exist_ok=True)
    conf = folder / "accept.user.conf"
    write_atomic(conf, user_conf(asked.sizes))
    steps = Steps(folder, options.minutes * 60, _say)
    plan_options = ["run", "--scenario", "Offline", "--dry-run", *asked.engine, *asked.data, "--user-conf", str(conf)]
    plan = steps.command("plan", plan_options, expected_s=0.0)
    if not plan.answered:
        raise ERROR_BY_EXIT_CODE.get(plan.exit_code or 0, ExecutionError)(f"no leg can run: {plan.error}")
    found = layouts(options.engine, plan.answer["replicas"])
    acceptance = Acceptance(asked, found, steps, conf)
    _say(f"{folder}: {', then '.join(layout.words for layout in found)}; {options.minutes:g} minutes at most")
    try:
        doctor = steps.command("doctor", ["doctor", *asked.accuracy_data], expected_s=DOCTOR_S)
        missing = missing_of(doctor.answer)
        acceptance.table.verdict(
            "doctor", "nothing missing", "; ".join(missing) or doctor.error or "nothing missing", doctor.exit_code == 0
        )
        acceptance.run()
    finally:
        write_table(folder, head, notes, acceptance.table, steps.outcomes)
    print((folder / "accept.md").read_text())
    _say(f"wrote {folder / 'accept.md'} and accept.json; hand over the whole directory")
    if any(one.exit_code is not None and not one.answered for one in steps.outcomes):
        return ExitCode.FAILED
    return ExitCode.NEGATIVE if acceptance.table.missed else ExitCode.OK


def missing_of(answer: Mapping[str, Any]) -> list[str]:
    """What the doctor misses, by its answer."""
    return [finding["text"] for finding in answer.get("findings", []) if finding["severity"] == "error"]


def _asked(options: argparse.Namespace) -> Asked:
    """What is run."""
    kind = engine_kind(options.engine)
    named = {name: value for name in ("model_path", "dataset_path") if (value := getattr(options, name)) is not None}
    sizes = _sizes(options, kind.computes_on_cpu())
    data = dict(named)
    if sizes.opening_words is not None and not named:
        model = ensure_default_model(_say)
        data = {"model_path": str(model), "dataset_path": str(bundled_dataset(str(model), sizes.opening_words))}
    engine = ["--engine", options.engine, *options.leg_options]
    return Asked(engine, _flags(data), _flags(named), options.engine == "vllm", sizes)


def _sizes(options: argparse.Namespace, on_cpu: bool) -> AcceptSizes:
    if options.smallest:
        return SMALLEST
    if not on_cpu:
        return AcceptSizes()
    return ON_CPU if options.model_path or options.dataset_path else EMBEDDED_ON_CPU


def _flags(values: dict[str, object]) -> list[str]:
    return [word for name, value in values.items() for word in (f"--{name.replace('_', '-')}", str(value))]


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {text}", flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m scripts.accept",
        description="Accept a machine: doctor, Offline, Server and Interactive at rates that a short tune finds, with "
        "one engine and with replicas on all devices, LLM.generate beside them, accuracy, the caching audit; one table "
        "of target, measured, met. A step that fails is recorded and the rest goes on; the same command goes on after "
        "an interruption.",
        epilog="Options behind -- are given to every leg. Exit codes: 0 all targets met, 1 one missed or not measured, "
        "2 bad input, 3 cannot start, 4 a step failed, 130 interrupted.",
    )
    parser.add_argument("--model-path", metavar="MODEL", help="default: the embedded model (not official)")
    parser.add_argument("--dataset-path", type=_absolute, metavar="FILE", help="default: the bundled articles")
    parser.add_argument(
        "--output-dir", type=Path, default=Path("output/accept"), metavar="DIR", help="for everything (output/accept)"
    )
    parser.add_argument("--minutes", type=float, default=MINUTES, metavar="M", help=f"at most ({MINUTES:g})")
    parser.add_argument("--engine", default="vllm", choices=("vllm", "dummy"), help="vllm; dummy shows that it runs")
    parser.add_argument("--smallest", action="store_true", help="tiny sizes: the figures mean nothing")
    parser.add_argument("leg_options", nargs="*", metavar="-- OPTION…", help="of `main.py run`, for every leg")
    return parser


def _absolute(text: str) -> Path:
    return Path(text).resolve()


if __name__ == "__main__":
    sys.exit(main())
