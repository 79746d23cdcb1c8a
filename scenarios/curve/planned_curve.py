"""The plan of a curve, from the configuration and the files of earlier calls: its points, their states and changes."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from compliance.mlperf_endpoints.curve_rules import DEDICATED
from runs.errors import InputError
from runs.files.reading import read_object
from runs.files.writing import write_json
from scenarios.curve.client_config import ClientForm, PlannedLoad, client_config, point_settings
from scenarios.curve.curve_config import CurveConfig
from scenarios.curve.curve_dir import CurveDir, read_verified
from scenarios.curve.curve_plan import CurvePlan, NoCurve, PlannedPoint, curve_levels, plan_curve, usable_c_max
from scenarios.curve.examined_run import SCHEMA_VERSION
from scenarios.curve.plan_table import EVENT_BYTES
from scenarios.curve.probed_levels import ProbedLevels, point_count

DONE, TO_DO, CHANGED = "done", "to do", "changed"
FIX_CHANGED = "revert the change, or repeat these points with --restart-changed (their files move to discarded/)"
# Keys of curve.yaml that decide the concurrencies and the rates.
_PLANNED = (
    "c_min", "c_max", "max_concurrency", "concurrencies", "points", "offline", "max_point_hours", "basis", "server",
    "model", "tokenizer", "model_params", "datasets", "rows", "client_settings", "api_type", "seed_set",
)  # fmt: skip


class PlannedCurve:
    """The points of a curve, as far as its files decide them."""

    def __init__(self, curve: CurveConfig, place: CurveDir) -> None:
        self._curve, self._place = curve, place
        self.form: ClientForm | None = None  # None: not known yet
        self.identity: dict[str, Any] = {}  # facts of the server that all points share
        self.levels: ProbedLevels | None = None
        self.changed_keys: list[str] = []  # keys of the configuration that differ from plan.json

    def read(self) -> None:
        """Read plan.json, if it has concurrencies for the present configuration."""
        path = self._place.plan
        if not path.is_file():
            return
        record = read_object(path, "move the file away", within=self._place.root)
        self.form = self.form or ClientForm.from_json(record.get("form"))
        self.changed_keys = [
            f"{key}: {before}, now {now}" for key, before, now in _unequal(record.get("requested"), self._requested)
        ]
        if not self.changed_keys and (levels := record.get("levels")):
            rates = {int(level): float(rate) for level, rate in levels["rates"].items()}
            self.levels = ProbedLevels(levels["c_min"], levels["c_max"], list(levels["notes"]), rates)

    def write(self, plan: CurvePlan) -> None:
        """Write plan.json."""
        write_json(
            self._place.plan,
            {
                "schema_version": SCHEMA_VERSION,
                "requested": self._requested,
                "form": None if self.form is None else asdict(self.form),
                "identity": self.identity,
                "accelerators": self._curve.options.accelerators,
                "levels": None if self.levels is None else self.levels.as_json(),
                "c_min": plan.c_min,
                "c_max": plan.c_max,
                "c_min_override": plan.c_min_override,
                "regions": {name: list(bounds) for name, bounds in plan.bounds.items()},
                "points": [asdict(point) for point in plan.points],
            },
        )

    @property
    def notes(self) -> list[str]:
        """Notes on the probes."""
        return [] if self.levels is None else self.levels.notes

    @property
    def _requested(self) -> dict[str, Any]:
        options = self._curve.options.model_dump(mode="json")
        return {name: options[name] for name in _PLANNED} | {"rehearsal": self._curve.is_rehearsal}

    def plan(self) -> CurvePlan | None:
        """Return the points with the rates measured so far; None if C_max is unknown.

        Raises:
            InputError: If the concurrencies of the configuration do not cover all regions.
        """
        curve, options = self._curve, self._curve.options
        count = point_count(curve)
        if options.concurrencies is not None:
            levels = sorted(set(options.concurrencies))
        elif self.levels is not None:
            levels = curve_levels(self.levels.c_min, self.levels.c_max, curve.ultra_low, count)
        elif options.c_max is not None:
            c_min = options.c_min or curve.ultra_low
            c_max = usable_c_max(c_min, max(options.c_max, curve.min_c_max), curve.ultra_low, count)
            levels = curve_levels(c_min, c_max, curve.ultra_low, count)
        else:
            return None
        rates = dict(self.levels.rates) if self.levels is not None else {}
        records = list(self.records().values())
        finished = {int(record["concurrency"]): record for record in records if not record.get("offline")}
        rates |= {level: record["rate"] for level, record in finished.items()}
        crops = {level: record["crop"] for level, record in finished.items() if record.get("crop")}
        try:
            return plan_curve(
                levels, rates, ultra_low=curve.ultra_low, rows=curve.rows, durations_s=curve.durations_s,
                basis=options.basis, offline=options.offline, crops=crops,
            )  # fmt: skip
        except NoCurve as error:
            raise InputError(f"{curve.file}: concurrencies: {error}", "add a concurrency of this region") from error

    def complete_plan(self) -> CurvePlan:
        """Return the points when C_max is known."""
        plan = self.plan()
        assert plan is not None
        return plan

    def records(self) -> dict[str, dict[str, Any]]:
        """Return the records of finished points by name."""
        folders = sorted(self._place.points.iterdir()) if self._place.points.is_dir() else []
        records = {folder.name: read_verified(folder) for folder in folders}
        return {name: record for name, record in records.items() if record is not None}

    def states(self, plan: CurvePlan) -> dict[str, str]:
        """Return the state of each point."""
        records = self.records()
        return {
            point.name: TO_DO if point.name not in records else CHANGED if self._changes(point, records) else DONE
            for point in plan.points
        }

    def changes(self, plan: CurvePlan) -> dict[str, list[str]]:
        """Return the differences between finished points and the plan, by point."""
        records, points = self.records(), {point.name: point for point in plan.points}
        changes = {
            name: self._changes(points[name], records) if name in points else [f"{name}: not in the plan"]
            for name in records
        }
        return {name: texts for name, texts in changes.items() if texts}

    def _changes(self, point: PlannedPoint, records: dict[str, dict[str, Any]]) -> list[str]:
        """Return the settings of a finished point that differ from the plan."""
        record = records[point.name]
        form = self.form or ClientForm.from_json(record.get("form"))
        facts: list[tuple[str, Any, Any]] = [("rehearsal", record["rehearsal"], self._curve.is_rehearsal)]
        if form is not None:
            config = client_config(self._curve, form, self.load(point, point.passes or 1), Path())
            facts.append(("settings", record["settings"], point_settings(config)))
        facts += [(name, record["identity"].get(name), value) for name, value in self.identity.items() if value]
        return [
            f"{point.name}: {name}{path and '.'}{path}: {before}, now {now}"
            for name, old, new in facts
            for path, before, now in _unequal(old, new)
        ]

    def load(self, point: PlannedPoint, passes: int) -> PlannedLoad:
        """Return what the run of a point issues."""
        return PlannedLoad(point.concurrency, passes * self._curve.rows, point.offline == DEDICATED, point.accuracy)

    def event_bytes(self) -> float:
        """Return the bytes of the events of one sample, as measured in finished runs."""
        sizes = [record["event_bytes"] / record["samples"] for record in self.records().values()]
        return max(sizes, default=float(EVENT_BYTES))


def _unequal(old: Any, new: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield the paths at which two values differ, with both values."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in dict.fromkeys((*old, *new)):
            for path, before, now in _unequal(old.get(key), new.get(key)):
                yield f"{key}{path and '.'}{path}", before, now
    elif old != new:
        yield "", old, new
