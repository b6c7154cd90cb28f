"""The picture of a run of pando-ycsb: python3 -c THIS RUN.json PICTURE.png; without arguments: is all there for one?"""

import json
import sys

try:
    import matplotlib
except ImportError:
    sys.exit(3)
matplotlib.use("Agg")
from matplotlib import pyplot  # pylint: disable=wrong-import-position  # after the choice of backend


def _latency(axes, latencies):
    """Of each kind of operation: how many took longer than what."""
    for name, points in latencies.items():
        axes.step([us for us, _ in points], [percent for _, percent in points], where="post", label=name)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("latency, microseconds")
    axes.set_ylabel("operations that took longer, %")
    axes.grid(alpha=0.3)
    if latencies:
        axes.legend()


def _throughput(axes, per_second, mean):
    axes.plot(range(len(per_second)), [count / 1000 for count in per_second], marker=".", label="by seconds")
    axes.axhline(mean / 1000, linestyle="--", color="gray", label="mean")
    axes.set_xlabel("second of the run")
    axes.set_ylabel("thousand operations/s")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend()


def main(run_file, picture):
    """Writes the picture."""
    with open(run_file, encoding="utf-8") as file:
        run = json.load(file)
    figure, (rate, latency) = pyplot.subplots(1, 2, figsize=(11, 4.5))
    # The last second is rarely a whole one.
    _throughput(rate, run["per_second"][:-1] or run["per_second"], run["throughput"])
    _latency(latency, run["latency_above"])
    figure.suptitle(run["title"], fontsize=9)
    figure.tight_layout()
    figure.savefig(picture, dpi=110)


if len(sys.argv) > 1:
    main(*sys.argv[1:])
