#!/usr/bin/python3
"""Merged histograms are those of all samples."""

import json
import random
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
from pando_cluster import results
from pando_cluster.histogram import Histogram, highest_of, lowest_of

PERCENTS = (0, 0.1, 1, 25, 50, 90, 99, 99.9, 100)


def samples(seed, count):
    generator = random.Random(seed)
    return [int(generator.lognormvariate(10, 3)) for _ in range(count)]


def histogram_of(values):
    histogram = Histogram()
    for value in values:
        histogram.add(value)
    return histogram


class HistogramTest(unittest.TestCase):
    def test_merged_is_the_histogram_of_all_samples(self):
        # Hosts with very different latencies: averaged percentiles would be far off.
        parts = [[value * factor for value in samples(factor, 5_000)] for factor in (1, 3, 100)]
        merged = Histogram()
        for part in parts:
            merged.merge(Histogram.from_json(json.loads(json.dumps(histogram_of(part).to_json()))))
        everything = sorted(value for part in parts for value in part)
        whole = histogram_of(everything)
        self.assertEqual(merged.counts, whole.counts)
        self.assertEqual(
            (merged.count, merged.min, merged.max, merged.sum),
            (len(everything), everything[0], everything[-1], sum(everything)),
        )
        for percent in PERCENTS:
            self.assertEqual(merged.percentile(percent), whole.percentile(percent))
            rank = max(1, -(-percent * len(everything) // 100))
            exact = everything[int(rank) - 1]
            self.assertGreaterEqual(merged.percentile(percent), exact)
            self.assertLessEqual(merged.percentile(percent), exact * (1 + 1 / 128) + 1)

    def test_buckets_are_those_of_the_library(self):
        # As common/base/histogram_test.cpp has them: exact below 256, then 128 a power of two.
        values = (0, 255, 256, 257, 511, 512)
        self.assertEqual([lowest_of(v) for v in values], [0, 255, 256, 256, 510, 512])
        self.assertEqual([highest_of(v) for v in (0, 255, 256, 510, 512)], [0, 255, 257, 511, 515])
        for value in (10**6, 2**62 - 1):
            self.assertLessEqual(lowest_of(value), value)
            self.assertGreaterEqual(highest_of(lowest_of(value)), value)

    def test_empty(self):
        merged = Histogram()
        merged.merge(Histogram.from_json(Histogram().to_json()))
        self.assertEqual((merged.count, merged.percentile(50), merged.mean()), (0, 0, 0.0))
        self.assertEqual(merged.to_json(), {"buckets": [], "sum": 0.0, "min": 0, "max": 0})

    def test_foreign_buckets_are_refused(self):
        for buckets in ([[257, 1]], [[-1, 1]], [[5, 0]], [[5, 1], [5, 1]], [[5.0, 1]], [["5", 1]]):
            with self.assertRaises(ValueError):
                Histogram.from_json({"buckets": buckets, "sum": 0, "min": 0, "max": 0})


def document(values, start_s, end_s, per_second, errors=0):
    """What pando-ycsb --histograms writes, for reads only."""
    read = {
        "count": len(values), "errors": errors, "not_found": 0, "verbs": len(values),
        "bytes_read": 64 * len(values), "bytes_written": 0,
        "latency_ns": histogram_of(values).to_json(),
        "round_trips": histogram_of([1] * len(values)).to_json(),
    }  # fmt: skip
    return {
        "format": 1,
        "config": {},
        "run": {
            "by_operation": {"read": read},
            "per_second": per_second,
            "start_unix_ns": start_s * 10**9,
            "end_unix_ns": end_s * 10**9,
            "cpu_ns": 10**9, "backlog": 1, "gave_up": False, "first_error": "",
            "fabric": {"reads": len(values)}, "tree": {"splits": 2}, "cache_bytes": 7, "place_bytes": 3,
            "owned": {"hits": 5, "forwarded": 1},
        },
    }  # fmt: skip


class MergeTest(unittest.TestCase):
    def test_hosts_are_added_up(self):
        fast, slow = samples(1, 300), [value * 50 for value in samples(2, 100)]
        whole = results.merge(
            [
                results.read_run(document(fast, 100, 103, [100, 100, 100])),
                results.read_run(document(slow, 101, 105, [20, 20, 20, 40], errors=4)),
            ]
        )
        summary = whole.summary()
        self.assertEqual((summary["operations"], summary["errors"]), (400, 4))
        self.assertEqual(summary["seconds"], 5)
        self.assertEqual(summary["throughput"], 80)
        self.assertEqual(summary["per_second"], [120, 120, 120, 40])
        self.assertEqual(summary["backlog"], 2)
        self.assertEqual(summary["cpu_seconds"], 2)
        self.assertEqual(summary["fabric"], {"reads": 400})
        self.assertEqual(summary["tree"], {"splits": 4, "cache_bytes": 14, "place_bytes": 6})
        self.assertEqual(summary["owned"], {"hits": 10, "forwarded": 2})
        read = summary["by_operation"]["read"]
        expected = histogram_of(fast + slow)
        self.assertEqual(read["latency_us"]["p99"], expected.percentile(99) / 1000)
        self.assertAlmostEqual(read["latency_us"]["mean"], sum(fast + slow) / 400 / 1000)
        self.assertEqual(read["bytes_read"]["mean"], 64)

    def test_one_host_that_is_not_whole_spoils_the_whole(self):
        good = document([1, 2], 1, 2, [2])
        self.assertEqual(results.read_run(good).faults, [], "older files have neither field")
        for field, value, says in (
            ("stopped", True, "stopped by a signal"),
            ("gave_up", True, "gave up"),
            ("tree_error", "server 2 is gone", "the tree is lost: server 2 is gone"),
        ):
            bad = document([1, 2], 1, 2, [2])
            bad["run"].update(stopped=False, tree_error="")
            self.assertEqual(results.read_run(bad).faults, [])
            bad["run"][field] = value
            for parts in ([good, bad], [bad, good]):
                whole = results.merge([results.read_run(part) for part in parts])
                self.assertEqual(len(whole.faults), 1)
                self.assertIn(says, whole.faults[0])
                self.assertEqual(whole.summary()[field], value)

    def test_other_files_are_refused(self):
        good = document([1, 2], 1, 2, [2])
        self.assertEqual(results.read_run(good).count, 2)
        for spoil in (
            lambda d: d.pop("run"),
            lambda d: d.update(format=2),
            lambda d: d["run"].pop("start_unix_ns"),
            lambda d: d["run"]["by_operation"]["read"].update(count=3),
            lambda d: d["run"]["by_operation"]["read"].update(errors=-1),
            lambda d: d["run"].update(per_second=["x"]),
            lambda d: d["run"].update(by_operation=[]),
            lambda d: d["run"].pop("owned"),
            lambda d: d["run"]["owned"].update(hits=-1),
            lambda d: d.pop("config"),
            lambda d: d["run"].update(cpu_ns=10**400),
            lambda d: d["run"]["by_operation"]["read"]["latency_ns"].update(sum="x"),
            lambda d: d["run"]["by_operation"]["read"]["latency_ns"].update(sum=10**400),
            lambda d: d["run"]["by_operation"]["read"]["latency_ns"].update(max=None),
            lambda d: d["run"]["by_operation"]["read"]["round_trips"].update(buckets=[[1, 10**400]]),
        ):
            bad = json.loads(json.dumps(good))
            spoil(bad)
            with self.assertRaises(results.ResultError):
                results.read_run(bad)
        with self.assertRaises(results.ResultError):
            results.read_run([])
        with tempfile.NamedTemporaryFile("w", encoding="utf-8") as file:
            file.write("[" * 100_000)
            file.flush()
            with self.assertRaises(results.ResultError):
                results.read_file(file.name)


if __name__ == "__main__":
    unittest.main()
