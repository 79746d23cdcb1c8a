"""The findings of a command as facts: one line each, without texts for people.

The facts of a case are a multiset of lines:

    code 1                          the exit code; `code 2 refused` after an error without response
    results.0.verdict FAIL          a word, number or truth value of the record that states a verdict
    error perf-ttft performance/run_1/mlperf_log_detail.txt:81 {p99_ms}
                                    a finding: severity, rule, first file and line, keys of its numbers
    applied: perf-ttft              a rule that was applied
    not judged in closed/…, without input, user.conf: user-conf-absent
                                    a rule that was not applied to a result, and the reason
    left out: dataset: …           other omitted parts, and the reason
    0.valid 1                       a value of a row of `store` or `results`
    keys results[]: verdict         a key of an object of the JSON record

A file begins with the rules of all cases, `* applied: …`. A case with most of them has `* applied: all`, and
`without applied: …` for the others. Facts that differ only in their last word are one line with all of these words
(GROUPED).
"""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Facts = Counter[str]
Json = Any

# Fields whose value is a verdict. Each truth value is one, too.
JUDGEMENTS = frozenset(
    ("verdict", "exit_code", "action", "policy", "status", "outcome", "overall", "lever_class", "correctness_status",
     "auditor_status", "scores_from", "mode", "scenario", "loadgen_key", "eligible")
)  # fmt: skip
_NAME = re.compile(r"[A-Za-z_]\w*")
_LINE = re.compile(r"(.*?)((?::\d+)?(?: \(\w+\))?(?: \{[^}]*\})?)$")
SEVERITIES = ("error", "warning", "note", "pass")
_COUNT = re.compile(r"  x(\d+)$")
_WORD = re.compile(r"[\w.:+-]{1,40}")
_FINDING = {"rule", "severity"}
ROWS = {"store": "rows", "results": "results"}  # command → key of its rows
# Columns of rows that differ between hosts
NO_FACTS = frozenset(("run_id", "timestamp", "ingested_at", "started", "run_directory", "directory", "manifest_sha256"))
# Objects whose keys are data
_OF_DATA = frozenset(("rules", "not_judged", "numbers", "metrics", "lever_evidence"))


@dataclass(frozen=True)
class CommandOutcome:
    """The outcome of a command on an input."""

    command: str
    code: int
    response: Json | None  # None if the command refused the input
    applied: frozenset[str] = frozenset()


def facts_of(outcome: CommandOutcome, places: Mapping[Path, str]) -> Facts:
    """Return the facts of the outcome of a command.

    Args:
        places: folders, and their replacements in a fact.
    """
    facts = Facts([f"code {outcome.code}{' refused' if outcome.response is None else ''}"])
    facts.update(f"applied: {rule}" for rule in outcome.applied)

    def short(text: str) -> str:
        return " ".join(with_names(text, places).split())

    for place, value in _findings_and_values(outcome.response, ""):
        facts.update(_facts_at(place, value, short))
    facts.update(_values((outcome.response or {}).get(ROWS.get(outcome.command, ""), [])))
    facts.update(set(_keys(outcome.response, "")))
    return facts


def with_names(text: str, places: Mapping[Path, str]) -> str:
    """Replace each directory in a text by its name; the deepest directory is replaced first."""
    for path, name in sorted(((str(path), name) for path, name in places.items()), key=lambda row: -len(row[0])):
        text = text.replace(f"{path}/", f"{name}/" if name else "").replace(path, name or ".")
    return text


def _findings_and_values(value: Json, place: str) -> Iterator[tuple[str, Json]]:
    """Yield findings, lists of rules that were not applied, and single values, each with its place."""
    name = place.rpartition(".")[2]
    if (isinstance(value, dict) and value.keys() >= _FINDING) or name == "not_judged":
        yield place, value
    elif isinstance(value, dict):
        for key, part in value.items():
            # The findings of a result include those of its parts
            if key not in ("numbers", "metrics") and not (key == "findings" and ".parts." in place):
                yield from _findings_and_values(part, f"{place}.{key}".lstrip("."))
    elif isinstance(value, list):
        for number, part in enumerate(value):
            yield from _findings_and_values(part, f"{place}.{number}")
    else:
        yield place, value


