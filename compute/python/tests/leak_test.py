"""Nothing stays behind: handles of Pando, objects of Python, memory of the process."""

import asyncio
import gc
import resource
import sys
import time
import unittest

import pando
import pando.aio
from cluster import ClusterTest


def resident_kib():
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize() // 1024


class LeakTest(ClusterTest):
    def check(self, work, rounds, grown_kib_max=1024):
        """`work()` again and again: after some rounds to warm up, nothing grows any more."""
        for _ in range(rounds):
            work()
        gc.collect()
        handles, objects, memory = pando.open_handles(), len(gc.get_objects()), resident_kib()
        for _ in range(4 * rounds):
            work()
        gc.collect()
        self.assertEqual(pando.open_handles(), handles)
        self.assertLessEqual(len(gc.get_objects()) - objects, 50)
        self.assertLessEqual(resident_kib() - memory, grown_kib_max)

    def test_operations(self):
        s, t = self.session, self.tree
        keys = [b"%05d" % n for n in range(1000)]

        def work():
            s.multi_put(t, {key: b"v" * 32 for key in keys})
            s.multi_get(t, keys + [b"none"])
            s.multi_get(t, [bytearray(key) for key in keys])
            s.scan(t)
            with s.cursor(t) as cursor:
                list(cursor)
            s.cursor(t).next()
            s.write_many(t, [pando.Write("insert", key, b"v") for key in keys])
            for key in keys[:100]:
                s.get(t, key)
                s.get(t, bytearray(key), b"default")
                s.put(t, key, b"v")
                s.upsert(t, key, "append", b"+")

        self.check(work, 30)

    def test_errors(self):
        s, t = self.session, self.tree
        s.put(t, b"a", b"1")
        bad = [b"k" * 33] * 100

        def work():
            for _ in range(100):
                for call in (lambda: s.put(t, b"", b"v"), lambda: s.replace(t, b"a", b"2", b"3"),
                             lambda: s.get(t, "text"), lambda: s.multi_get(t, bad), lambda: s.multi_put(t, [(b"a",)]),
                             lambda: s.scan(t, b"a", "b"), lambda: s.bulk_load(t, [(b"a", 7)]),
                             lambda: self.client.open_tree("none")):
                    try:
                        call()
                    except (pando.Error, TypeError, ValueError):
                        pass
                    else:
                        self.fail("nothing was raised")

        self.check(work, 3)

    def test_handles(self):
        def work():
            session = self.client.session()
            tree = self.client.open_tree(self.tree.name)
            session.get(tree, b"a")
            cursor = session.cursor(tree)
            cursor.next()
            self.client.trees(), self.client.servers(), self.client.stats()

        self.check(work, 50)

    def test_clients(self):
        def work():
            client = self.connect()
            session = client.session()
            session.get(client.open_tree(self.tree.name), b"a")
            if len(closed) % 2 == 0:
                client.close()
            closed.append(1)

        closed = []
        self.check(work, 8, grown_kib_max=4096)

    def test_executors(self):
        def work():
            with pando.Executor(self.client) as executor:
                futures = [executor.put(self.tree, b"%05d" % n, b"v") for n in range(200)]
                for future in futures:
                    future.result()
                executor.scan(self.tree).result()
                try:
                    executor.put(self.tree, b"", b"v").result()
                except pando.InvalidArgumentError:
                    pass

            async def main():
                async with pando.aio.Executor(self.client) as executor:
                    await asyncio.gather(*(executor.get(self.tree, b"%05d" % n) for n in range(200)))

            asyncio.run(main())

        self.check(work, 10, grown_kib_max=4096)

    def test_dropped_trees(self):
        """Their memory comes back while an executor that has used them is open."""
        def free_bytes():
            return sum(server["free_bytes"] for server in self.client.servers())

        before = free_bytes()
        with pando.Executor(self.client) as executor:
            for n in range(4):
                tree = self.client.create_tree(f"dropped {n}")
                self.session.bulk_load(tree, [(b"%05d" % n, b"v" * 8) for n in range(2000)])
                self.assertEqual(executor.get(tree, b"00007").result(), b"v" * 8)
                executor.put(tree, b"00008", b"w").result()
                tree.close()
                self.client.drop_tree(f"dropped {n}")
            until = time.monotonic() + 10
            while free_bytes() < before and time.monotonic() < until:
                time.sleep(0.01)
            self.assertEqual(free_bytes(), before)

    def test_references(self):
        """What is passed in has as many references afterwards as before."""
        key, value = b"a key of its own", b"a value of its own"
        before = sys.getrefcount(key), sys.getrefcount(value)
        for _ in range(100):
            self.session.put(self.tree, key, value)
            self.session.multi_put(self.tree, [(key, value)])
            self.session.multi_get(self.tree, [key, key])
            self.session.replace(self.tree, key, value, value)
            self.session.scan(self.tree, key, key)
        self.assertEqual((sys.getrefcount(key), sys.getrefcount(value)), before)


if __name__ == "__main__":
    unittest.main()
