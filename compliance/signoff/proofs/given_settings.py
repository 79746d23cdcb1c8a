"""P-7: what LoadGen was given, user.conf and audit.config, is what its log says it ran with."""

from collections.abc import Iterator

from compliance.finding import Finding, fail
from compliance.signoff.evidence import Evidence
from runs.errors import InputError
from runs.loadgen.given import mismatches
from runs.loadgen.user_conf import read_conf
from runs.record.manifest import Manifest


def given_settings(evidence: Evidence, manifest: Manifest) -> Iterator[Finding]:
    """What the run directory says LoadGen was given, and its log does not."""
    run, plan = evidence.run, manifest.resolved
    if run.audit_config.exists() != plan.audit:
        how = "is missing, and was given to LoadGen" if plan.audit else "is there, and was not given to LoadGen"
        yield fail("P-5/foreign_file", f"{run.audit_config.name} {how}", run.audit_config)
    try:
        settings = read_conf(run.user_conf)
        audited = {line.key for line in read_conf(run.audit_config)} if plan.audit else set()
    except InputError as error:
        yield fail("P-1/damaged_raw", error.message, run.user_conf)
        return
    for found in mismatches(settings, (plan.loadgen_key,), evidence.detail, audited):
        said = found.line.value if found.line else "not given"
        text = f"{found.key} of user.conf is {said}, {found.record} of LoadGen's log has {found.logged:g}"
        yield fail("P-7/settings_contradict_record", text, run.user_conf, key=found.key, logged=found.logged)
