"""Facts of an accelerator, named as in nvidia-smi. All values are texts: memory in MiB, clock in MHz, power in W."""

ACCELERATOR_FACTS = ("index", "name", "uuid", "memory.total", "driver_version", "clocks.max.sm", "power.limit")
