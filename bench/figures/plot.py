"""The picture of a figure: plot.py DIR FIGURE LABEL reads DIR/FIGURE.json and .run.json, writes DIR/FIGURE.png."""

import json
import pathlib
import sys

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot  # pylint: disable=wrong-import-position  # after the choice of backend

NAMES = {
    "throughput_mops": "throughput, million operations/s",
    "p50_us": "P50, us",
    "p99_us": "P99, us",
    "cache_hits_percent": "hits in the index cache, %",
    "writes_by_round_trips_percent": "writes by round trips, %",
    "writes_by_bytes_percent": "writes by bytes written back, %",
    "reads_by_retries_percent": "gets by repeated READs, %",
    "lock_retries": "failed attempts at a lock of a write",
    "link_busy_percent": "memory server's link busy, %",
    "cpu_busy_percent": "compute servers' threads busy, %",
    "partition_busy_percent": "owners' busiest partition held, %",
    "chains_an_operation": "chains an operation",
    "bytes_read_an_operation": "bytes READ an operation",
    "bytes_written_an_operation": "bytes written an operation",
    "messages_an_operation": "messages an operation",
    "owned_hits_percent": "hits in owners' memory, %",
    "late_looks_percent": "looks that found a tombstone older than the deadline, %",
    "oldest_tombstone_s": "oldest tombstone seen, s",
    "extra_chains_percent": "chains more than without a deadline, %",
    "extra_bytes_written_percent": "bytes written more than without a deadline, %",
}
# Each is a panel, where the figure has it.
PANELS = ["throughput_mops", "p50_us", "p99_us", "cache_hits_percent"]
PANELS_OF = {
    "internals": ["writes_by_round_trips_percent", "lock_retries", "writes_by_bytes_percent",
                  "reads_by_retries_percent"],
    "narrow": ["throughput_mops", "p50_us", "p99_us", "link_busy_percent"],
    "peers": ["throughput_mops", "link_busy_percent", "cpu_busy_percent", "partition_busy_percent"],
    "owned": ["throughput_mops", "p50_us", "chains_an_operation", "messages_an_operation"],
    "owned_cache": ["owned_hits_percent", "chains_an_operation", "throughput_mops"],
    "buffered": ["chains_an_operation", "bytes_read_an_operation", "bytes_written_an_operation"],
    "deletes": ["late_looks_percent", "oldest_tombstone_s", "extra_chains_percent", "extra_bytes_written_percent"],
}
# Whose x are sizes, if they are numbers; of others they are kinds.
LINES = {metric for figure, metrics in PANELS_OF.items() if figure != "internals" for metric in metrics} | set(PANELS)
LOGARITHMIC = {"p50_us", "p99_us", "lock_retries"}


def _ordered(points):
    """The values of x, each once: numbers ascending, then texts in their order."""
    values = list(dict.fromkeys(point["x"] for point in points))
    texts = [value for value in values if isinstance(value, str)]
    return sorted(value for value in values if not isinstance(value, str)) + texts


def _lines(axes, series, points):
    colours = pyplot.get_cmap("tab20").colors
    axes.set_prop_cycle(color=colours[::2] + colours[1::2])
    for name in series:
        mine = sorted((p["x"], p["simulated"]) for p in points if p["series"] == name)
        axes.plot([x for x, _ in mine], [y for _, y in mine], marker="o", markersize=3, label=name)
    published = [(p["x"], p["published"]) for p in points if p["published"] is not None]
    if published:
        axes.plot([x for x, _ in published], [y for _, y in published], "k*", label="paper")
    values = {point["x"] for point in points}
    if min(values) > 0 and max(values) / min(values) > 20:
        axes.set_xscale("log")


def _bars(axes, series, points):
    values = _ordered(points)
    width = 0.8 / len(series)
    for at, name in enumerate(series):
        mine = {p["x"]: p for p in points if p["series"] == name}
        places = [(i + (at - (len(series) - 1) / 2) * width, mine[x]) for i, x in enumerate(values) if x in mine]
        # What was published only is as high as that says.
        heights = [p["published"] if p["simulated"] is None else p["simulated"] for _, p in places]
        axes.bar([place for place, _ in places], heights, width, label=name)
        published = [(place, p["published"]) for place, p in places if p["published"] is not None]
        if published:
            axes.plot([place for place, _ in published], [y for _, y in published], "k*")
    axes.set_xticks(range(len(values)), [str(value) for value in values], rotation=20, ha="right", fontsize=7)


def _panel(axes, metric, points, x_name):
    series = list(dict.fromkeys(point["series"] for point in points))
    numbers = [point for point in points if not isinstance(point["x"], str)]
    if metric in LINES and numbers:
        _lines(axes, series, numbers)
        axes.set_xlabel(x_name)
    else:
        _bars(axes, series, points)
    axes.set_title(NAMES.get(metric, metric), fontsize=10)
    if metric in LOGARITHMIC and any((point["simulated"] or 0) > 0 for point in points):
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=6)


def main(folder, figure, label):
    """Writes the picture."""
    folder = pathlib.Path(folder)
    points = json.loads((folder / f"{figure}.json").read_text(encoding="utf-8"))
    run = json.loads((folder / f"{figure}.run.json").read_text(encoding="utf-8"))
    there = {point["metric"] for point in points}
    metrics = [metric for metric in PANELS_OF.get(figure, PANELS) if metric in there]
    picture, panels = pyplot.subplots(1, len(metrics), figsize=(5 * len(metrics), 4.5), squeeze=False)
    for axes, metric in zip(panels[0], metrics):
        _panel(axes, metric, [point for point in points if point["metric"] == metric], run["x_name"])
    picture.suptitle(f"{run['title']}\n{label}", fontsize=9)
    picture.tight_layout()
    picture.savefig(folder / f"{figure}.png", dpi=110)


if __name__ == "__main__":
    main(*sys.argv[1:])
