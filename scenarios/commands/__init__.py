"""The commands. The module `NAME` contains the command `NAME`."""

# Group of `main.py --help` → command → first sentence of its help, at most 76 characters. The list of commands is
# printed without importing the commands.
COMMAND_GROUPS = {
    "run": {
        "run": "Start one LoadGen run: performance, or accuracy with --accuracy.",
        "audit": "Start an audit's runs and check them, or check two runs (--ref, --run).",
        "campaign": "Start every run that a submission needs, from one YAML file.",
        "curve": "Measure all points of an MLPerf Endpoints submission of a running server.",
        "status": "Show the state of runs, campaigns, tunings, benches, curves and audits.",
    },
    "measure": {
        "bench": "Measure throughput and latency of a model or a server at multiple loads.",
        "ab": "Measure which of two systems is faster, and by how much, with intervals.",
        "compare": "Compare benches or runs with the first bench or run, A.",
        "tune": "Find the highest VALID target_qps; in Offline, measure the target_qps.",
        "results": "List the results of the runs in DIR (default: ./output), one line per run.",
        "report": "Write one HTML page about the runs, campaigns and tunings in DIR.",
        "store": "Store results in a SQLite file, and query and compare them.",
    },
    "judge": {
        "verify": "Verify results from their logs, and write verify_performance.txt.",
        "signoff": "Sign off results from their log files: PASS, FLAG or FAIL, with reasons.",
        "gate": "Check the technique that a result declares, and its quality evaluation.",
        "anchor": "Anchor the attestations (seal.json) of runs, to detect later changes.",
    },
    "submit": {
        "submit": "Build a submission tree from runs.",
        "check": "Check a submission tree before it is uploaded.",
    },
    "maintain": {
        "doctor": "Report what is installed, usable, and eligible for submission.",
        "init": "Write example files for a run, a campaign and a system, for this machine.",
        "quantize": "Quantize a model with the benchmark's calibration data.",
    },
}
COMMANDS = {name: sentence for group in COMMAND_GROUPS.values() for name, sentence in group.items()}
