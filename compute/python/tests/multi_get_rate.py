"""How many keys a second a multi_get of 100,000 keys reads, compared with MultiGet in C++: both in turn, on the same tree
of the same servers. Prints both rates and their ratio; exits with 1 if that is below 0.3. Run by python_test."""

import os
import subprocess
import sys
import time

import pando

KEYS, ROUNDS, TURNS, RATIO_MIN = 100_000, 5, 3, 0.3


def main():
    registry = os.environ["PANDO_REGISTRY"]
    with pando.connect(registry) as client:
        tree = client.create_tree("multi_get_rate")
        session = client.session()
        keys = [b"%08d" % n for n in range(KEYS)]
        session.bulk_load(tree, ((key, key) for key in keys))
        session.multi_get(tree, keys)
        in_python, in_cpp = 0.0, 0.0
        for _ in range(TURNS):
            for _ in range(ROUNDS):
                begin = time.perf_counter()
                values = session.multi_get(tree, keys)
                in_python = max(in_python, KEYS / (time.perf_counter() - begin))
                assert values == keys
            program = os.path.join(os.environ["PANDO_PROGRAMS"], "multi_get_rate")
            command = [program, registry, "multi_get_rate", str(KEYS), str(ROUNDS)]
            in_cpp = max(in_cpp, float(subprocess.run(command, check=True, capture_output=True).stdout))
    ratio = in_python / in_cpp
    print(f"multi_get of {KEYS} keys: Python {in_python:,.0f}/s, C++ {in_cpp:,.0f}/s, ratio {ratio:.2f}")
    return 0 if ratio >= RATIO_MIN else 1


if __name__ == "__main__":
    sys.exit(main())
