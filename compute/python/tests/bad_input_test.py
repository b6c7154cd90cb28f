"""Whatever is passed by mistake raises something that says so; nothing crashes."""

import os
import subprocess
import sys
import threading
import time
import unittest

import pando
from cluster import ClusterTest


class BadInputTest(ClusterTest):
    def test_keys_and_values(self):
        s, t = self.session, self.tree
        for key in ("text", 7, None, [b"a"]):
            with self.assertRaises(TypeError):
                s.get(t, key)
            with self.assertRaises(TypeError):
                s.multi_get(t, [b"a", key])
            with self.assertRaises(TypeError):
                s.put(t, b"a", key)
        for key in (b"", b"k" * 33):
            with self.assertRaises(pando.InvalidArgumentError):
                s.put(t, key, b"v")
        with self.assertRaises(ValueError):
            s.put(t, b"k", b"v" * 33)
        with self.assertRaises(pando.InvalidArgumentError):
            s.multi_get(t, [b"k" * (2 << 20)])
        with self.assertRaises(TypeError):
            s.multi_get(t, 7)
        with self.assertRaises((TypeError, ValueError)):
            s.multi_put(t, [b"a"])
        with self.assertRaises(ValueError):
            s.multi_put(t, [(b"a", b"b", b"c")])
        self.assertEqual(s.scan(t), [])

    def test_other_arguments(self):
        s, t, c = self.session, self.tree, self.client
        with self.assertRaises(TypeError):
            s.get(None, b"a")
        with self.assertRaises(TypeError):
            s.get(s, b"a")
        with self.assertRaises(TypeError):
            s.get(t, b"a", timeout="long")
        with self.assertRaises(ValueError):
            s.get(t, b"a", timeout=float("nan"))
        with self.assertRaises(pando.InvalidArgumentError):
            s.get(t, b"a", timeout=-1)
        self.assertIsNone(s.get(t, b"a", timeout=float("inf")))
        with self.assertRaises(ValueError):
            s.upsert(t, b"a", "multiply", b"2")
        with self.assertRaises((TypeError, OverflowError)):
            s.upsert(t, b"a", -1, b"2")
        with self.assertRaises(TypeError):
            s.upsert(t, b"a", 1.5, b"2")
        with self.assertRaises(pando.InvalidArgumentError):
            s.upsert(t, b"a", 4000, b"2")
        with self.assertRaises(ValueError):
            s.write_many(t, [pando.Write("multiply", b"a")])
        with self.assertRaises(pando.InvalidArgumentError):
            s.scan(t, read_ahead=1000)
        with self.assertRaises((OverflowError, ValueError)):
            s.scan(t, limit=-1)
        for name in ("zero\0byte", ".own", ""):
            with self.assertRaises(ValueError):
                c.create_tree(name)
        with self.assertRaises(ValueError):
            c.create_tree("x", mode="borrowed")
        with self.assertRaises(pando.InvalidArgumentError):
            c.create_tree("x", key_bytes_max=256)
        with self.assertRaises(TypeError):
            c.create_tree("x", key_bytes_max=-1)

    def test_connecting(self):
        registry = os.environ["PANDO_REGISTRY"]
        with self.assertRaises(TypeError):
            pando.connect(registry, colour="red")
        with self.assertRaises(TypeError):
            pando.connect(registry, hot_bytes="many")
        with self.assertRaises(TypeError):
            pando.connect(registry, fabric=7)
        with self.assertRaises(ValueError):
            pando.connect(registry + "\0")
        with self.assertRaises(pando.InvalidArgumentError):
            pando.connect(registry, fabric="carrier pigeon")
        with self.assertRaises(pando.Error):
            pando.connect("/nonexistent/registry", connect_timeout=0.01)

    def test_after_closing(self):
        cursor = self.session.cursor(self.tree)
        executor = pando.Executor(self.client)
        self.client.close()
        self.client.close()
        for call in (lambda: self.session.get(self.tree, b"a"), lambda: cursor.next(), lambda: next(cursor),
                     lambda: self.client.session(), lambda: self.client.open_tree("x"), self.client.trees,
                     lambda: self.session.multi_get(self.tree, [b"a"]), lambda: executor.get(self.tree, b"a")):
            with self.assertRaises(pando.ClosedError):
                call()
        for closed in (cursor, self.session, self.tree, executor):
            closed.close()

    def test_another_clients_tree(self):
        with self.connect() as other, other.session() as session:
            with self.assertRaises(pando.InvalidArgumentError):
                session.get(self.tree, b"a")

    def test_cursor_of_several_threads(self):
        """They get rows or are refused; a row is never another's, nor of a cursor that is closed."""
        rows = {b"%05d" % n: b"%05d" % n + b"v" * 8 for n in range(500)}
        self.session.multi_put(self.tree, rows)
        for _ in range(10):
            cursor = self.session.cursor(self.tree)
            wrong = []

            def work():
                while True:
                    try:
                        row = cursor.next() or cursor.seek_to_first()
                    except pando.ClosedError:
                        return
                    except pando.FailedPreconditionError:
                        continue
                    if rows.get(row[0]) != row[1]:
                        wrong.append(row)

            threads = [threading.Thread(target=work) for _ in range(3)]
            for thread in threads:
                thread.start()
            time.sleep(0.02)
            cursor.close()
            for thread in threads:
                thread.join()
            self.assertEqual(wrong, [])

    def test_one_thread_at_a_time(self):
        """Threads that share a session by mistake are told so, and do no harm."""
        self.session.multi_put(self.tree, {b"%05d" % n: b"v" for n in range(2000)})
        keys = [b"%05d" % n for n in range(2000)]
        refused, good = [], []

        def work():
            for _ in range(20):
                try:
                    good.append(self.session.multi_get(self.tree, keys) == [b"v"] * len(keys))
                except pando.FailedPreconditionError:
                    refused.append(1)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(good) + len(refused), 80)
        self.assertTrue(good and all(good))

    def test_a_list_that_changes_meanwhile(self):
        keys = [b"%05d" % n for n in range(5000)]
        stop = threading.Event()

        def change():
            while not stop.is_set():
                keys[:] = [b"%05d" % n for n in range(5000)]

        thread = threading.Thread(target=change)
        thread.start()
        for _ in range(20):
            self.assertEqual(len(self.session.multi_get(self.tree, keys)), 5000)
        stop.set()
        thread.join()

    def test_a_program_that_closes_nothing_ends_well(self):
        program = ("import asyncio, os, pando, pando.aio\n"
                   "client = pando.connect(os.environ['PANDO_REGISTRY'])\n"
                   f"tree = client.open_tree({self.tree.name!r})\n"
                   "session = client.session()\n"
                   "cursor = session.cursor(tree)\n"
                   "executor = pando.Executor(client)\n"
                   "futures = [executor.put(tree, b'%05d' % n, b'v') for n in range(500)]\n"
                   "async def main():\n"
                   "    global other\n"
                   "    other = pando.aio.Executor(client)\n"
                   "    await other.get(tree, b'a')\n"
                   "asyncio.run(main())\n")
        ended = subprocess.run([sys.executable, "-X", "faulthandler", "-c", program], capture_output=True, text=True,
                               timeout=120)
        self.assertEqual((ended.returncode, ended.stdout, ended.stderr), (0, "", ""))
        self.assertEqual(len(self.session.scan(self.tree)), 500)

    def test_a_program_whose_daemon_threads_are_in_calls_ends_well(self):
        program = ("import os, pando, threading, time\n"
                   "client = pando.connect(os.environ['PANDO_REGISTRY'])\n"
                   f"tree = client.open_tree({self.tree.name!r})\n"
                   "def work():\n"
                   "    session = client.session()\n"
                   "    while True:\n"
                   "        try:\n"
                   "            session.get(tree, b'a')\n"
                   "        except pando.ClosedError:\n"
                   "            return\n"
                   "for _ in range(3):\n"
                   "    threading.Thread(target=work, daemon=True).start()\n"
                   "time.sleep(0.1)\n")
        for _ in range(8):
            ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
            self.assertEqual((ended.returncode, ended.stdout, ended.stderr), (0, "", ""))

    def test_a_child_of_fork(self):
        """It cannot use what its parent has open, closes none of it, ends as other processes, and may connect again."""
        program = ("import os, pando\n"
                   "client = pando.connect(os.environ['PANDO_REGISTRY'])\n"
                   f"tree = client.open_tree({self.tree.name!r})\n"
                   "session, executor = client.session(), pando.Executor(client)\n"
                   "executor.put(tree, b'a', b'1').result()\n"
                   "child = os.fork()\n"
                   "if child == 0:\n"
                   "    try:\n"
                   "        session.get(tree, b'a')\n"
                   "    except pando.FailedPreconditionError:\n"
                   "        with pando.connect(os.environ['PANDO_REGISTRY']) as own:\n"
                   "            own.session().put(own.open_tree(tree.name), b'b', b'2')\n"
                   "else:\n"
                   "    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), session.get(tree, b'b'),\n"
                   "          executor.get(tree, b'a').result())\n")
        ended = subprocess.run([sys.executable, "-X", "faulthandler", "-c", program], capture_output=True, text=True,
                               timeout=120)
        self.assertEqual((ended.returncode, ended.stdout, ended.stderr), (0, "0 b'2' b'1'\n", ""))


if __name__ == "__main__":
    unittest.main()
