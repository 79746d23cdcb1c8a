"""Make the tables of the rounds in configs/rounds/ from a checkout of mlcommons/inference.

    .venv/bin/python -m tools.make_round_tables CHECKOUT [--policies CHECKOUT] [--round v6.1] [--output DIR]

CHECKOUT may be a work tree or a bare repository: git reads the files at the commits below, so the checked-out commit
does not matter. A table has numbers and names, each with its source file and line, and no code. `--policies` is a
checkout of mlcommons/inference_policies; without it, the maximum output lengths are not updated.
"""

import argparse
import ast
import json
import operator
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from runs.rounds import TABLES, model_of

_CHECKER = "tools/submission/submission_checker"
CONSTANTS, CONFIGURATION = f"{_CHECKER}/constants.py", f"{_CHECKER}/configuration/configuration.py"
PERFORMANCE, CONF, RULES = f"{_CHECKER}/checks/performance_check.py", "loadgen/mlperf.conf", "inference_rules.adoc"
# The checker's newest commit has all rounds. LoadGen's settings are from the round's last LoadGen.
CHECKER_COMMIT = "b66003e10e2db4b8c36a448b0545ec90fcc6e9e9"
CONF_COMMITS = {
    "v5.0": "be4314b08f88218872251d298e6c4241f5456603",
    "v5.1": "e05fda54b31c6859361f5d91660f1c11e6fa847d",
    "v6.0": "80aaa82a63a8d4a798f8ebb55abc4aefe6cd5fd6",
    "v6.1": "b0662794362bc2c22c33c3e4a0c66ef83411ecf0",
}
# Commits that decide about equal issue mode: the commit of the round's seeds, because a LoadGen of that commit lacks
# later settings; for v5.1 the last commit, because all published results have its settings.
EQUAL_ISSUE_COMMITS = {
    "v5.0": "4fc54b5f",
    "v5.1": CONF_COMMITS["v5.1"],
    "v6.0": "f131a0d2",
    "v6.1": CONF_COMMITS["v6.1"],
}
POLICIES_COMMIT = "ac93e89c0c9a8819eb0ad987768c2f6e22896714"
# Commits of the rules: the last commit before the round's deadline. Earlier rounds do not allow speculative decoding.
RULES_COMMITS = {"v6.0": "b650329cef590217b0068de674756eaf069f147f", "v6.1": POLICIES_COMMIT}
SUITES = ("datacenter", "edge", "datacenter-edge")
AUDITS = ("TEST01", "TEST04", "TEST06", "TEST07", "TEST08", "TEST09")
# Settings of an audit.config that an audit's log or text is compared with; other settings differ between commits.
AUDIT_KEYS = (
    "accuracy_log_rng_seed",
    "accuracy_log_sampling_target",
    "performance_issue_same",
    "performance_issue_same_index",
    "test07_accuracy_threshold",
    "test09_min_output_tokens",
    "test09_max_output_tokens",
)
# Audits that issue each sample once; min_query_count is their number of samples.
SAMPLED_ONCE = ("TEST07", "TEST09")  # fmt: skip
_AUDIT_FOLDERS = {"resnet": "resnet50", "gptj": "gpt-j"}  # model → folder, if the names differ
# Name in the table of generation settings in inference_rules.adoc → model.
_IN_RULES = {
    "llama3.1-8b": "Llama3.1-8B", "llama3.1-8b-edge": "Llama3.1-8B", "llama2-70b": "Llama2-70b",
    "llama2-70b-interactive": "Llama2-70b", "llama3.1-405b": "Llama3.1-405B", "mixtral-8x7b": "Mixtral-8x7B",
    "deepseek-r1": "DeepSeek", "gpt-oss-120b": "GPT-OSS-120B", "qwen3.6-27b": "Qwen3.6-27B",
}  # fmt: skip
# The same for models in its table of benchmarks only, or with another name there.
_WITHOUT_SETTINGS = {"3d-unet": "3D UNET", "dlrm-v3": "DLRMv3", "deepseek-r1": "DeepSeek-r1"}
_ARITHMETIC = {ast.Mult: operator.mul, ast.Add: operator.add, ast.Sub: operator.sub, ast.Div: operator.truediv}


