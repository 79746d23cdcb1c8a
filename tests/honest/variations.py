"""Variations of an honest result. Each one changes a copy as the circumstance would.

A variation gets the two runs of a result (performance, accuracy). It returns the place of the result, or None if the
place is unchanged. Runs are attested again after a change of files that only the run's process writes.
"""

import os
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from runs.attestation.signing_key import signer_of
from runs.attestation.statements import attest
from runs.record.layout import RunDir
from runs.record.progress import PHASES
from tests.honest.pair import Pair, manifest_of
from tests.signoff.forge.faults import set_detail
from tests.signoff.forge.forged_runs import rebuild, scale_clock
from tests.signoff.forge.manifest_faults import shift_requests, stretch_requests
from tests.support.files.editing import each_record, read_records, reseal, set_record

Variation = Callable[[Pair], Path | None]
OFFLINE_TOO = frozenset({"new-year", "moved", "busy", "renamed-host", "two-localhosts"})
STAMPS = ("issue_ns", "first_token_ns", "complete_ns")
POWER_TIME = "%m-%d-%Y %H:%M:%S.%f"


def each_run(change: Callable[[RunDir], object]) -> Variation:
    """Apply a change to both runs, and attest them again."""

    def variation(pair: Pair) -> None:
        for run in pair.runs:
            change(run)
            reseal(run)

    return variation


# Times of results -----------------------------------------------------------------------------------------------------


def run_at(run: RunDir, start: datetime) -> None:
    """Change a run as if it had started at this time."""
    before = manifest_of(run)
    by_ns = int(start.timestamp() * 1e9) - before["start_time_ns"]
    shift_requests(run, by_ns)
    for key, form in (("power_begin", POWER_TIME), ("power_end", POWER_TIME), ("test_datetime", "%Y-%m-%dT%H:%M:%SZ")):
        _move(run, key, by_ns / 1e9, form)
    set_record(run, {name: before[name] + by_ns for name in ("start_time_ns", "end_time_ns")})


def _move(run: RunDir, key: str, by_s: float, form: str) -> None:
    """Move the times in the log of LoadGen."""
    records = (orjson.loads(line.partition(b" ")[2]) for line in run.detail.read_bytes().splitlines())
    stamp = next(record["value"] for record in records if record["key"] == key)
    text = (datetime.strptime(stamp, form) + timedelta(seconds=by_s)).strftime(form)
    set_detail(run, key, text[:-3] if form == POWER_TIME else text)


def run_from_time(*moment: int, apart: timedelta = timedelta(minutes=10)) -> Variation:
    start = datetime(*moment, tzinfo=UTC)

    def variation(pair: Pair) -> None:
        run_at(pair.performance, start)
        run_at(pair.accuracy, start + apart)

    return variation


