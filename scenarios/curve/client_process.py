"""The client's process: its own process group, its event log, and the reasons to interrupt it.

The client exits with 0 after its server died, and counts failed samples as completed. So the events decide.
"""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import yaml

from runs.errors import ExecutionError, SetupError
from runs.files.reading import read_object
from runs.files.writing import write_atomic, write_json
from runs.mlperf_endpoints.layout import EVENTS
from runs.processes.child import owned
from runs.processes.interrupts import critical, ended, ended_within
from scenarios.curve.curve_dir import CLIENT_CONFIG, CLIENT_LOG, CLIENT_PROCESS

SHARED_MEMORY = Path("/dev/shm")  # the client writes its events there, and copies them at the end
POLL_S = 0.5
END_TIMEOUT_S = 20.0  # from the interrupt of the client to the end of its group; commands must end within 30 s
IDLE_TIMEOUT_S = 300.0
SERVER_INTERVAL_S = 15.0  # between two requests to the server
MIN_FREE_BYTES = 64 << 20  # free space below which the client is interrupted
LAST_BYTES = 4096
# An exception, or a record of the client's log, whose message is the first group.
_ERROR_LINE = re.compile(r"[\w.]*(?:Error|Exception)\b.*|.* - (?:ERROR|CRITICAL) - (.+)")
_COMPLETE, _ERROR, _ISSUED = b'"sample.complete"', b'"error.', b'"sample.issued"'


@dataclass
class EventLog:
    """The events of a run in progress, read as the client appends them."""

    path: Path
    issued: int = 0
    completed: int = 0
    errors: int = 0
    _offset: int = field(default=0, repr=False)

    def read_new_events(self) -> bool:
        """Count the new events; return whether there are some."""
        with contextlib.suppress(OSError), self.path.open("rb") as stream:
            stream.seek(self._offset)
            data = stream.read()
            data = data[: data.rfind(b"\n") + 1]
            self._offset += len(data)
            for line in data.splitlines():
                head = line[:200] + line[-200:]  # the texts of prompts and responses are between them
                self.issued += _ISSUED in head
                self.completed += _COMPLETE in head
                self.errors += _ERROR in head
            return bool(data)
        return False


@dataclass(frozen=True)
class Watch:
    """What is watched during a run.

    Attributes:
        server_fault: Returns why the server is dead; empty if it responds.
        show: Called with the events so far.
        tolerates_errors: True: failed samples do not end the run, as in a probe.
    """

    server_fault: Callable[[], str]
    show: Callable[[EventLog], None]
    tolerates_errors: bool = False


def run_client(program: str, config: dict[str, object], mode: str, folder: Path, watch: Watch) -> str:
    """Run the client to its end, and return why the run does not count; empty if the client ended by itself with 0.

    Args:
        folder: Directory of the run, which the client fills.

    Raises:
        ExecutionError: If the server is dead or idle, or the disk is full.
        SetupError: If the client cannot be started.
        Interrupted: By a signal, after the client has ended.
    """
    folder.mkdir(parents=True)
    write_atomic(folder / CLIENT_CONFIG, yaml.safe_dump(config, sort_keys=False))
    command = [program, "benchmark", "from-config", "--config", str(folder / CLIENT_CONFIG), "--mode", mode]
    with contextlib.ExitStack() as at_the_end:
        log = at_the_end.enter_context((folder / CLIENT_LOG).open("wb"))
        with critical():
            try:
                process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
                )
            except OSError as error:
                text = f"client {program}: {error.strerror}"
                raise SetupError(text, "give the path of inference-endpoint") from error
            at_the_end.callback(_remove_shared_memory, folder)
            at_the_end.enter_context(owned(process))
            _record(folder, process.pid, None)
        try:
            reason = _watched(process, folder, watch)
        except BaseException:
            _interrupt(process)
            raise
        if reason:
            _interrupt(process)
            return reason
    return "" if process.returncode == 0 else f"the client ended with {process.returncode}: {last_error(folder)}"


