"""The attestations of a bench's runs."""

from collections.abc import Iterator
from pathlib import Path

from runs.attestation.attestation import broken_files, read_attestation
from runs.bench.bench_record import BenchRecord
from runs.errors import HarnessError
from runs.record.layout import RunDir


def changed_runs(folder: Path, record: BenchRecord) -> Iterator[str]:
    """Yield a sentence for each run whose files differ from its attestation.

    Args:
        folder: Directory of the bench.
    """
    for run in record.runs:
        if run.seal_sha256 is None:
            continue
        directory = RunDir(folder / run.run_dir)
        try:
            attestation = read_attestation(directory)
        except HarnessError as error:
            yield error.message
            continue
        if attestation.digest != run.seal_sha256:
            yield f"{directory.seal}: not the attestation that the bench names for run {run.number}"
        yield from (f"{directory.root / file.name}: {file.state} since its attestation"
                    for file in broken_files(directory, attestation))  # fmt: skip
