"""The commands. The module `NAME` holds the command `NAME`."""

# Command name → first sentence of its help. The list of commands is printed without importing the commands.
COMMANDS = {
    "anchor": "Anchor the attestations (seal.json) of finished runs, so that later changes are detected.",
    "audit": "Execute an audit's runs through LoadGen and check them, or check two existing runs (--ref, --run).",
    "campaign": "Start every run that a submission needs, from one YAML file: performance, accuracy and audits of each "
    "scenario.",
    "check": "Check a submission tree before it is uploaded.",
    "doctor": "Report what is installed, which engine, model and dataset are usable, and which are eligible for "
    "submission.",
    "gate": "Check the declared technique of a result: its registration, the engine configuration in the manifest, "
    "and its recomputed quality evaluation.",
    "init": "Write commented files for this machine, ready for editing: run.yaml, user.conf, campaign.yaml and "
    "system.yaml.",
    "quantize": "Quantize a model with the benchmark's calibration data; write weights, recipe.yaml and "
    "calibration.md.",
    "report": "Write one HTML page about the runs, campaigns, tunings and MLPerf Endpoints runs in DIR.",
    "results": "List the results of the runs in DIR (default: ./output), one line per run.",
    "run": "Start one LoadGen run: performance, or accuracy with --accuracy.",
    "signoff": "Sign off results from their raw files: PASS, FLAG or FAIL, with every reason.",
    "status": "Show the state of runs, campaigns, tunings and audits: progress and rates, or when and why they ended.",
    "store": "Store results in a SQLite file, and query and compare them.",
    "submit": "Build a submission tree from runs.",
    "tune": "Find the highest VALID target_qps for Server or Interactive, or the target_qps of a full Offline run.",
    "verify": "Verify results from their logs, and write verify_performance.txt and verify_performance.json beside "
    "runs of this harness or to --output.",
}
