"""Every operation of Python's interface, with what it returns and raises."""

import copy
import os
import pickle
import threading
import types
import unittest

import pando
from cluster import ClusterTest
from pando import Write


class OperationsTest(ClusterTest):
    def test_plain_operations(self):
        s, t = self.session, self.tree
        self.assertIsNone(s.get(t, b"a"))
        self.assertEqual(s.get(t, b"a", b"none"), b"none")
        s.put(t, b"a", b"1")
        self.assertEqual(s.get(t, b"a"), b"1")
        with self.assertRaises(pando.AlreadyExistsError) as raised:
            s.insert(t, b"a", b"2")
        self.assertEqual(raised.exception.code, "ALREADY_EXISTS")
        s.insert(t, b"b", b"")
        self.assertEqual(s.get(t, b"b"), b"")
        s.update(t, b"b", b"3")
        with self.assertRaises(pando.NotFoundError):
            s.update(t, b"c", b"3")
        s.erase(t, b"b")
        with self.assertRaises(KeyError):
            s.erase(t, b"b")

    def test_bytes_of_all_kinds(self):
        s, t = self.session, self.tree
        s.put(t, bytearray(b"k\0k"), memoryview(b"\0v\0"))
        self.assertEqual(s.get(t, b"k\0k"), b"\0v\0")
        self.assertIsNone(s.get(t, b"k"))
        s.put(t, memoryview(b"x1y2")[::2], b"every other")
        self.assertEqual(s.get(t, b"xy"), b"every other")
        self.assertEqual(s.multi_get(t, [bytearray(b"xy"), b"k\0k"]), [b"every other", b"\0v\0"])

    def test_conditional_writes(self):
        s, t = self.session, self.tree
        with self.assertRaises(pando.NotFoundError):
            s.replace(t, b"a", b"1", b"2")
        s.put(t, b"a", b"1")
        s.replace(t, b"a", b"1", b"2")
        for write in (lambda: s.replace(t, b"a", b"1", b"3"), lambda: s.erase_if(t, b"a", b"1")):
            with self.assertRaises(pando.ConditionFailedError) as raised:
                write()
            self.assertEqual(raised.exception.actual, b"2")
        s.erase_if(t, b"a", b"2")
        self.assertIsNone(s.get(t, b"a"))

    def test_upserts(self):
        s, t = self.session, self.tree
        self.assertEqual(pando.parse_int64(s.upsert(t, b"n", "add", pando.int64(40))), 40)
        self.assertEqual(pando.parse_int64(s.upsert(t, b"n", 1, pando.int64(2))), 42)
        self.assertEqual(pando.parse_int64(s.upsert(t, b"n", "min", pando.int64(-7))), -7)
        self.assertEqual(pando.parse_int64(s.upsert(t, b"n", "max", pando.int64(5))), 5)
        self.assertEqual(s.upsert(t, b"s", "append", b"a"), b"a")
        self.assertEqual(s.upsert(t, b"s", "append", b"b"), b"ab")
        with self.assertRaises(pando.ConditionFailedError) as raised:
            s.upsert(t, b"s", "add", pando.int64(1))
        self.assertEqual(raised.exception.actual, b"ab")

    def test_many(self):
        s, t = self.session, self.tree
        s.multi_put(t, types.MappingProxyType({b"a": b"1", b"b": b"2"}))
        s.multi_put(t, ((key, b"3") for key in (b"c", b"d")))
        self.assertEqual(s.multi_get(t, [b"d", b"x", b"a"]), [b"3", None, b"1"])
        self.assertEqual(s.multi_get(t, (key for key in (b"b",))), [b"2"])
        self.assertEqual(s.multi_get(t, []), [])
        self.assertEqual(s.multi_erase(t, [b"a", b"x"]), [True, False])
        with self.assertRaises(pando.BatchError) as raised:
            s.multi_get(t, [b"b", b"", b"x"])
        results = raised.exception.results
        self.assertEqual(results[0], b"2")
        self.assertIsInstance(results[1], pando.InvalidArgumentError)
        self.assertIsNone(results[2])
        for other in (pickle.loads(pickle.dumps(raised.exception)), copy.copy(raised.exception)):
            self.assertEqual((str(other), other.results[0]), (str(raised.exception), b"2"))
        with self.assertRaises(pando.BatchError) as raised:
            s.multi_put(t, [(b"e", b"5"), (b"f", b"6" * 33)])
        self.assertEqual(len(raised.exception.errors), 1)
        self.assertEqual(s.get(t, b"e"), b"5")

    def test_writes_of_all_kinds(self):
        results = self.session.write_many(self.tree, [
            Write("put", b"a", b"1"), Write("insert", b"a", b"2"), Write("update", b"a", b"3"),
            Write("replace", b"a", b"4", b"1"), Write("upsert", b"n", pando.int64(2), function="add"),
            Write("erase_if", b"a", expected=b"3"), Write("erase", b"a")])
        kinds = [type(result.error) for result in results]
        self.assertEqual(kinds, [type(None), pando.AlreadyExistsError, type(None), pando.ConditionFailedError,
                                 type(None), type(None), pando.NotFoundError])
        self.assertEqual(results[3].error.actual, b"3")
        self.assertEqual(results[4].value, pando.int64(2))

    def test_large_values(self):
        s, most = self.session, 65536
        t = self.new_tree("large", value_bytes_max=most, inline_value_bytes_max=40)
        self.assertEqual((t.value_bytes_max, t.inline_value_bytes_max), (most, 40))
        self.assertEqual(self.tree.inline_value_bytes_max, 32)
        self.assertIn((most, 40), [(tree["value_bytes_max"], tree["inline_value_bytes_max"]) for tree in self.client.trees()])
        with self.assertRaises(pando.InvalidArgumentError):
            self.client.create_tree("none", value_bytes_max=most + 1)
        values = {b"k%d" % n: os.urandom(length) for n, length in enumerate((most, 0, 40, 41, 255, 256, 1000, most - 1))}
        s.put(t, b"k0", values[b"k0"])
        self.assertEqual(s.get(t, b"k0"), values[b"k0"])
        with self.assertRaises(pando.InvalidArgumentError):
            s.put(t, b"k0", b"x" * (most + 1))
        with self.assertRaises(pando.ConditionFailedError) as raised:
            s.replace(t, b"k0", b"1", b"2")
        self.assertEqual(raised.exception.actual, values[b"k0"])
        s.multi_put(t, {key: b"old" * 1000 for key in values})
        results = s.write_many(t, [Write("replace", key, value, b"old" * 1000) for key, value in values.items()])
        self.assertEqual([result.error for result in results], [None] * len(values))
        self.assertEqual(s.multi_get(t, values), list(values.values()))
        self.assertEqual(s.scan(t), list(values.items()))
        with s.cursor(t) as cursor:
            self.assertEqual(dict(cursor), values)
        self.assertEqual(s.upsert(t, b"k6", "append", b"!"), values[b"k6"] + b"!")
        report = s.check(t, quiet_tree=True)
        self.assertEqual((report["problems"], report["cells"], report["cells_unused"]), ([], 6, 0))
        self.assertEqual(s.estimate_size(t)["cells_bytes"], report["cells_bytes"])
        with pando.Executor(self.client) as executor:
            executor.put(t, b"k1", values[b"k0"]).result()
            self.assertEqual(executor.get(t, b"k1").result(), values[b"k0"])

    def test_scans_and_cursors(self):
        s, t = self.session, self.tree
        s.multi_put(t, {key: b"v" + key for key in (b"a", b"b", b"ba", b"bb", b"c")})
        self.assertEqual([key for key, _ in s.scan(t)], [b"a", b"b", b"ba", b"bb", b"c"])
        self.assertEqual(s.scan(t, b"b", b"bb"), [(b"b", b"vb"), (b"ba", b"vba")])
        self.assertEqual([k for k, _ in s.scan(t, b"b", b"bb", start_exclusive=True, to_inclusive=True, reverse=True)],
                         [b"bb", b"ba"])
        self.assertEqual([k for k, _ in s.scan(t, prefix=b"b", limit=2)], [b"b", b"ba"])
        with s.cursor(t, b"b") as cursor:
            self.assertEqual([key for key, _ in cursor], [b"b", b"ba", b"bb", b"c"])
            self.assertIsNone(cursor.next())
            self.assertEqual(cursor.prev(), (b"c", b"vc"))
            self.assertEqual(cursor.seek(b"b0"), (b"ba", b"vba"))
            self.assertEqual(cursor.seek_to_first(), (b"b", b"vb"))
            self.assertEqual(cursor.seek_to_last(), (b"c", b"vc"))
        with self.assertRaises(pando.ClosedError):
            cursor.next()

    def test_whole_trees(self):
        s, t = self.session, self.tree
        s.bulk_load(t, ((f"{n:06}".encode(), b"v") for n in range(2000)))
        self.assertEqual(s.estimate_size(t)["keys"], 2000)
        report = s.check(t, quiet_tree=True)
        self.assertEqual((report["problems"], report["keys"]), ([], 2000))
        with self.assertRaises(pando.FailedPreconditionError):
            s.bulk_load(t, [(b"a", b"b")])

        def rows():
            yield b"a", b"b"
            raise LookupError("no more of it")

        other = self.new_tree("other")
        with self.assertRaises(LookupError):
            s.bulk_load(other, rows())
        with self.assertRaises(pando.InvalidArgumentError):
            s.bulk_load(other, [(b"b", b""), (b"a", b"")])
        self.assertEqual(s.scan(other), [])

    def test_trees_and_cluster(self):
        c = self.client
        self.assertIn(self.tree.name, [tree["name"] for tree in c.trees()])
        with c.open_tree(self.tree.name) as again:
            self.assertEqual((again.key_bytes_max, again.mode), (32, "shared"))
        with self.assertRaises(pando.ClosedError):
            self.session.get(again, b"a")
        with self.assertRaises(pando.FailedPreconditionError):
            c.create_tree(self.tree.name)
        with self.assertRaises(pando.NotFoundError):
            c.open_tree("none")
        c.tree_status(self.tree)
        servers = c.servers()
        self.assertEqual([server["id"] for server in servers], [1, 2])
        self.assertTrue(servers[0]["available"] and servers[0]["counters"])
        reads = c.stats()["reads"]
        self.session.get(self.tree, b"a")
        self.assertGreater(c.stats()["reads"], reads)
        self.assertFalse(c.fenced)
        self.assertGreater(c.compute_server_id, 0)

    def test_owned_trees(self):
        tree = self.new_tree("owned", mode="owned")
        self.session.put(tree, b"a", b"1")
        self.session.flush(tree)
        self.assertEqual(self.client.owner_of(tree, b"a")["compute_server"], self.client.compute_server_id)
        self.assertTrue(self.client.ranges(tree))
        self.assertEqual([m["ended"] for m in self.client.members()
                          if m["compute_server"] == self.client.compute_server_id], [False])

    def test_threads(self):
        def work(number):
            with self.client.session() as session:
                for n in range(200):
                    session.put(self.tree, f"{number}-{n}".encode(), str(n).encode())
                for n in range(200):
                    if session.get(self.tree, f"{number}-{n}".encode()) == str(n).encode():
                        good.append(n)

        good = []
        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(good), 800)
        self.assertEqual(len(self.session.scan(self.tree)), 800)


if __name__ == "__main__":
    unittest.main()
