"""Merges what the compute hosts measured into one result: table, JSON and data of the plot.

Counters are added, histograms merged bucket by bucket, and every percentile is taken from the
merged histogram. The time of the whole run goes from the first host's start to the last one's end.
"""

import csv
import json
from collections import defaultdict
from dataclasses import dataclass, field

from pando_cluster.histogram import Histogram, count_of

COUNTS = ("count", "errors", "not_found", "verbs", "bytes_read", "bytes_written")
US = 1000.0  # ns


class ResultError(Exception):
    """A file that is no result of pando-ycsb."""


@dataclass
class Operation:
    counts: dict = field(default_factory=lambda: dict.fromkeys(COUNTS, 0))
    latency_ns: Histogram = field(default_factory=Histogram)
    round_trips: Histogram = field(default_factory=Histogram)

    @property
    def count(self):
        return self.counts["count"]

    def merge(self, other):
        for name in COUNTS:
            self.counts[name] += other.counts[name]
        self.latency_ns.merge(other.latency_ns)
        self.round_trips.merge(other.round_trips)

    def summary(self):
        """The fields of run.by_operation in the JSON of pando-ycsb."""
        count = max(1, self.count)
        latency, trips = self.latency_ns, self.round_trips
        percents = {"p50": 50, "p90": 90, "p99": 99, "p999": 99.9}
        return {
            "count": self.count,
            "errors": self.counts["errors"],
            "not_found": self.counts["not_found"],
            "latency_us": {
                "mean": latency.mean() / US,
                **{name: latency.percentile(percent) / US for name, percent in percents.items()},
                "max": latency.max / US,
            },
            "round_trips": {
                "mean": trips.mean(),
                "p50": trips.percentile(50),
                "p99": trips.percentile(99),
                "max": trips.max,
            },
            **{
                name: {"mean": self.counts[name] / count}
                for name in ("verbs", "bytes_read", "bytes_written")
            },
        }


@dataclass
class Run:
    """A run of one host, or of several merged."""

    operations: dict = field(default_factory=dict)  # by name
    per_second: list = field(default_factory=list)
    start_unix_ns: int = None
    end_unix_ns: int = 0
    cpu_ns: int = 0
    backlog: int = 0
    gave_up: bool = False
    stopped: bool = False  # a signal ended it before its time
    tree_error: str = ""  # what the tree has lost, with a memory server
    first_error: str = ""
    fabric: dict = field(default_factory=dict)
    tree: dict = field(default_factory=dict)
    owned: dict = field(default_factory=dict)

    @property
    def count(self):
        return sum(operation.count for operation in self.operations.values())

    @property
    def errors(self):
        return sum(operation.counts["errors"] for operation in self.operations.values())

    @property
    def seconds(self):
        if self.start_unix_ns is None:
            return 0.0
        return max(0, self.end_unix_ns - self.start_unix_ns) / 1e9

    @property
    def throughput(self):
        return self.count / self.seconds if self.seconds else 0.0

    @property
    def faults(self):
        """Why this is not the run that was asked for, a line each; empty: it is."""
        lines = []
        if self.stopped:
            lines.append("stopped by a signal: only what was measured until then is here")
        if self.gave_up:
            lines.append("gave up after too many errors in a row")
        if self.tree_error:
            lines.append(f"the tree is lost: {self.tree_error}")
        return lines

    def merge(self, other):
        for name, operation in other.operations.items():
            self.operations.setdefault(name, Operation()).merge(operation)
        self.per_second += [0] * (len(other.per_second) - len(self.per_second))
        for second, count in enumerate(other.per_second):
            self.per_second[second] += count
        starts = [s for s in (self.start_unix_ns, other.start_unix_ns) if s is not None]
        self.start_unix_ns = min(starts, default=None)
        self.end_unix_ns = max(self.end_unix_ns, other.end_unix_ns)
        self.cpu_ns += other.cpu_ns
        self.backlog += other.backlog
        self.gave_up = self.gave_up or other.gave_up
        self.stopped = self.stopped or other.stopped
        self.tree_error = self.tree_error or other.tree_error
        self.first_error = self.first_error or other.first_error
        for counters in ("fabric", "tree", "owned"):
            mine = getattr(self, counters)
            for name, value in getattr(other, counters).items():
                mine[name] = mine.get(name, 0) + value

    def fault_fields(self):
        """The same for programs."""
        names = ("stopped", "gave_up", "tree_error")
        return {name: getattr(self, name) for name in names}

    def summary(self):
        return {
            "seconds": self.seconds,
            "operations": self.count,
            "errors": self.errors,
            "throughput": self.throughput,
            "cpu_seconds": self.cpu_ns / 1e9,
            "backlog": self.backlog,
            **self.fault_fields(),
            "per_second": self.per_second,
            "by_operation": {name: o.summary() for name, o in self.operations.items()},
            "fabric": self.fabric,
            "tree": self.tree,
            "owned": self.owned,
        }