def _facts_at(place: str, value: Json, short: Any) -> Iterator[str]:
    name = place.rpartition(".")[2]
    if name == "not_judged":
        yield from _not_judged(value, short)
    elif isinstance(value, dict):
        where = short(value.get("file") or "")
        where += f":{value['line']}" if value.get("line") is not None else ""
        numbers = " ".join(sorted(value.get("numbers") or {}))
        action = f" ({value['action']})" if value.get("action", "flag") != "flag" else ""
        yield (
            " ".join(f"{value['severity']} {value['rule']} {where}".split())
            + action
            + (f" {{{numbers}}}" if numbers else "")
        )
    elif isinstance(value, bool) or (name in JUDGEMENTS and value is not None):
        yield f"{short(place)} {short(str(value))}"
    elif name.isdecimal() and _is_list_of_rules(place):
        yield f"{place.rpartition('.')[0]}: {short(str(value))}"


def _values(rows: list[dict[str, Json]]) -> Iterator[str]:
    """Yield the values of rows."""
    for number, row in enumerate(rows):
        yield from (f"{number}.{name} {_value(value)}" for name, value in row.items() if name not in NO_FACTS)


def _value(value: Json) -> str:
    """Return a value of a row. A text for people is only marked as present."""
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value) if value is None or _WORD.fullmatch(str(value)) else "(text)"


def _is_list_of_rules(place: str) -> bool:
    return place.split(".")[-2] in ("flags", "rules", "levers")


def _not_judged(value: Json, short: Any) -> Iterator[str]:
    """Yield the facts on rules that were not applied, by rule if rules are named."""
    if isinstance(value, dict):
        for what, whys in value.items():
            # Texts of libraries follow a colon
            yield from (f"left out: {short(what)}: {short(why).partition(': ')[0]}" for why in whys)
        return
    for row in value:
        for result in row.get("results") or [""]:
            yield from (
                f"not judged in {short(result)}, {row['what']}, {short(row['why'])}: {rule}" for rule in row["rules"]
            )


def _keys(value: Json, path: str) -> Iterator[str]:
    """Yield the keys of each object, once for all entries of a list."""
    if isinstance(value, dict):
        for key, part in value.items():
            data = path.rpartition(".")[2] in _OF_DATA or not _NAME.fullmatch(key)
            name = "*" if data else key
            yield from {f"keys {path or '.'}: {name}", *_keys(part, f"{path}.{name}".lstrip("."))}
    elif isinstance(value, list):
        yield from {key for part in value for key in _keys(part, f"{path}[]")}


_COUNT_OF_RULES = re.compile(r"the [\d,]+ rules of")
PASSED = "Consistency checks passed"


def facts_of_page(text: str, rule_ids: Collection[str], places: Mapping[Path, str]) -> Facts:
    """Return the facts of a verification document: the line of each rule, and the rules that were not applied."""
    facts, section = Facts(), ""
    for path, name in places.items():
        text = text.replace(f"{path}/", f"{name}/" if name else "")
    for line in text.splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if line.startswith("#"):
            section = line.lstrip("# ")
        elif len(cells) == 6 and cells[1].split(" ")[0] in rule_ids:
            _, rule, place, _, _, result = cells
            facts[f"{result} {rule.split(' ')[0]} {place}".strip()] += 1
        elif section in (PASSED, "Rules not applied") and line.startswith("- "):
            part, *whys = line[2:].split(": ")
            rules = {why: [word for word in re.findall(r"[\w/-]+", why) if word in rule_ids] for why in whys}
            why = ", ".join(why for why in whys if not rules[why])
            facts.update(
                {
                    f"{'applied without a finding' if section == PASSED else 'not checked'}, {part}, {why}: {rule}"
                    for reason in whys
                    for rule in rules[reason]
                }
                # One more rule does not change each case
                or {f"left out: {_COUNT_OF_RULES.sub('the rules of', line[2:])}"}
            )
    return facts


# The file that holds the facts of a command -------------------------------------------------------------------------


def as_text(head: str, cases: Mapping[str, Facts], bases: Mapping[str, str]) -> str:
    """Return the facts of all cases: complete, or as difference from the base or a complete case."""
    shared = {kind: {fact for facts in cases.values() for fact in facts if fact.startswith(kind)} for kind in SHARED}
    lines, written = [f"# {head}"], list[str]()
    lines += [f"{ALL}{line}" for facts in shared.values() for line in _lines_of(Facts(facts))]
    cases = {name: _without_shared(facts, shared) for name, facts in cases.items()}
    for name, facts in cases.items():
        all_lines = _lines_of(facts)
        against = dict.fromkeys(value for value in (bases.get(name), *written) if value)
        changes = {value: _change_lines(cases[value], facts) for value in against}
        best = min(changes, key=lambda change: _size(changes[change]), default="")
        if best and _size(changes[best]) < WORTH_IT * _size(all_lines):
            lines += [f"[{name}] = [{best}]", *changes[best]]
        else:
            written.append(name)
            lines += [f"[{name}]", *all_lines]
    return "\n".join(lines) + "\n"


