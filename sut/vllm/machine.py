"""What vLLM computes on, on this machine."""

from dataclasses import dataclass

from runs.environment import accelerators, usable_cores, vllm_is_cpu_build


@dataclass(frozen=True)
class Machine:
    """What an engine of vLLM has to itself.

    Attributes:
        devices: accelerators; 0 where vLLM computes on the CPU.
        cores: ids of those that may be used.
    """

    devices: int
    cores: list[int]

    @property
    def on_cpu(self) -> bool:
        return self.devices == 0


def this_machine() -> Machine:
    """This machine as vLLM's build will use it."""
    return Machine(0 if vllm_is_cpu_build() else len(accelerators()), usable_cores())


def likely_machine() -> Machine:
    """The same without looking for accelerators, which can take a second: there is one unless vLLM is a CPU build."""
    return Machine(0 if vllm_is_cpu_build() else 1, usable_cores())
