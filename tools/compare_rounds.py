"""Compare the findings of `check` on a published round before and after a change of the code.

    .venv/bin/python -m tools.compare_rounds record v6.0 CHECKOUT v6.0.json [--commit COMMIT]
    .venv/bin/python -m tools.compare_rounds compare before/v6.0.json after/v6.0.json

`record` runs `check CHECKOUT --round ROUND --json FILE`, with the code of this checkout or of one of its commits, and
writes processor time and memory to FILE.usage.json. `compare` prints the differences by rule and by result, and exits
with 1 if there are any.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from compliance.trees.causes import SUBJECT
from runs.harness import HARNESS_ROOT
from runs.rounds import ROUNDS

POLL_S = 0.2
SHOWN = 20  # maximum number of printed results per rule
Key = tuple[str, str, str]  # rule, severity, result
Record = dict[str, Any]


def findings_of(record: Record) -> Counter[Key]:
    """Return the number of violations by rule, severity and result."""
    return Counter((finding["rule"], finding["severity"], _result(finding)) for finding in record["findings"])


def not_judged_of(record: Record) -> dict[tuple[str, str], str]:
    """Return the reasons why rules were not applied, by rule and result."""
    return {
        (rule, result): f"{entry['what']}: {entry['why']}"
        for entry in record["not_judged"]
        for rule in entry["rules"]
        for result in entry["results"]
    }


def _unjudged(before: dict[tuple[str, str], str], after: dict[tuple[str, str], str]) -> Iterator[str]:
    """Yield lines on rules that were not applied on one side only, and on changed reasons."""
    for sign, first, second in (("-", before, after), ("+", after, before)):
        counts = Counter(rule for rule, result in first.keys() - second.keys())
        for count in sorted(set(counts.values()), reverse=True):
            rules = " ".join(sorted(rule for rule in counts if counts[rule] == count))
            yield f"not judged: {sign} in {count:,} results: {rules}"
    changed = Counter((before[key], after[key]) for key in before.keys() & after.keys() if before[key] != after[key])
    yield from (
        f"not judged for another reason: {old} → {new}: {count:,}" for (old, new), count in changed.most_common()
    )


def _result(finding: Record) -> str:
    return "/".join(part for name in SUBJECT if (part := finding[name])) or "."


def differences(before: Counter[Key], after: Counter[Key]) -> Iterator[str]:
    """Yield lines on each rule whose results differ, with the first of these results."""
    gone, new = before - after, after - before
    for rule in sorted({key[0] for key in (*gone, *new)}):
        counts = (sum(count for key, count in several.items() if key[0] == rule) for several in (before, after))
        yield f"{rule}: {' → '.join(f'{count:,}' for count in counts)}"
        changes = [
            f"  {mark} {severity}, {result}"
            for mark, keys in (("-", gone), ("+", new))
            for name, severity, result in sorted(keys)
            if name == rule
        ]
        yield from changes[:SHOWN]
        if len(changes) > SHOWN:
            yield f"  and {len(changes) - SHOWN:,} more"


def _record_of(path: Path) -> Record:
    """Return the record in a file of `--json FILE`, or in the standard output of `--json`."""
    read: Record = json.loads(path.read_bytes())
    response: Record = read.get("answer", read)
    return response


def compare(paths: Sequence[Path]) -> int:
    """Print the differences between two records; return the exit code."""
    before, after = (_record_of(path) for path in paths)
    lines = [
        *differences(findings_of(before), findings_of(after)),
        *_unjudged(not_judged_of(before), not_judged_of(after)),
    ]
    for name in ("rules", "scenarios"):
        gone, new = (set(kept[name]) - set(compared[name]) for kept, compared in ((before, after), (after, before)))
        lines += [
            f"{name}: {sign} {' '.join(sorted(rules_of_sign))}"
            for sign, rules_of_sign in (("-", gone), ("+", new))
            if rules_of_sign
        ]
    of_all = ("verdict", "exit_code", "errors", "warnings")
    lines += [f"{name}: {before[name]} → {after[name]}" for name in of_all if before[name] != after[name]]
    print("\n".join(lines) or f"the same {len(before['findings']):,} findings in {len(before['scenarios']):,} results")
    usages = [_usage_file(path) for path in paths]
    if all(path.is_file() for path in usages):
        old, new = (json.loads(path.read_bytes()) for path in usages)
        for name in ("processor_s", "wall_s", "max_rss_mib"):
            print(f"{name}: {old[name]:,} → {new[name]:,} ({new[name] / old[name] - 1:+.1%})")
    return 1 if lines else 0


def record(round_name: str, checkout: Path, file: Path, commit: str | None) -> int:
    """Run `check` and measure it; return its exit code."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with _code_of(commit) as root:
        command = [sys.executable, str(root / "main.py"), "check", str(checkout.resolve()), "--round", round_name]
        with Path(os.devnull).open("w") as nothing:
            process = subprocess.Popen(
                [*command, "--json", str(file.resolve())], cwd=root, stdout=nothing, start_new_session=True
            )
            measured = _watched(process) | {"commit": commit}
    _usage_file(file).write_text(json.dumps(measured) + "\n")
    print(file, measured)
    return process.returncode


def _watched(process: "subprocess.Popen[bytes]") -> Record:
    """Wait for a process that leads a session, and measure it together with its workers."""
    begun, used_s, peak = time.monotonic(), dict[str, float](), 0
    tick_s, page = 1 / os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    while process.poll() is None:
        peak_bytes = 0
        for path in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                # Fields after the name: state, parent, group, session, …; proc_pid_stat(5)
                fields = path.read_text().rpartition(")")[2].split()
                if int(fields[3]) == process.pid:
                    used_s[path.parent.name] = (int(fields[11]) + int(fields[12])) * tick_s
                    peak_bytes += int(fields[21]) * page
        peak = max(peak, peak_bytes)
        time.sleep(POLL_S)
    return {
        "processor_s": round(sum(used_s.values()), 1),
        "wall_s": round(time.monotonic() - begun, 1),
        "max_rss_mib": round(peak / (1 << 20)),  # sum over all processes
    }


def _usage_file(record: Path) -> Path:
    return record.with_name(f"{record.name}.usage.json")


@contextlib.contextmanager
def _code_of(commit: str | None) -> Iterator[Path]:
    """Yield a temporary work tree of a commit; without a commit, this checkout."""
    if commit is None:
        yield HARNESS_ROOT
        return
    git = ["git", "-C", str(HARNESS_ROOT), "worktree"]
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "code"
        subprocess.run([*git, "add", "--detach", str(root), commit], check=True, stdout=subprocess.DEVNULL)
        try:
            yield root
        finally:
            subprocess.run([*git, "remove", "--force", str(root)], check=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record", help="run check and save its record")
    recording.add_argument("round", choices=list(ROUNDS))
    recording.add_argument("checkout", type=Path)
    recording.add_argument("file", type=Path)
    recording.add_argument("--commit", help="code of this commit. Default: the code of this checkout.")
    comparing = commands.add_parser("compare", help="print the differences of two records")
    comparing.add_argument("records", type=Path, nargs=2, metavar="FILE")
    return parser


def main(arguments: Sequence[str]) -> int:
    """Run one of the two commands; return the exit code."""
    options = _parser().parse_args(arguments)
    if options.command == "compare":
        return compare(options.records)
    return record(options.round, options.checkout, options.file, options.commit)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
