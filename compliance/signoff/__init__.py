"""Independent sign-off: every number derived again from raw files, and a verdict that nothing reported can lift."""

from compliance.signoff.judge import bundle_verdict, sign_off

__all__ = ["bundle_verdict", "sign_off"]
