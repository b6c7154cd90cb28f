"""The picture of a run: throughput over time, and how many operations took longer than what."""

from pando_cluster.histogram import highest_of


def _steps(histogram):
    """Upper ends of the buckets in us, and the percentage of samples above."""
    seen, values, shares = 0, [], []
    for lowest in sorted(histogram.counts):
        seen += histogram.counts[lowest]
        if seen == histogram.count and values:
            break  # nothing is above the largest; a logarithmic axis has no 0
        values.append(max(1, min(highest_of(lowest), histogram.max)) / 1000)
        shares.append(100 * (1 - seen / histogram.count))
    return values, shares


def write(path, title, whole):
    """Writes a PNG. ImportError: matplotlib is not installed (Debian: python3-matplotlib)."""
    import matplotlib  # pylint: disable=import-outside-toplevel  # everything else works without

    matplotlib.use("Agg")
    from matplotlib import pyplot  # pylint: disable=import-outside-toplevel

    figure, (rate, latency) = pyplot.subplots(1, 2, figsize=(11, 4))
    # The last second is rarely a whole one.
    series = whole.per_second[:-1] or whole.per_second
    rate.plot(range(len(series)), [count / 1000 for count in series], marker=".")
    rate.set_xlabel("second of the run")
    rate.set_ylabel("thousand operations/s")
    rate.set_ylim(bottom=0)
    for name, operation in whole.operations.items():
        if operation.count:
            latency.step(*_steps(operation.latency_ns), where="post", label=name)
    latency.set_xscale("log")
    latency.set_yscale("log")
    latency.set_xlabel("latency, microseconds")
    latency.set_ylabel("operations that took longer, %")
    latency.grid(alpha=0.3)
    if latency.get_lines():
        latency.legend()
    figure.suptitle(title)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
