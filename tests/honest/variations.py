"""Ways in which an honest result differs from the plainest one. Each changes a copy as the circumstance would.

A variation gets the two legs of a result (performance, accuracy). Files that only the leg's own process writes are
sealed anew.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from runs.record.attestation import attest, signer_of
from runs.record.layout import RunDir
from runs.record.progress import PHASES
from tests.honest.clocks import CLOCKS, run_at, utc
from tests.honest.pair import Pair, Variation, close, lagged, manifest_of, told, varied
from tests.honest.places import PLACES
from tests.signoff.forge.faults import set_manifest
from tests.signoff.forge.rebuilt_faults import rebuild, scale_clock
from tests.signoff.forge.record_faults import each_record, stretch_requests
from tests.support.editing import reseal

VARIATIONS: dict[str, Variation] = {**CLOCKS, **PLACES}
OFFLINE_TOO = frozenset({"new-year", "moved", "busy", "renamed-host", "two-localhosts"})


# Campaigns ------------------------------------------------------------------------------------------------------------


@varied(VARIATIONS, "resumed-campaign")
def _resumed(pair: Pair) -> None:
    """What was interrupted lies beside."""
    lost = pair.root / "discarded" / "performance-1"
    shutil.copytree(pair.performance.root, lost)
    told(RunDir(lost), status="interrupted", exit_code=130)
    for name in ("mlperf_log_summary.txt", "mlperf_log_detail.txt"):
        (lost / name).unlink()


@varied(VARIATIONS, "interrupted-audit-beside")
def _audit_beside(pair: Pair) -> None:
    (pair.root / "audit" / "TEST06").mkdir(parents=True)


@varied(VARIATIONS, "commented-configuration")
def _commented(pair: Pair) -> None:
    for run in pair.legs:
        run.user_conf.write_text("# rates of Monday\n\n" + run.user_conf.read_text())
        close(run)


@varied(VARIATIONS, "data-set-by-another-name")
def _other_name(pair: Pair) -> None:
    data = Path(manifest_of(pair.accuracy)["plan"]["dataset_path"])
    copy = pair.root.with_name("cnn_eval.json")
    shutil.copy(data, copy)
    told(pair.accuracy, plan__dataset_path=str(copy))


# Machines -------------------------------------------------------------------------------------------------------------


_BOOT = "observed__host__boot_id"
# Other facts in the records: of the performance leg and of the accuracy leg; one for both where there is one.
FACTS: dict[str, tuple[dict[str, Any], ...]] = {
    "no-git": ({"observed__harness__git_commit": None, "observed__harness__git_changed": None},),
    "environment-elsewhere": ({}, {"observed__loadgen__extension": "/scratch/venv/mlperf_loadgen.so"}),
    "other-place-for-the-output": ({}, {"asked__output_log_dir": "/mnt/results/accuracy"}),
    "started-by-another-user": (
        {"asked__output_log_dir": "/home/ada/über/out", "asked__user_conf": "/home/ada/user.conf"},
    ),
    "processor-times-unreadable": ({"observed__contention": {"not_recorded": "/proc/stat: Permission denied"}},),
    "renamed-host": (  # the lease of its address ended
        {"observed__host__hostname": "ip-10-0-0-7", _BOOT: "0b7a"},
        {"observed__host__hostname": "ip-10-0-0-9", _BOOT: "0b7a"},
    ),
    "container-anew": ({"observed__host__hostname": "3f1c9aa1"}, {"observed__host__hostname": "77be0021"}),
    "rebooted-between": ({_BOOT: "0b7a"}, {_BOOT: "91cc"}),
    "no-boot-id": ({_BOOT: None},),
    "ports-differ": (
        {"plan__environment": {"VLLM_PORT": "29500", "VLLM_HOST_IP": "10.0.0.0"}},
        {"plan__environment": {"VLLM_PORT": "29617", "VLLM_HOST_IP": "10.0.0.7"}},
    ),
    "host-without-a-processor-name": ({"observed__host__cpu": "", "observed__host__cores_logical": None},),
    "leg-over-in-a-moment": (
        {"observed__loop_lag": {"p99_ms": 0.1, "worst_ms": 0.1, "moments": 1, "interval_ms": 10.0}},
    ),
}  # fmt: skip


def _facts(of_legs: tuple[dict[str, Any], ...]) -> Variation:
    def variation(pair: Pair) -> None:
        for run, facts in zip(pair.legs, (of_legs * 2)[:2], strict=True):
            told(run, **facts)

    return variation


VARIATIONS |= {name: _facts(of_legs) for name, of_legs in FACTS.items()}


def _busy(share: float) -> Variation:
    def variation(pair: Pair) -> None:
        for run in pair.legs:
            window_s = _window_s(run)
            foreign_s = round(share * 2 * window_s, 2)
            told(
                run,
                observed__contention={
                    "window_s": round(window_s, 4), "usable_cores": 2, "busy_cpu_s": foreign_s + 0.25,
                    "own_cpu_s": 0.25, "stolen_cpu_s": 0.0, "foreign_cpu_s": foreign_s, "load_average_start": 9.0,
                    "load_average_end": 12.5,
                },
            )  # fmt: skip

    return variation


def _window_s(run: RunDir) -> float:
    records = [orjson.loads(line) for line in run.requests.read_bytes().splitlines()]
    return (max(one["complete_ns"] for one in records) - min(one["issue_ns"] for one in records)) / 1e9


VARIATIONS["busy"] = _busy(0.3)
VARIATIONS["very-busy"] = _busy(0.95)


@varied(VARIATIONS, "fast-legs-on-a-busy-machine")
def _disturbed(pair: Pair) -> None:
    """An engine that needs next to nothing waits for the cores, in the accuracy leg eight times as long as before."""
    slowed(pair.accuracy, 8)
    _busy(0.95)(pair)


def slowed(run: RunDir, factor: int) -> None:
    """All of an accuracy leg, so many times as long."""
    before_s = _window_s(run)
    stretch_requests(run, factor)
    scale_clock(run, factor)
    by_ns = int((_window_s(run) - before_s) * 1e9)
    manifest = manifest_of(run)
    set_manifest(run, "end_time_ns", manifest["end_time_ns"] + by_ns)
    running_s = manifest["observed"]["start_stages"][PHASES["running"]] + by_ns / 1e9
    set_manifest(run, f"observed.start_stages.{PHASES['running']}", running_s)
    reseal(run)
    reseal(run)


def _late(by_ns: Callable[[int, int], int]) -> Variation:
    """LoadGen is late with queries of a Server leg, and their answers are, so its results too.

    `by_ns`: of the number of a query, and of its time from the first.
    """

    def variation(pair: Pair) -> None:
        run = pair.performance
        times_ns = [orjson.loads(line)["issue_ns"] for line in run.requests.open("rb")]

        def edit(one: dict[str, Any]) -> dict[str, Any]:
            late_ns = by_ns(one["seq"], one["issue_ns"] - min(times_ns)) if one["seq"] <= len(times_ns) - 250 else 0
            return one | {name: one[name] + late_ns for name in ("issue_ns", "first_token_ns", "complete_ns")}

        each_record(run, edit)
        rebuild(run, 1)
        reseal(run)
        reseal(run)

    return variation


def _now_and_then(by_ms: int, every: int) -> Variation:
    return _late(lambda seq, _: by_ms * 1_000_000 * (seq % every == 0))


def _stopped(for_ms: int) -> Variation:
    """A machine is stopped as the second query is due; then all that is overdue is issued."""
    return _late(lambda seq, since_ns: max(0, for_ms * 1_000_000 + 5_000 * seq - since_ns) * (seq > 0))


@varied(VARIATIONS, "slow-event-loop")
def _slow_loop(pair: Pair) -> None:
    for run in pair.legs:
        lagged(run, {**manifest_of(run)["observed"]["loop_lag"], "p99_ms": 120.0, "worst_ms": 900.0})


def _at_once(first: tuple[str, str | None], second: tuple[str, str | None]) -> Variation:
    """Both legs at the same time, each on its machine (name, boot id)."""

    def variation(pair: Pair) -> None:
        for run in pair.legs:
            run_at(run, utc(2026, 11, 22, 8))
        for run, (name, boot) in zip(pair.legs, (first, second), strict=True):
            told(run, observed__host__hostname=name, observed__host__boot_id=boot)

    return variation


VARIATIONS["two-localhosts"] = _at_once(("localhost", "0b7a"), ("localhost", "91cc"))
VARIATIONS["two-localhosts-without-boot-id"] = _at_once(("localhost", None), ("localhost", None))


@varied(VARIATIONS, "same-process-number-after-a-reboot")
def _same_pid(pair: Pair) -> None:
    """Containers number their processes anew."""
    pid, old = (manifest_of(run)["pid"] for run in pair.legs)
    for path in (pair.accuracy.detail, pair.accuracy.manifest):
        path.write_text(path.read_text().replace(f'"pid": {old}', f'"pid": {pid}'))
    close(pair.accuracy)


@varied(VARIATIONS, "less-memory-after-a-reboot")
def _less_memory(pair: Pair) -> None:
    told(
        pair.accuracy,
        observed__host__memory_bytes=manifest_of(pair.accuracy)["observed"]["host"]["memory_bytes"] - 4_194_304,
    )


@varied(VARIATIONS, "warm-up-longer")
def _warm_up(pair: Pair) -> None:
    run_at(pair.accuracy, utc(2026, 11, 22, 8))
    run_at(pair.performance, utc(2026, 11, 22, 10))
    for run in pair.legs:
        told(run, start_time_ns=manifest_of(run)["start_time_ns"] - 1_800_000_000_000)


@varied(VARIATIONS, "configuration-of-another-editor")
def _crlf(pair: Pair) -> None:
    for run in pair.legs:
        run.user_conf.write_bytes(run.user_conf.read_bytes().replace(b"\n", b"\r\n").replace(b" = ", b"\t=  "))
        close(run)


@varied(VARIATIONS, "discarded-legs-beside")
def _discarded(pair: Pair) -> None:
    for number in (1, 2):
        shutil.copytree(pair.accuracy.root, pair.root / "discarded" / f"{number}-accuracy")
    (pair.root / "discarded" / "1-accuracy" / "mlperf_log_detail.txt").write_bytes(b"")


@varied(VARIATIONS, "process-numbers-of-a-large-machine")
def _large_pids(pair: Pair) -> None:
    for run, pid in zip(pair.legs, (4_194_303, 4_194_301), strict=True):
        old = manifest_of(run)["pid"]
        for path in (run.detail, run.manifest):
            path.write_text(path.read_text().replace(f'"pid": {old}', f'"pid": {pid}'))
        close(run)


@varied(VARIATIONS, "legs-signed-with-different-keys")
def _two_keys(pair: Pair) -> None:
    for run in pair.legs:
        attest(run, signer_of(Ed25519PrivateKey.generate()), record_version=3, harness_commit=None, previous=None)


@varied(VARIATIONS, "as-many-replicas-as-devices")
def _one_device(pair: Pair) -> None:
    """Of which there is one, so that no replicas were made."""
    for run in pair.legs:
        told(run, asked={**manifest_of(run)["asked"], "replicas": "auto"})


@varied(VARIATIONS, "asked-in-a-file")
def _asked(pair: Pair) -> None:
    """By a YAML file that names defaults, too."""
    for run in pair.legs:
        asked = manifest_of(run)["asked"]
        told(
            run,
            asked={
                **asked,
                "enable_log_trace": False,
                "sampling_arg": {},
                "mechanism": None,
                "accuracy": run != pair.performance,
            },
        )


LATE: dict[str, Variation] = {  # of a Server leg
    "late-159-ms": _now_and_then(159, 16), "late-338-ms": _now_and_then(338, 40), "stopped-900-ms": _stopped(900)
}  # fmt: skip