def _record(folder: Path, pid: int, events: Path | None) -> None:
    with contextlib.suppress(psutil.Error):
        started = psutil.Process(pid).create_time()
        write_json(folder / CLIENT_PROCESS, {"pid": pid, "started": started, "events": str(events or "")})


def _watched(process: "subprocess.Popen[bytes]", folder: Path, watch: Watch) -> str:
    """Wait for the end of the client; return a reason to interrupt it."""
    events: EventLog | None = None
    progress_s = asked_s = time.monotonic()
    while not ended(process, POLL_S):
        now_s = time.monotonic()
        if events is None:
            if (path := _event_log_of(process.pid)) is not None:
                events = EventLog(path)
                _record(folder, process.pid, path)
            continue
        if events.read_new_events():
            progress_s = now_s
        watch.show(events)
        if events.errors and not watch.tolerates_errors:
            if fault := watch.server_fault():
                raise ExecutionError(f"{fault}; {events.errors} samples failed", "start the server, then this command")
            return f"{events.errors} samples failed"
        is_open = events.issued > events.completed
        if is_open and now_s - progress_s > IDLE_TIMEOUT_S:
            raise ExecutionError(f"no event for {IDLE_TIMEOUT_S:.0f} s", "check the server, then start this command")
        if is_open and now_s - asked_s > SERVER_INTERVAL_S:
            asked_s = now_s
            if now_s - progress_s > SERVER_INTERVAL_S and (fault := watch.server_fault()):
                raise ExecutionError(fault, "start the server, then this command")
            for path in (folder, events.path.parent):
                _check_space(path)
    return ""


def _check_space(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        if (free := shutil.disk_usage(path).free) < MIN_FREE_BYTES:
            raise ExecutionError(f"{path}: {free >> 20} MiB free", "free disk space, then start this command again")


def _event_log_of(pid: int) -> Path | None:
    """Return the event log that the processes of a client have open."""
    with contextlib.suppress(psutil.Error):
        leader = psutil.Process(pid)
        for process in (leader, *leader.children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                for file in process.open_files():
                    if Path(file.path).name == EVENTS:
                        return Path(file.path)
    return None


def _interrupt(process: "subprocess.Popen[bytes]") -> None:
    """Ask the client to end, as ^C does. The rest of its group is killed at the end of `run_client`."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGINT)
    ended_within(process, END_TIMEOUT_S)


def end_recorded_client(folder: Path) -> None:
    """End the client of a directory whose command was killed, and remove its events in shared memory."""
    path = folder / CLIENT_PROCESS
    if not path.is_file():
        return
    record = read_object(path, "move the file away", within=folder)
    with contextlib.suppress(psutil.Error, ProcessLookupError, PermissionError):
        process = psutil.Process(int(record["pid"]))
        if process.create_time() == record["started"]:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(END_TIMEOUT_S)
    _remove_shared_memory(folder)


def _remove_shared_memory(folder: Path) -> None:
    """Remove the directory of the client's events, which a killed client leaves in shared memory."""
    path = folder / CLIENT_PROCESS
    if not path.is_file():
        return
    events = Path(str(read_object(path, "move the file away", within=folder).get("events") or "/"))
    if events.name == EVENTS and SHARED_MEMORY in events.parents:
        shutil.rmtree(SHARED_MEMORY / events.relative_to(SHARED_MEMORY).parts[0], ignore_errors=True)


def last_error(folder: Path) -> str:
    """Return the last error in the client's output, otherwise the last line."""
    lines = list(_lines_at_end(folder / CLIENT_LOG))
    errors = [match[1] or match[0] for line in lines if (match := _ERROR_LINE.match(line))]
    return (errors or lines or ["no output"])[-1]


def _lines_at_end(path: Path) -> Iterator[str]:
    with path.open("rb") as stream:
        stream.seek(max(0, path.stat().st_size - LAST_BYTES))
        text = stream.read().decode(errors="replace")
    return (line.strip() for line in text.splitlines() if line.strip())