# Facts of nearly all cases are written once for the file. A case lists those that it does not have. So a new rule that
# is applied in each case changes one line.
SHARED, ALL, WITHOUT = ("applied: ", "rules: "), "* ", "without "


def _without_shared(facts: Facts, shared: Mapping[str, set[str]]) -> Facts:
    remaining = Facts(facts)
    for kind, everywhere in shared.items():
        of_kind = Facts({fact: count for fact, count in facts.items() if fact.startswith(kind)})
        absent = everywhere - of_kind.keys()
        if of_kind.total() == len(of_kind) > len(absent):
            remaining -= of_kind
            remaining.update([f"{ALL}{kind}all", *(f"{WITHOUT}{fact}" for fact in absent)])
    return remaining


def _with_shared(written: Facts, shared: Mapping[str, set[str]]) -> Facts:
    facts = Facts({fact: count for fact, count in written.items() if not fact.startswith((WITHOUT, ALL))})
    for kind, everywhere in shared.items():
        if f"{ALL}{kind}all" in written:
            facts.update(fact for fact in everywhere if f"{WITHOUT}{fact}" not in written)
    return facts


WORTH_IT = 0.5  # maximum size of a difference, as a share of the complete case


def _size(lines: Iterable[str]) -> int:
    return sum(map(len, lines))


def _change_lines(before: Facts, after: Facts) -> list[str]:
    signs = (("-", before - after), ("+", after - before))
    return [f"{sign} {line}" for sign, facts in signs for line in _lines_of(facts)]


def from_text(text: str) -> dict[str, Facts]:
    """Return the facts of all cases of a file."""
    cases: dict[str, Facts] = {}
    facts = Facts()
    shared: dict[str, set[str]] = {kind: set() for kind in SHARED}
    for line in text.splitlines():
        if line.startswith("# "):
            continue
        if line.startswith(ALL) and not cases:
            kind = next(kind for kind in SHARED if line.startswith(ALL + kind))
            shared[kind] = {fact for fact, _ in _expanded(line.removeprefix(ALL))}
            continue
        if line.startswith("["):
            name, _, base = line.partition(" = ")
            facts = Facts(cases[base[1:-1]]) if base else Facts()
            cases[name[1:-1]] = facts
            continue
        sign, rest = (line[0], line[2:]) if line[:2] in ("- ", "+ ") else ("+", line)
        for fact, count in _expanded(rest):
            facts[fact] += count if sign == "+" else -count
            if not facts[fact]:
                del facts[fact]
    return {name: _with_shared(facts, shared) for name, facts in cases.items()}


NOT_JUDGED = "not judged in "
GROUPED = (
    *("applied: ", "rules: ", "without applied: ", "without rules: "),
    *("not checked, ", "applied without a finding, ", NOT_JUDGED, "keys "),
)


def _lines_of(facts: Facts) -> list[str]:
    """Return the lines of a file."""
    groups: dict[str, list[str]] = {}
    lines = []
    for fact, count in facts.items():
        if fact.startswith(GROUPED) and count == 1:
            head, _, word = fact.rpartition(": ")
            groups.setdefault(head, []).append(word)
        else:
            lines.append(fact if count == 1 else f"{fact}  x{count}")
    return sorted([*lines, *(f"{head}: {' '.join(sorted(words))}" for head, words in groups.items())])


def _expanded(line: str) -> Iterator[tuple[str, int]]:
    """Return the facts of a line, with their number."""
    count = _COUNT.search(line)
    if count:
        yield line[: count.start()], int(count[1])
    elif line.startswith(GROUPED):
        head, _, words = line.rpartition(": ")
        yield from ((f"{head}: {word}", 1) for word in words.split())
    else:
        yield line, 1


# Differences --------------------------------------------------------------------------------------------------------

SHOWN_CASES, SHOWN_FACTS, WIDTH = 12, 12, 240