def with_clock_step(by_ms: float) -> Variation:
    """Set the clock by some milliseconds in the middle of each run. LoadGen and the harness read the same clock."""

    def step(run: RunDir) -> None:
        moments = sorted(record["complete_ns"] for record in read_records(run))
        at_ns, by_ns = moments[len(moments) // 2], int(by_ms * 1e6)
        # LoadGen's Server waits for the next query by the same clock, so only the times of open responses differ.
        waits = manifest_of(run)["plan"]["loadgen_scenario"] == "Server"

        def edit(row: dict[str, Any]) -> dict[str, Any]:
            if waits and row["issue_ns"] > at_ns:
                return row
            return row | {name: row[name] + by_ns for name in STAMPS if row[name] is not None and row[name] > at_ns}

        each_record(run, edit)
        if not waits:
            _move(run, "power_end", by_ms / 1e3, POWER_TIME)
            set_record(run, {"end_time_ns": manifest_of(run)["end_time_ns"] + by_ns})
        if manifest_of(run)["plan"]["mode"] == "performance":
            rebuild(run, 1)

    return each_run(step)


def clock_changed(by_h: int) -> Variation:
    """Change the local time to or from summer time during each run. LoadGen logs local times."""
    return each_run(lambda run: _move(run, "power_end", by_h * 3600, POWER_TIME))


CLOCKS: dict[str, Variation] = {
    "to-summer-time": clock_changed(1),
    "to-winter-time": clock_changed(-1),
    "new-year": run_from_time(2026, 12, 31, 23, 59, 59),
    "leap-day": run_from_time(2028, 2, 28, 23, 59, 59),
    "after-2038": run_from_time(2038, 1, 19, 3, 14, 7),
    "clock-never-set": run_from_time(1970, 1, 1, 0, 1),
    "legs-a-week-apart": run_from_time(2026, 11, 15, 8, apart=timedelta(days=6)),
    "accuracy-before-performance": run_from_time(2026, 11, 22, 8, apart=timedelta(hours=-3)),
    "legs-right-after-each-other": run_from_time(2026, 11, 22, 8, apart=timedelta(seconds=30)),
}
STEPPED: dict[str, Variation] = {f"clock-set-by-{by_ms}-ms": with_clock_step(by_ms) for by_ms in (-3, 4, -0.5)}

# Places of a result, and the transfer of its files --------------------------------------------------------------------


def to(*parts: str) -> Variation:
    def variation(pair: Pair) -> Path:
        target = pair.root.parent.joinpath(*parts)
        target.parent.mkdir(parents=True, exist_ok=True)
        return Path(shutil.move(pair.root, target))

    return variation


def with_additional_files(*places: str, content: str = "{}\n") -> Variation:
    """Add files that do not belong to the result; {} is each run."""

    def variation(pair: Pair) -> None:
        for run in pair.runs:
            for place in places:
                path = pair.root / place.format(run.root)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(content)

    return variation


def modes(of_folders: int, of_files: int, *, times: bool = False) -> Variation:
    def variation(pair: Pair) -> None:
        for path in (*pair.root.rglob("*"), pair.root):
            path.chmod(of_folders if path.is_dir() else of_files)
            if times:
                os.utime(path, (0, 0))

    return variation


def archived(form: str) -> Variation:
    """Unpack the result elsewhere: a zip file keeps no modes, and times to two seconds in a zone of its own."""

    def variation(pair: Pair) -> Path:
        archive = shutil.make_archive(str(pair.root.with_name("archive")), form, pair.root)
        target = pair.root.with_name("restored")
        shutil.unpack_archive(archive, target, **({} if form == "zip" else {"filter": "data"}))
        return target

    return variation


def through_a_link(pair: Pair) -> Path:
    link = pair.root.with_name("link")
    link.symlink_to(pair.root.name)
    return link


def runs_are_links(pair: Pair) -> None:
    elsewhere = pair.root.with_name("big-disk")
    shutil.move(pair.accuracy.root, elsewhere)
    pair.accuracy.root.symlink_to(elsewhere)


def core_dump(pair: Pair) -> None:
    for run in pair.runs:
        with (run.root / "core.1234").open("wb") as stream:
            stream.truncate(3 << 30)


def names_that_differ_in_case_alone(pair: Pair) -> None:
    """Add a second copy whose name differs only in case."""
    shutil.copytree(pair.root, pair.root.with_name(pair.root.name.upper()))
    (pair.performance.root / "Manifest.json").write_text("{}")


def of_another_user(pair: Pair) -> None:
    if os.geteuid():
        pytest.skip("only root gives files away")
    for path in (*pair.root.rglob("*"), pair.root):
        os.chown(path, 65534, 65534)


def name_of_no_text(pair: Pair) -> Path:
    target = Path(os.fsdecode(os.fsencode(pair.root.parent) + b"/r\xe9sultat"))
    return Path(shutil.move(pair.root, target))


def discarded_runs_beside(pair: Pair) -> None:
    for number in (1, 2):
        shutil.copytree(pair.accuracy.root, pair.root / "discarded" / f"{number}-accuracy")
    (pair.root / "discarded" / "1-accuracy" / "mlperf_log_detail.txt").write_bytes(b"")


def resumed_campaign(pair: Pair) -> None:
    """Add the discarded runs of an interrupted campaign."""
    lost = RunDir(Path(shutil.copytree(pair.performance.root, pair.root / "discarded" / "performance-1")))
    set_record(lost, {"status": "interrupted", "exit_code": 130})
    for path in (lost.summary, lost.detail):
        path.unlink()


PLACES: dict[str, Variation] = {
    "moved": to("archive", "2026", "result"),
    "name-with-spaces": to("my results (final)", "result 1"),
    "name-in-another-script": to("результаты", "結果-é"),
    "name-in-capitals": to("RESULT"),
    "name-with-brackets": to("[b]{x}", "result*1?"),
    "name-with-a-dash": to("-x", "--result"),
    "long-name": to("a" * 200, "b" * 200),
    "long-path": to(*("a" * 200,) * 15),
    "name-with-line-breaks": to("a\nb", "c\td\r"),
    "name-in-two-unicode-forms": to("re\u0301sultat", "r\u00e9sultat"),
    "name-of-a-shell": to("$HOME", "~; `true` && %s"),
    "name-of-no-text": name_of_no_text,
    "hidden": to(".cache", ".result"),
    "through-a-link": through_a_link,
    "legs-are-links": runs_are_links,
    "restored-from-an-archive": archived("gztar"),
    "restored-from-a-zip-file": archived("zip"),
    "times-and-modes-of-files-lost": modes(0o777, 0o777, times=True),
    "read-only": modes(0o555, 0o444),
    "of-another-user": of_another_user,
    "names-that-differ-in-case-alone": names_that_differ_in_case_alone,
    "files-of-a-desktop": with_additional_files(
        *(f"{{}}/{name}" for name in (".DS_Store", "Thumbs.db", "._manifest.json", "manifest.json~", ".nfs0001")),
        content="\0\1\2",
    ),
    "notes-beside": with_additional_files(
        "{}/NOTES.md", "{}/profile/trace.json", "{}/notes.ipynb", "report.html", content="["
    ),
    "core-dump": core_dump,
    "verified-before": with_additional_files("{}/verify_performance.txt", "{}/verify_performance.json"),
    "an-older-verdict-elsewhere": with_additional_files("audit_verdict.json", content='{"verdict": "FAIL"}'),
    "interrupted-audit-beside": lambda pair: (pair.root / "audit" / "TEST06").mkdir(parents=True),
    "discarded-legs-beside": discarded_runs_beside,
    "resumed-campaign": resumed_campaign,
}

# Other facts in the records -------------------------------------------------------------------------------------------


def with_facts(*of_runs: dict[str, Any]) -> Variation:
    """Set values by their place in the manifest, of the performance and of the accuracy run, or one for both."""

    def variation(pair: Pair) -> None:
        for run, values in zip(pair.runs, (of_runs * 2)[:2], strict=True):
            set_record(run, values)

    return variation


_HOST, _BOOT, _CORES = "observed.host.hostname", "observed.host.boot_id", "observed.contention"


def with_foreign_load(share: float) -> Variation:
    """Let other processes use a share of the cores."""

    def change(run: RunDir) -> None:
        window_s = _window_s(run)
        foreign_s = round(share * 2 * window_s, 2)
        load = {"load_average_start": 9.0, "load_average_end": 12.5, "stolen_cpu_s": 0.0}
        used = {"busy_cpu_s": foreign_s + 0.25, "own_cpu_s": 0.25, "foreign_cpu_s": foreign_s}
        set_record(run, {_CORES: {"window_s": round(window_s, 4), "usable_cores": 2, **used, **load}})

    return each_run(change)


def _window_s(run: RunDir) -> float:
    records = read_records(run)
    return (max(record["complete_ns"] for record in records) - min(record["issue_ns"] for record in records)) / 1e9


def fast_runs_on_a_busy_machine(pair: Pair) -> None:
    """Let a fast engine wait for the cores, in the accuracy run eight times as long as before."""
    run, factor = pair.accuracy, 8
    before_s = _window_s(run)
    stretch_requests(run, factor)
    scale_clock(run, factor)
    by_s = _window_s(run) - before_s
    manifest, running = manifest_of(run), f"observed.start_stages.{PHASES['running']}"
    running_s = manifest["observed"]["start_stages"][PHASES["running"]] + by_s
    set_record(run, {"end_time_ns": manifest["end_time_ns"] + int(by_s * 1e9), running: running_s})
    with_foreign_load(0.95)(pair)


def other_pids(*pids: int | None) -> Variation:
    """Set other process IDs; None is the ID of the performance run."""

    def variation(pair: Pair) -> None:
        first = manifest_of(pair.performance)["pid"]
        for run, pid in zip(pair.runs, pids, strict=True):
            old = manifest_of(run)["pid"]
            for path in (run.detail, run.manifest):
                path.write_text(path.read_text().replace(f'"pid": {old}', f'"pid": {pid or first}'))
            reseal(run)

    return variation


def simultaneous_runs(first: tuple[str, str | None], second: tuple[str, str | None]) -> Variation:
    """Start both runs at one time, each on its host (name, boot ID)."""

    def variation(pair: Pair) -> None:
        run_from_time(2026, 11, 22, 8, apart=timedelta(0))(pair)
        with_facts(*({_HOST: name, _BOOT: boot} for name, boot in (first, second)))(pair)

    return variation


def data_set_by_another_name(pair: Pair) -> None:
    copy = shutil.copy(manifest_of(pair.accuracy)["plan"]["dataset_path"], pair.root.with_name("cnn_eval.json"))
    set_record(pair.accuracy, {"plan.dataset_path": str(copy)})


def less_memory_after_a_reboot(pair: Pair) -> None:
    bytes_ = manifest_of(pair.accuracy)["observed"]["host"]["memory_bytes"] - 4_194_304
    set_record(pair.accuracy, {"observed.host.memory_bytes": bytes_})


def warm_up_longer(pair: Pair) -> None:
    run_from_time(2026, 11, 22, 10, apart=timedelta(hours=-2))(pair)
    for run in pair.runs:
        set_record(run, {"start_time_ns": manifest_of(run)["start_time_ns"] - 1_800_000_000_000})


def runs_signed_with_different_keys(pair: Pair) -> None:
    for run in pair.runs:
        attest(run, signer_of(Ed25519PrivateKey.generate()), record_version=3, harness_commit=None, previous=None)


def set_recorded_options(run: RunDir) -> None:
    """Record the options of a YAML file that sets defaults, and one replica for the only device."""
    settings = {"enable_log_trace": False, "sampling_arg": {}, "mechanism": None, "replicas": "auto"}
    mode = {"accuracy": manifest_of(run)["plan"]["mode"] == "accuracy"}
    set_record(run, {"asked": {**manifest_of(run)["asked"], **settings, **mode}})


def with_changed_conf(change: Callable[[bytes], bytes]) -> Variation:
    return each_run(lambda run: run.user_conf.write_bytes(change(run.user_conf.read_bytes())))


RECORDS: dict[str, Variation] = {
    "no-git": with_facts({"observed.harness.git_commit": None, "observed.harness.git_changed": None}),
    "environment-elsewhere": with_facts({}, {"observed.loadgen.extension": "/scratch/venv/mlperf_loadgen.so"}),
    "other-place-for-the-output": with_facts({}, {"asked.output_log_dir": "/mnt/results/accuracy"}),
    "started-by-another-user": with_facts(
        {"asked.output_log_dir": "/home/ada/über/out", "asked.user_conf": "/home/ada/user.conf"}
    ),
    "processor-times-unreadable": with_facts({_CORES: {"not_recorded": "/proc/stat: Permission denied"}}),
    "renamed-host": with_facts({_HOST: "ip-10-0-0-7", _BOOT: "0b7a"}, {_HOST: "ip-10-0-0-9", _BOOT: "0b7a"}),
    "container-anew": with_facts({_HOST: "3f1c9aa1"}, {_HOST: "77be0021"}),
    "rebooted-between": with_facts({_BOOT: "0b7a"}, {_BOOT: "91cc"}),
    "no-boot-id": with_facts({_BOOT: None}),
    "two-localhosts": simultaneous_runs(("localhost", "0b7a"), ("localhost", "91cc")),
    "two-localhosts-without-boot-id": simultaneous_runs(("localhost", None), ("localhost", None)),
    "ports-differ": with_facts(
        {"plan.environment": {"VLLM_PORT": "29500", "VLLM_HOST_IP": "10.0.0.0"}},
        {"plan.environment": {"VLLM_PORT": "29617", "VLLM_HOST_IP": "10.0.0.7"}},
    ),
    "host-without-a-processor-name": with_facts({"observed.host.cpu": "", "observed.host.cores_logical": None}),
    "leg-over-in-a-moment": with_facts(
        {"observed.loop_lag": {"p99_ms": 0.1, "worst_ms": 0.1, "moments": 1, "interval_ms": 10.0}}
    ),
    "slow-event-loop": with_facts({"observed.loop_lag.p99_ms": 120.0, "observed.loop_lag.worst_ms": 900.0}),
    "busy": with_foreign_load(0.3),
    "very-busy": with_foreign_load(0.95),
    "fast-legs-on-a-busy-machine": fast_runs_on_a_busy_machine,
    "same-process-number-after-a-reboot": other_pids(None, None),
    "process-numbers-of-a-large-machine": other_pids(4_194_303, 4_194_301),
    "less-memory-after-a-reboot": less_memory_after_a_reboot,
    "warm-up-longer": warm_up_longer,
    "data-set-by-another-name": data_set_by_another_name,
    "legs-signed-with-different-keys": runs_signed_with_different_keys,
    "asked-in-a-file": each_run(set_recorded_options),
    "commented-configuration": with_changed_conf(lambda content: b"# rates of Monday\n\n" + content),
    "configuration-of-another-editor": with_changed_conf(
        lambda content: content.replace(b"\n", b"\r\n").replace(b" = ", b"\t=  ")
    ),
}
VARIATIONS: dict[str, Variation] = {**CLOCKS, **PLACES, **RECORDS}


# A Server run whose queries LoadGen issued late -----------------------------------------------------------------------


def with_late_queries(by_ns: Callable[[int, int], int]) -> Variation:
    """Delay queries of a Server run in LoadGen, and so their responses and results.

    Args:
        by_ns: function of the number of a query, and of its time from the first.
    """

    def variation(pair: Pair) -> None:
        run = pair.performance
        times_ns = [record["issue_ns"] for record in read_records(run)]

        def edit(row: dict[str, Any]) -> dict[str, Any]:
            late_ns = by_ns(row["seq"], row["issue_ns"] - min(times_ns)) if row["seq"] <= len(times_ns) - 250 else 0
            return row | {name: row[name] + late_ns for name in STAMPS}

        each_record(run, edit)
        rebuild(run, 1)
        reseal(run)

    return variation


LATE: dict[str, Variation] = {
    "late-159-ms": with_late_queries(lambda seq, _: 159_000_000 * (seq % 16 == 0)),
    "late-338-ms": with_late_queries(lambda seq, _: 338_000_000 * (seq % 40 == 0)),
    # The host stops when the second query is due. Then all overdue queries are issued.
    "stopped-900-ms": with_late_queries(lambda seq, since_ns: max(0, 900_000_000 + 5_000 * seq - since_ns) * (seq > 0)),
}