def find_at(checkout: Path, commit: str, path: str) -> str | None:
    """Return a file of a commit, or None if it does not exist."""
    command = ["git", "-C", str(checkout), "show", f"{commit}:{path}"]
    done = subprocess.run(command, capture_output=True, text=True)
    return None if done.returncode else done.stdout


def read_at(checkout: Path, commit: str, path: str) -> str:
    """A file of a commit."""
    text = find_at(checkout, commit, path)
    if text is None:
        sys.exit(f"{checkout} has no {path} at {commit}")
    return text


class Constants:
    """The values in a Python file that are literals and arithmetic, with their lines. The file is not executed."""

    def __init__(self, text: str) -> None:
        nodes = [node for node in ast.parse(text).body if isinstance(node, ast.Assign)]
        self._nodes = {node.targets[0].id: node.value for node in nodes if isinstance(node.targets[0], ast.Name)}

    def find(self, *keys: str) -> tuple[Any, int] | None:
        """Return the value of a name and keys, and its line; None if it does not exist."""
        node: Any = self._nodes[keys[0]]
        line: int = node.lineno
        for key in keys[1:]:
            if not isinstance(node, ast.Dict):
                return None
            names = [entry.value if isinstance(entry, ast.Constant) else None for entry in node.keys]
            if key not in names:
                return None
            at = names.index(key)
            node, line = node.values[at], node.keys[at].lineno
        return self._value(node), line

    def line_in(self, item: str, *keys: str) -> int | None:
        """Return the line of an item of a list."""
        node: Any = self._nodes[keys[0]]
        for key in keys[1:]:
            values = [value for entry, value in zip(node.keys, node.values, strict=True) if entry.value == key]
            if not values:
                return None
            node = values[0]
        return next((element.lineno for element in node.elts if element.value == item), None)

    def _value(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant():
                return node.value
            case ast.Name():
                return self._value(self._nodes[node.id])
            case ast.BinOp():
                return _ARITHMETIC[type(node.op)](self._value(node.left), self._value(node.right))
            case ast.List() | ast.Tuple():
                return [self._value(element) for element in node.elts]
            case ast.Dict():
                pairs = zip(node.keys, node.values, strict=True)
                return {self._value(key): self._value(value) for key, value in pairs if key is not None}
        raise ValueError(f"line {node.lineno}: {ast.unparse(node)} is not a literal")


class Conf:
    """mlperf.conf: values and lines by (model, scenario, key)."""

    def __init__(self, text: str) -> None:
        self.lines: dict[tuple[str, str, str], tuple[float, int]] = {}
        for number, line in enumerate(text.splitlines(), start=1):
            if match := re.fullmatch(r"(\S+)\.(\*|\w+)\.(\w+) = ([\d.]+)", line.strip()):
                self.lines[match[1], match[2], match[3]] = float(match[4]), number
        self.models = {model for model, _, _ in self.lines}


class Table:
    """The table of one round."""

    def __init__(self, name: str, checkout: Path, policies: Path | None, before: dict[str, Any]) -> None:
        self.round, self._checkout, self._before = name, checkout, before
        self._audit_files: dict[str, str] = {}  # source → path
        self._constants = Constants(read_at(checkout, CHECKER_COMMIT, CONSTANTS))
        self._configuration = read_at(checkout, CHECKER_COMMIT, CONFIGURATION).splitlines()
        self._performance = read_at(checkout, CHECKER_COMMIT, PERFORMANCE).splitlines()
        self._conf = Conf(read_at(checkout, CONF_COMMITS[name], CONF))
        self._equal_issue = Conf(read_at(checkout, EQUAL_ISSUE_COMMITS[name], CONF)).lines
        self._rules = read_at(policies, POLICIES_COMMIT, RULES).splitlines() if policies else None
        self._own_rules = None
        if policies and name in RULES_COMMITS:
            self._own_rules = read_at(policies, RULES_COMMITS[name], RULES).splitlines()

    def make(self) -> dict[str, Any]:
        models, _ = self._of("models") or ([], 0)
        files = {
            name: self._constants.find(key)
            for name, key in (
                ("performance", "REQUIRED_PERF_FILES"),
                ("accuracy", "REQUIRED_ACC_FILES"),
                ("measurements", "REQUIRED_MEASURE_FILES"),
                ("max_accuracy_log_bytes", "MAX_ACCURACY_LOG_SIZE"),
                ("min_duration_ms", "TEST_DURATION_MS"),
            )
        }
        benchmarks = {model: self._benchmark(model) for model in models}
        return {
            "round": self.round,
            "files": {
                "constants.py": f"mlcommons/inference {CHECKER_COMMIT} {CONSTANTS}",
                "configuration.py": f"mlcommons/inference {CHECKER_COMMIT} {CONFIGURATION}",
                "performance_check.py": f"mlcommons/inference {CHECKER_COMMIT} {PERFORMANCE}",
                "mlperf.conf": f"mlcommons/inference {CONF_COMMITS[self.round]} {CONF}",
                "inference_rules.adoc": f"mlcommons/inference_policies {POLICIES_COMMIT} {RULES}",
                **(
                    {"rules.adoc": f"mlcommons/inference_policies {RULES_COMMITS[self.round]} {RULES}"}
                    if self.round in RULES_COMMITS
                    else {}
                ),
                **self._audit_files,
            },
            **{name: entry[0] for name, entry in files.items() if entry},
            "sources": {name: f"constants.py:{entry[1]}" for name, entry in files.items() if entry},
            "benchmarks": benchmarks,
        }

    def _of(self, *keys: str) -> tuple[Any, int] | None:
        return self._constants.find("MODEL_CONFIG", self.round, *keys)

    def _benchmark(self, model: str) -> dict[str, Any]:
        values: dict[str, Any] = {}
        sources: dict[str, str] = {}
        for name, value, source in self._fields(model):
            values[name] = value
            sources[name] = source
        return {**values, "sources": sources}

    def _fields(self, model: str) -> Iterator[tuple[str, Any, str]]:
        """Yield field, value and source of all facts about a benchmark."""
        constants, name = self._constants, model_of(model)
        yield "model", name, _at(constants.line_in(model, "MODEL_CONFIG", self.round, "models"))
        aliases, _ = self._of("model_mapping") or ({}, 0)
        if aliases_of_model := [alias for alias, aliased in aliases.items() if aliased == model]:
            lines = [value[1] for alias in aliases_of_model if (value := self._of("model_mapping", alias))]
            yield "aliases", aliases_of_model, _at(*lines)
        for field in ("required", "optional"):
            sets = {suite: self._of(f"{field}-scenarios-{suite}", model) for suite in SUITES}
            if sets_of_suite := {suite.replace("-", ","): value for suite, value in sets.items() if value}:
                yield (
                    field,
                    {suite: value for suite, (value, _) in sets_of_suite.items()},
                    _at(*(at for _, at in sets_of_suite.values())),
                )
        yield from self._metrics(model)
        yield from self._targets(model)
        for field, key in (("performance_samples", "performance-sample-count"), ("data_set", "dataset-size"),
                           ("min_queries", "min-queries")):  # fmt: skip
            if value := self._of(key, model):
                yield field, value[0], _at(value[1])
        accuracy = self._of("accuracy-sample-count", model) or self._of("dataset-size", model)
        if accuracy:
            counts = accuracy[0] if isinstance(accuracy[0], dict) else {"any": accuracy[0]}
            yield "accuracy_samples", counts, _at(accuracy[1])
        if least := constants.find("OFFLINE_MIN_SPQ_SINCE_V4", model):
            yield "offline_min_samples", least[0], _at(least[1])
        if limits := constants.find("LLM_LATENCY_LIMITS", model):
            by_scenario = {
                scenario: {f"{key}_ns": ns for key, ns in limits_ns.items()}
                for scenario, limits_ns in limits[0].items()
            }
            yield "token_limits", by_scenario, _at(limits[1])
        if at := _quoted(self._configuration, model, "def get_llm_models"):
            yield "token_latencies", True, f"configuration.py:{at}"
        if at := _quoted(self._performance, model, "def min_duration_check"):
            yield "time_bound", False, f"performance_check.py:{at}"
        places = {test: self._constants.line_in(model, "MODEL_CONFIG", self.round, f"models_{test}") for test in AUDITS}
        tests = {test: at for test, at in places.items() if at}
        if tests:
            yield "audits", list(tests), _at(*tests.values())
            yield from self._audit_settings(name, list(tests))
            if deltas := self._of("accuracy-delta-perc", model):
                yield "audit_deltas", deltas[0], _at(deltas[1])
        if extra := constants.find("REQUIRED_ACC_BENCHMARK", model, self.round):
            yield "accuracy_folders", extra[0], _at(extra[1])
        yield from self._latencies(model, name)
        yield from self._settings(name)
        yield from self._max_tokens(model, name)
        yield from self._of_rules(model, name)

    def _audit_settings(self, name: str, tests: list[str]) -> Iterator[tuple[str, Any, str]]:
        """Yield the settings in the audit.config of each test for a model."""
        folder = _AUDIT_FOLDERS.get(name, name)
        settings: dict[str, dict[str, float]] = {}
        sources = []
        for test in tests:
            for place in (f"{test}/{folder}/audit.config", f"{test}/audit.config"):
                text = find_at(self._checkout, CHECKER_COMMIT, f"compliance/{place}")
                if text is None:
                    continue
                audit_settings = {
                    match[1]: (number, json.loads(match[2]))
                    for number, line in enumerate(text.splitlines(), start=1)
                    if (match := re.match(r"\*\.(?:\*|Offline)\.(\w+) = ([\d.]+)", line)) and match[1] in AUDIT_KEYS
                }
                if test in SAMPLED_ONCE and (least := re.search(r"(?m)^\*\.\*\.min_query_count = (\d+)", text)):
                    audit_settings[f"{test.lower()}_samples"] = text.count("\n", 0, least.start()) + 1, int(least[1])
                settings[test] = {key: value for key, (_, value) in audit_settings.items()}
                sources.append(f"{place}:" + ",".join(str(number) for number, _ in audit_settings.values()))
                self._audit_files[place] = f"mlcommons/inference {CHECKER_COMMIT} compliance/{place}"
                break
        if settings:
            yield "audit_settings", settings, " ".join(sources)

    def _metrics(self, model: str) -> Iterator[tuple[str, Any, str]]:
        base = self._constants.find("RESULT_FIELD_NEW", self.round) or ({}, 0)
        own_metrics = self._constants.find("RESULT_FIELD_BENCHMARK_OVERWRITE", self.round, model) or ({}, 0)
        # LoadGen runs Interactive as Server, so its log has Server's records.
        metrics = {
            scenario: key for scenario, key in {**base[0], **own_metrics[0]}.items() if scenario != "Interactive"
        }
        yield "metrics", metrics, _at(*(line for _, line in (base, own_metrics) if line))

    def _targets(self, model: str) -> Iterator[tuple[str, Any, str]]:
        lower, above = self._of("accuracy-target", model), self._of("accuracy-upper-limit", model)
        if lower is None:
            return
        high = dict(_pairs(above[0])) if above else {}
        targets = {}
        for scenario, flat in (lower[0] if isinstance(lower[0], dict) else {"any": lower[0]}).items():
            low = dict(_pairs(flat))
            targets[scenario] = {score: {"low": low.get(score), "high": high.get(score)} for score in {**low, **high}}
        yield "targets", targets, _at(lower[1], *([above[1]] if above else []))

    def _latencies(self, model: str, name: str) -> Iterator[tuple[str, Any, str]]:
        """Yield the latency limits of queries: the stricter limit of the checker and LoadGen."""
        latencies = self._of("latency-constraint", model)
        if latencies is None:
            return
        limits, sources = dict(latencies[0]), [_at(latencies[1])]
        settings = self._conf.lines.get((_loadgen_key(name), "Server", "target_latency"))
        if settings and 0 < settings[0] * 1e6 < limits.get("Server", 0):
            limits["Server"] = int(settings[0] * 1e6)
            sources.append(_conf_at(settings[1]))
        yield "latency_ns", limits, " ".join(sources)

    def _settings(self, name: str) -> Iterator[tuple[str, Any, str]]:
        """Yield LoadGen's names of the model and their settings."""
        key = _loadgen_key(name)
        keys = {"any": key, "Interactive": f"{key}-interactive"}
        lines = self._conf.lines
        by_scenario = {scenario: model for scenario, model in keys.items() if model in self._conf.models}
        if not by_scenario:
            return
        first = [
            min(at for (model, _, _), (_, at) in lines.items() if model == benchmark_model)
            for benchmark_model in by_scenario.values()
        ]
        yield "loadgen_keys", by_scenario, _conf_at(*first)
        equal = lines.get((key, "*", "sample_concatenate_permutation"))
        if equal and (key, "*", "sample_concatenate_permutation") in self._equal_issue:
            yield "equal_issue", True, _conf_at(equal[1])
        shares = {scenario: value for (model, scenario, what), value in lines.items()
                  if model == key and what == "target_latency_percentile"}  # fmt: skip
        if shares:
            yield ("percentiles", {scenario: round(value / 100, 6) for scenario, (value, _) in shares.items()},
                   _conf_at(*(at for _, at in shares.values())))  # fmt: skip

    def _max_tokens(self, model: str, name: str) -> Iterator[tuple[str, Any, str]]:
        of_model = _IN_RULES.get(name)
        if of_model is None:
            return
        if self._rules is None:
            old = self._before.get("benchmarks", {}).get(model, {})
            if "max_tokens" in old:
                yield "max_tokens", old["max_tokens"], old["sources"]["max_tokens"]
            return
        values: dict[str, int] = {}
        lines = []
        for number, line in enumerate(self._rules, start=1):
            match = re.match(r"\|[^|]*\(([^|]*)\) *\|max_new_tokens *(?:\((\w+)\))? *\|(\d+)", line)
            if match and match[1] == of_model:
                values |= (
                    {match[2]: int(match[3])} if match[2] else dict.fromkeys(("performance", "accuracy"), int(match[3]))
                )
                lines.append(number)
        if values:
            yield "max_tokens", values, "inference_rules.adoc:" + ",".join(map(str, lines))

    def _of_rules(self, model: str, name: str) -> Iterator[tuple[str, Any, str]]:
        """Yield facts that only the rules have: speculative decoding, and limits that differ from the checker's."""
        of_model = _IN_RULES.get(name, _WITHOUT_SETTINGS.get(name))
        if self._own_rules is None or of_model is None:
            old = self._before.get("benchmarks", {}).get(model, {})
            for field in ("rules_differ", "speculative_decoding"):
                if self._own_rules is None and field in old:
                    yield field, old[field], old["sources"][field]
            return
        rows = [(n, line) for n, line in enumerate(self._own_rules, start=1) if f"|{of_model}".lower() in line.lower()]
        limits = (self._constants.find("LLM_LATENCY_LIMITS", model) or ({}, 0))[0]
        differ, at = {}, []
        for number, line in rows:
            for match in re.finditer(r"(\w*)(?: category)?: (?:TTFT/TPOT: )?(\d+) ms/(\d+) ms", line):
                scenario = "Interactive" if match[1] == "Interactive" else "Server"
                for key, value in zip(("ttft", "tpot"), (match[2], match[3]), strict=True):
                    if scenario in limits and limits[scenario][key] != int(value) * 1_000_000:
                        differ[f"{scenario} perf-{key}"] = f"{value} ms"
                        at.append(number)
        for number, key, value in self._quality(model, name):
            differ[key] = value
            at.append(number)
        if differ:
            yield "rules_differ", differ, _rules_at(*at)
        begin = next((n for n, line in enumerate(self._own_rules, 1) if "[[appendix-speculative" in line), len(rows))
        allowed = {
            "SingleStream" if "single-stream" in cell[1] else cell[1].strip(): number
            for number, line in rows
            if number > begin and (cell := re.match(r"\|[^|]+\|([^|]+)\|", line))
        }
        if allowed:
            yield "speculative_decoding", list(allowed), _rules_at(*allowed.values())

    def _quality(self, model: str, name: str) -> Iterator[tuple[int, str, str]]:
        """Size of the dataset and targets in the table of benchmarks, if they differ from the checker's."""
        edge, suite = not self._of("required-scenarios-datacenter", model), ""
        size, target = self._of("performance-sample-count", model), self._of("accuracy-target", model)
        targets = dict(_pairs(target[0])) if target and isinstance(target[0], list) else {}
        of_model = _WITHOUT_SETTINGS.get(name, _IN_RULES.get(name, ""))
        for number, line in enumerate(self._own_rules or (), start=1):
            suite = match[1] if (match := re.match(r"The (\w+) suite includes", line)) else suite
            cells = [cell.strip() for cell in line.split("|")]
            if len(cells) < 7 or cells[3] != of_model or (suite == "Edge") != edge or not cells[5].isdigit():
                continue
            if size and int(cells[5]) != size[0]:
                yield number, "any perf-sample-count", f"{int(cells[5]):,}"
            share = 0.999 if model.endswith("99.9") else 0.99
            for score, value in re.findall(r"(rouge1|rouge2|rougeL|exact[ _]match)[ =]([\d.]+\d)", cells[6]):
                key = score.replace(" ", "_") if score.startswith("exact") else score.upper()
                if key in targets and abs(share * float(value) / targets[key] - 1) > 1e-3:
                    yield number, f"any accuracy-target {key}", f"{share * float(value):.6g}"


def _rules_at(*lines: int) -> str:
    return "rules.adoc:" + ",".join(map(str, dict.fromkeys(lines)))


def _loadgen_key(name: str) -> str:
    return {"resnet": "resnet50"}.get(name, name.replace("3.1", "3_1"))


def _at(*lines: int | None) -> str:
    return "constants.py:" + ",".join(str(line) for line in lines)


def _conf_at(*lines: int) -> str:
    return "mlperf.conf:" + ",".join(map(str, lines))


def _pairs(flat: list[Any]) -> Iterator[tuple[str, float]]:
    yield from zip(flat[::2], flat[1::2], strict=True)


def _quoted(lines: list[str], name: str, after: str) -> int | None:
    """Return the line after a definition that names a benchmark."""
    begin = next(number for number, line in enumerate(lines) if after in line)
    end = next((n for n in range(begin + 1, len(lines)) if lines[n].strip().startswith("def ")), len(lines))
    return next((n + 1 for n in range(begin, end) if f'"{name}"' in lines[n]), None)


def written(table: dict[str, Any]) -> str:
    """Return the table as text, with a field per line."""

    def fields(value: dict[str, Any], depth: int) -> str:
        pad = "  " * depth
        deeper = ("benchmarks",) if depth == 1 else tuple(value) if depth == 2 else ()
        parts = [
            f"{pad}{json.dumps(key)}: {fields(field, depth + 1) if key in deeper else json.dumps(field)}"
            for key, field in value.items()
        ]
        return "{\n" + ",\n".join(parts) + "\n" + "  " * (depth - 1) + "}"

    return fields(table, 1) + "\n"


def main() -> None:
    """Write the tables."""
    parser = argparse.ArgumentParser(description="Make the tables of the rounds in configs/rounds/.")
    parser.add_argument("checkout", type=Path, help="of mlcommons/inference: a work tree or a bare repository")
    parser.add_argument("--policies", type=Path, help="a checkout of mlcommons/inference_policies")
    parser.add_argument("--round", choices=sorted(CONF_COMMITS), help="one round only")
    parser.add_argument("--output", type=Path, default=TABLES, help="directory to write to")
    options = parser.parse_args()
    for name in [options.round] if options.round else sorted(CONF_COMMITS):
        path = TABLES / f"{name}.json"
        before = json.loads(path.read_text()) if path.exists() else {}
        table = Table(name, options.checkout, options.policies, before).make()
        (options.output / f"{name}.json").write_text(written(table))


if __name__ == "__main__":
    main()
