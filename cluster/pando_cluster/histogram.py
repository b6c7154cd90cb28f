"""The log-linear histogram of common/base/histogram.h: exact below 256, within 1/128 above.

Histograms are merged by adding counts, which gives what one histogram of all samples would have
been; percentiles are taken from the merged one and never averaged.
"""

import math
from sys import float_info

SUB_BUCKET_BITS = 8
VALUE_MAX = 2**64 - 1  # of samples and of counts


def lowest_of(value):
    """The smallest value of the bucket that `value` (>= 0) falls into."""
    extra = max(0, int(value).bit_length() - SUB_BUCKET_BITS)
    return value >> extra << extra


def highest_of(lowest):
    """The largest value of the bucket whose smallest is `lowest`."""
    extra = max(0, int(lowest).bit_length() - SUB_BUCKET_BITS)
    return lowest + (1 << extra) - 1


def count_of(value):
    """Itself. ValueError: it is no whole number that a program can have counted."""
    if type(value) is not int or not 0 <= value <= VALUE_MAX:  # not isinstance: true is none
        raise ValueError(f"{str(value)[:60]} is no count")
    return value


class Histogram:
    """Counts by the smallest value of their bucket; sum, min and max are exact."""

    def __init__(self):
        self.counts = {}
        self.count = 0
        self.sum = 0.0
        self.min = None
        self.max = 0

    def add(self, value):
        """One sample, a whole number."""
        value = max(0, value)
        lowest = lowest_of(value)
        self.counts[lowest] = self.counts.get(lowest, 0) + 1
        self.count += 1
        self.sum += value
        self.min = value if self.min is None else min(self.min, value)
        self.max = max(self.max, value)

    def merge(self, other):
        for lowest, count in other.counts.items():
            self.counts[lowest] = self.counts.get(lowest, 0) + count
        self.count += other.count
        self.sum += other.sum
        if other.count:
            self.min = other.min if self.min is None else min(self.min, other.min)
        self.max = max(self.max, other.max)

    def mean(self):
        return self.sum / self.count if self.count else 0.0

    def percentile(self, percent):
        """The value that `percent` of the samples do not exceed, at the upper end of its bucket."""
        if self.count == 0:
            return 0
        if percent <= 0:
            return self.min
        if percent >= 100:
            return self.max
        rank = max(1, math.ceil(percent / 100 * self.count - 1e-9))
        seen = 0
        for lowest in sorted(self.counts):
            seen += self.counts[lowest]
            if seen >= rank:
                return min(max(highest_of(lowest), self.min), self.max)
        return self.max

    def to_json(self):
        return {
            "buckets": [[lowest, self.counts[lowest]] for lowest in sorted(self.counts)],
            "sum": self.sum,
            "min": self.min or 0,
            "max": self.max,
        }

    @classmethod
    def from_json(cls, json):
        """ValueError: these are no buckets of this histogram."""
        histogram = cls()
        for lowest, count in json["buckets"]:
            if count_of(count) == 0:
                raise ValueError(f"bucket {lowest} is empty")
            if lowest_of(count_of(lowest)) != lowest or lowest in histogram.counts:
                raise ValueError(f"{lowest} begins no bucket")
            histogram.counts[lowest] = count
            histogram.count += count
        if histogram.count:
            histogram.sum = json["sum"]
            if type(histogram.sum) not in (int, float) or not 0 <= histogram.sum <= float_info.max:
                raise ValueError("the sum of the samples is none")
            histogram.min, histogram.max = count_of(json["min"]), count_of(json["max"])
        return histogram
