"""Independent sign-off: recomputes every number from raw files; reported numbers never improve a verdict."""