def difference(frozen: Mapping[str, Facts], current: Mapping[str, Facts]) -> str:
    """Return the differences between the frozen and the current facts, for people; empty without differences.

    Only the cases that were run are compared.
    """
    changes = {name: _changes(frozen.get(name), facts) for name, facts in current.items()}
    changes = {name: several for name, several in changes.items() if several}
    if not changes:
        return ""
    alike: dict[tuple[str, ...], list[str]] = {}
    for name, case_changes in changes.items():
        alike.setdefault(tuple(case_changes), []).append(name)
    lines = [f"{len(changes)} of {len(current)} cases differ; `make freeze` writes what was found"]
    for case_changes, names in sorted(alike.items(), key=lambda item: -len(item[1]))[:SHOWN_CASES]:
        lines.append(f"  {', '.join(names[:4])}" + (f" and {len(names) - 4} more" if len(names) > 4 else ""))
        lines += [f"    {line}" for line in case_changes[:SHOWN_FACTS]]
        lines += [f"    and {len(case_changes) - SHOWN_FACTS} more"] if len(case_changes) > SHOWN_FACTS else []
    lines += [f"  and {len(alike) - SHOWN_CASES} more kinds of differences"] if len(alike) > SHOWN_CASES else []
    by_fact = Counter(line for several in changes.values() for line in map(_without_place, several))
    lines.append("  most frequent:")
    lines += [f"    {count} x {line}" for line, count in by_fact.most_common(SHOWN_FACTS)]
    return "\n".join(line if len(line) <= WIDTH else f"{line[:WIDTH]}…" for line in lines)


def by_rule(before: Mapping[str, Facts], after: Mapping[str, Facts]) -> Iterator[str]:
    """Yield each exit code, verdict and violated rule that vanished or appeared, with its cases, for people.

    Cases of one side alone are omitted, and so are files and lines.
    """
    places: dict[tuple[str, str], list[str]] = {}
    for name in (name for name in before if name in after):
        old, new = (set(filter(None, map(_outcome, facts[name]))) for facts in (before, after))
        for sign, facts in (("-", old - new), ("+", new - old)):
            for fact in facts:
                places.setdefault((fact, sign), []).append(name)
    for (fact, sign), names in sorted(places.items()):
        shown = "; ".join(names[:4]) + (f"; and {len(names) - 4} more" if len(names) > 4 else "")
        yield f"{sign} {fact}, {len(names)} cases: {shown}"


def _outcome(fact: str) -> str:
    """Return what a fact states on the outcome, or an empty text."""
    kind, rule, *_ = f"{fact} ".split(" ")
    return f"{kind} {rule}" if kind in ("error", "warning", "code") or kind.endswith("verdict") else ""


def _changes(frozen: Facts | None, current: Facts) -> list[str]:
    """Yield the differences; the first ones have the same rule with another reason, line or numbers."""
    if frozen is None:
        return ["the case is new"]
    gone, new = frozen - current, current - frozen
    moved, by_gist = Facts(), defaultdict[str, list[str]](list)
    for fact in new.elements():
        by_gist[_split(fact)[0]].append(fact)
    for fact in list(gone.elements()):
        gist, rest = _split(fact)
        if rest and by_gist[gist]:
            twin = by_gist[gist].pop()
            gone[fact] -= 1
            new[twin] -= 1
            kind = "another reason" if fact.startswith(NOT_JUDGED) else f"moved: {gist}"
            moved[f"{kind}: {rest} → {_split(twin)[1]}"] += 1
    groups = (("", moved), ("vanished: ", +gone), ("appeared: ", +new))
    return [f"{head}{line}" for head, facts in groups for line in _lines_of(facts)]


def _split(fact: str) -> tuple[str, str]:
    """Split a fact into its rule and its place or reason."""
    if fact.startswith(NOT_JUDGED):
        head, _, rule = fact.rpartition(": ")
        place, _, why = head.partition(", ")
        return f"{place}: {rule}", why
    if fact.split(" ")[0] in SEVERITIES:
        file = _LINE.match(fact)
        assert file is not None
        return file[1], fact[file.end(1) :] or "no line"
    return fact, ""


def _without_place(change: str) -> str:
    """Return the change without its file."""
    words = change.split()
    return " ".join(words[:3]) if words[1] in SEVERITIES else change


def names_of(cases: Iterable[str], frozen: Mapping[str, Facts]) -> str:
    """Return the frozen cases that no longer exist; empty without such cases."""
    lost = sorted(set(frozen) - set(cases))
    return f"frozen, and made no longer: {', '.join(lost)}" if lost else ""