def read_run(document):
    """The Run in what `pando-ycsb --histograms` has written. ResultError."""
    try:
        if document["format"] != 1:
            raise ValueError(f"format {document['format']} is not 1")
        if not isinstance(document["config"], dict):  # is handed on
            raise ValueError("its config is no table")
        raw = document["run"]
        run = Run(per_second=[count_of(count) for count in raw["per_second"]])
        for name, given in raw["by_operation"].items():
            operation = Operation({field_name: count_of(given[field_name]) for field_name in COUNTS})
            operation.latency_ns = Histogram.from_json(given["latency_ns"])
            operation.round_trips = Histogram.from_json(given["round_trips"])
            if operation.latency_ns.count != operation.count:
                raise ValueError(f"{name}: as many latencies as operations are expected")
            run.operations[name] = operation
        for name in ("start_unix_ns", "end_unix_ns", "cpu_ns", "backlog"):
            setattr(run, name, count_of(raw[name]))
        run.gave_up, run.first_error = bool(raw["gave_up"]), str(raw["first_error"])
        # Older files do not have them.
        run.stopped, run.tree_error = bool(raw.get("stopped")), str(raw.get("tree_error", ""))
        run.fabric = {name: count_of(value) for name, value in raw["fabric"].items()}
        run.tree = {name: count_of(value) for name, value in raw["tree"].items()}
        run.owned = {name: count_of(value) for name, value in raw["owned"].items()}
        for name in ("cache_bytes", "place_bytes"):
            run.tree[name] = count_of(raw[name])
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise ResultError(f"is no result of this release's pando-ycsb: {error!r}") from None
    return run


def read_file(path):
    """The document and its Run. ResultError."""
    try:
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
    except (OSError, ValueError, RecursionError) as error:
        raise ResultError(f"{path}: {error}") from None
    return document, read_run(document)


def merge(runs):
    whole = Run()
    for run in runs:
        whole.merge(run)
    return whole


# --- For the reader.

_COLUMNS = (("mean us", "mean"), ("p50 us", "p50"), ("p99 us", "p99"), ("p99.9 us", "p999"))
_HEADER = (
    f"{'':9} {'count':>10} {'errors':>7} "
    + " ".join(f"{title:>9}" for title, _ in _COLUMNS)
    + f" {'max us':>10} {'trips':>6}"
)


def _row(name, summary):
    us = summary["latency_us"]
    latencies = " ".join(f"{us[field_name]:9.2f}" for _, field_name in _COLUMNS)
    return (
        f"{name:9} {summary['count']:10} {summary['errors']:7} {latencies} "
        f"{us['max']:10.1f} {summary['round_trips']['mean']:6.3f}"
    )


def _owned_line(owned):
    """What the owners did, all together."""
    owned = defaultdict(int, owned)
    asked = max(1, owned["hits"] + owned["misses"])
    return (
        f"owned     {100 * owned['hits'] / asked:.2f} % hits, {owned['forwarded']} forwarded; log: "
        f"{owned['log_messages']} writes in {owned['log_batches']} batches; "
        f"{owned['flushed']} flushed into {owned['flushed_leaves']} leaves"
    )


def table(config, run_name, runs, whole):
    """Text: the whole, and a line a host."""
    lines = [
        f"cluster {config.cluster.name}, run {run_name}: workload {config.bench.workload}, "
        f"{config.bench.records} records",
        f"{config.cluster.fabric} fabric: {config.memory_servers} memory servers on "
        f"{len(config.memory_hosts)} hosts, {config.compute_servers} compute servers x "
        f"{config.bench.threads} threads x {config.bench.coroutines} coroutines on "
        f"{len(config.compute_hosts)} hosts",
        f"run       {whole.count} operations in {whole.seconds:.2f} s: "
        f"{whole.throughput / 1000:.1f} k/s",
        "",
        _HEADER,
    ]
    lines += [_row(name, o.summary()) for name, o in whole.operations.items() if o.count]
    if config.bench.mode == "owned":
        lines += ["", _owned_line(whole.owned)]
    lines.append("")
    width = max(9, *(len(name) for name in runs))
    lines += [
        f"{name:{width}} {run.count:10} operations, {run.errors} errors, "
        f"{run.throughput / 1000:.1f} k/s"
        for name, run in runs.items()
    ]
    if whole.backlog:
        lines.append(f"too slow: {whole.backlog} operations were due and had not begun at the end")
    if whole.first_error:
        lines.append(f"the first error: {whole.first_error}")
    lines += [f"{name}: {fault}" for name, run in runs.items() for fault in run.faults]
    return "\n".join(lines) + "\n"


def result_json(config, run_name, document, runs, whole):
    """`run` has the fields of pando-ycsb's own JSON; histograms and hosts are beside it."""
    return {
        "format": 1,
        "cluster": config.cluster.name,
        "run_name": run_name,
        "memory_servers": config.memory_servers,
        "compute_servers": config.compute_servers,
        "config": document["config"],
        "run": whole.summary(),
        "histograms": {
            name: {"latency_ns": o.latency_ns.to_json(), "round_trips": o.round_trips.to_json()}
            for name, o in whole.operations.items()
            if o.count
        },
        "hosts": {
            name: {
                "operations": run.count,
                "errors": run.errors,
                "seconds": run.seconds,
                "throughput": run.throughput,
                **run.fault_fields(),
            }
            for name, run in runs.items()
        },
    }


def write_data(folder, whole):
    """The data of the plot: latency.csv and throughput.csv."""
    with open(f"{folder}/throughput.csv", "w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["second", "operations"])
        rows.writerows(enumerate(whole.per_second))
    with open(f"{folder}/latency.csv", "w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["operation", "lowest_ns", "count", "cumulative_share"])
        for name, operation in whole.operations.items():
            seen = 0
            for lowest in sorted(operation.latency_ns.counts):
                count = operation.latency_ns.counts[lowest]
                seen += count
                rows.writerow([name, lowest, count, f"{seen / operation.count:.6f}"])
