"""Independent sign-off. It recomputes every number from raw files; reported numbers never improve a verdict."""
