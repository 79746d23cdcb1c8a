"""The commands: each is the object of its name in the module of its name."""

# Name and first sentence of its help, so that the list of commands imports none of them.
COMMANDS = {
    "anchor": "Fix the statements (seal.json) of finished runs in time, so that later changes are detected.",
    "audit": "Execute an audit's runs through LoadGen and judge them, or judge two existing runs (--ref, --run).",
    "campaign": "Start every run that a submission needs, from one YAML file: performance, accuracy and audits of each "
    "scenario.",
    "check": "Check a submission tree before it is uploaded.",
    "doctor": "Report what is installed, which engine, model and dataset are usable, and what could be eligible for "
    "submission.",
    "gate": "Judge the declared technique of a result: whether it is registered, agrees with the recorded "
    "engine configuration, and passes its quality evaluation when derived again.",
    "init": "Write commented files for this machine, ready for editing: run.yaml, user.conf, campaign.yaml and "
    "system.yaml.",
    "quantize": "Quantize a model with the benchmark's calibration data; write weights, recipe.yaml and "
    "calibration.md.",
    "report": "Write one HTML page about the runs, campaigns, tunes and MLPerf Endpoints runs in DIR.",
    "results": "List the results of the runs in DIR (default: ./output), one line per run.",
    "run": "Start one LoadGen run: performance, or accuracy with --accuracy.",
    "signoff": "Sign off results from their raw files alone: PASS, FLAG or FAIL, with every reason.",
    "status": "Show runs, campaigns, tunes and audits: state, phase, progress and rates, or when and why they ended.",
    "store": "Keep results in a SQLite file, query and compare them.",
    "submit": "Build a submission tree from runs.",
    "tune": "Find the highest target_qps that is VALID in Server or Interactive; for Offline, that of a full run.",
    "verify": "Judge results from their logs alone; write verify_performance.txt and verify_performance.json "
    "beside runs of this harness, or to --output.",
}
