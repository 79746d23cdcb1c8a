"""The stages in their order, one per module."""

from tools.gpu.stage import Stage
from tools.gpu.stages import audits, comparison, first_check, official_run, serving, settings

STAGES: tuple[Stage, ...] = (
    first_check.STAGE,
    settings.STAGE,
    serving.STAGE,
    audits.STAGE,
    official_run.STAGE,
    comparison.STAGE,
)
