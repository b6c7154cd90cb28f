"""Futures and asyncio over the executor."""

import asyncio
import gc
import logging
import threading
import time
import unittest

import pando
import pando.aio
from cluster import ClusterTest


class ExecutorTest(ClusterTest):
    def setUp(self):
        super().setUp()
        self.executor = pando.Executor(self.client)
        self.addCleanup(self.executor.close)

    def test_every_kind_of_operation(self):
        e, t = self.executor, self.tree
        self.assertIsNone(e.get(t, b"a").result())
        e.put(t, b"a", b"1").result()
        self.assertEqual(e.get(t, b"a").result(), b"1")
        with self.assertRaises(pando.AlreadyExistsError):
            e.insert(t, b"a", b"2").result()
        with self.assertRaises(pando.NotFoundError):
            e.update(t, b"b", b"2").result()
        with self.assertRaises(pando.ConditionFailedError) as raised:
            e.replace(t, b"a", b"2", b"3").result()
        self.assertEqual(raised.exception.actual, b"1")
        e.replace(t, b"a", b"1", b"3").result()
        self.assertEqual(e.upsert(t, b"a", "append", b"+").result(), b"3+")
        e.insert(t, b"b", b"2").result()
        self.assertEqual(e.scan(t).result(), [(b"a", b"3+"), (b"b", b"2")])
        self.assertEqual(e.scan(t, limit=1, reverse=True).result(), [(b"b", b"2")])
        with self.assertRaises(pando.ConditionFailedError):
            e.erase_if(t, b"b", b"3").result()
        e.erase(t, b"b").result()

    def test_what_is_refused_raises_at_once(self):
        with self.assertRaises(TypeError):
            self.executor.put(self.tree, "text", b"1")
        with self.assertRaises(pando.InvalidArgumentError):
            self.executor.get(self.tree, b"a", timeout=-1)
        with pando.Executor(self.client, queue_max=0) as full:
            with self.assertRaises(pando.ResourceExhaustedError):
                full.get(self.tree, b"a")
        with self.assertRaises(pando.ClosedError):
            full.get(self.tree, b"a")
        with self.assertRaises(pando.InvalidArgumentError):
            pando.Executor(self.client, workers=0)

    def test_callbacks_that_raise(self):
        def raise_it(error):
            def callback(future):
                raise error
            return callback

        with self.assertLogs("concurrent.futures", logging.ERROR):
            future = self.executor.put(self.tree, b"a", b"1")
            future.add_done_callback(raise_it(LookupError("from a callback")))
            future.result()
            self.executor.get(self.tree, b"a").result()  # answers come in order of one thread
        called = threading.Event()

        def sink(error, value, rows):
            called.set()
            raise SystemExit("from where the answer goes")

        with self.assertLogs("pando", logging.ERROR):
            self.executor._answers.submit(sink, 0, self.tree, b"a")
            called.wait()
            self.executor.get(self.tree, b"a").result()
        self.assertEqual(self.executor.get(self.tree, b"a").result(), b"1", "the executor goes on")

    def test_many_threads(self):
        def work(number):
            futures = [self.executor.put(self.tree, f"{number}-{n}".encode(), b"v") for n in range(300)]
            for future in futures:
                future.result()

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(self.session.scan(self.tree)), 1200)

    def test_closing_waits_for_answers(self):
        futures = [self.executor.put(self.tree, b"%05d" % n, b"v") for n in range(1000)]
        self.executor.close()
        self.assertTrue(all(future.done() and future.exception() is None for future in futures))

    def test_closing_while_others_close(self):
        """Whoever closes it, or its client, at the same time: all is answered, and close() comes after that."""
        self.session.bulk_load(self.tree, [(b"%032d" % n, b"v" * 32) for n in range(20_000)])
        for also in ("client", "executor"):
            with self.subTest(also), self.connect() as client:
                tree = client.open_tree(self.tree.name)
                executor = pando.Executor(client, workers=1)
                futures = [executor.scan(tree) for _ in range(60)]
                other = threading.Thread(target=client.close if also == "client" else executor.close)
                other.start()
                time.sleep(0.01)
                executor.close()
                self.assertTrue(all(future.done() for future in futures))
                other.join()

    def test_one_that_is_forgotten_ends(self):
        before = threading.active_count()
        future = pando.Executor(self.client).put(self.tree, b"a", b"1")
        gc.collect()
        self.assertIsNone(future.result())
        until = time.monotonic() + 10
        while threading.active_count() > before and time.monotonic() < until:
            time.sleep(0.001)
        self.assertEqual(threading.active_count(), before)

    def test_who_collects_garbage_waits_for_no_answer(self):
        """A callback may wait for a lock that the thread holds in which the executor is collected."""
        # Where an answer is there before its callback, this thread calls that.
        lock, called = threading.RLock(), []

        def callback(future):
            called.append(lock.acquire(timeout=5))
            if called[-1]:
                lock.release()

        executor = pando.Executor(self.client)
        executor.itself = executor  # it goes with a cycle
        with lock:
            futures = [executor.put(self.tree, b"%05d" % n, b"v") for n in range(10)]
            for future in futures:
                future.add_done_callback(callback)
            del executor
            gc.collect()
        for future in futures:
            future.result()
        until = time.monotonic() + 10
        while len(called) < len(futures) and time.monotonic() < until:
            time.sleep(0.001)
        self.assertEqual(called, [True] * len(futures))


class AsyncTest(ClusterTest):
    def test_every_kind_of_operation(self):
        async def main():
            t = self.tree
            async with pando.aio.Executor(self.client) as e:
                self.assertIsNone(await e.get(t, b"a"))
                await e.put(t, b"a", b"1")
                self.assertEqual(await e.get(t, b"a"), b"1")
                with self.assertRaises(pando.AlreadyExistsError):
                    await e.insert(t, b"a", b"2")
                await e.replace(t, b"a", b"1", b"2")
                await e.update(t, b"a", b"3")
                self.assertEqual(await e.upsert(t, b"a", "append", b"+"), b"3+")
                self.assertEqual(await e.scan(t), [(b"a", b"3+")])
                with self.assertRaises(pando.ConditionFailedError):
                    await e.erase_if(t, b"a", b"3")
                await e.erase(t, b"a")
                with self.assertRaises(TypeError):
                    await e.get(t, "text")
            with self.assertRaises(pando.ClosedError):
                await e.get(t, b"a")

        asyncio.run(main())

    def test_many_at_once(self):
        async def one(executor, n):
            key = b"%05d" % n
            await executor.put(self.tree, key, b"v%d" % n)
            return await executor.get(self.tree, key)

        async def main():
            async with pando.aio.Executor(self.client) as executor:
                return await asyncio.gather(*(one(executor, n) for n in range(3000)))

        self.assertEqual(asyncio.run(main()), [b"v%d" % n for n in range(3000)])

    def test_tasks_that_are_cancelled(self):
        async def main():
            async with pando.aio.Executor(self.client) as executor:
                tasks = [asyncio.ensure_future(executor.put(self.tree, b"%05d" % n, b"v")) for n in range(500)]
                await asyncio.sleep(0)
                for task in tasks[::2]:
                    task.cancel()
                outcomes = await asyncio.gather(*tasks, return_exceptions=True)
                self.assertTrue(all(outcome is None for outcome in outcomes[1::2]))
                # The executor goes on.
                self.assertEqual(await executor.get(self.tree, b"00001"), b"v")

        asyncio.run(main())

    def test_a_loop_that_ends_before_its_answers(self):
        executor = pando.aio.Executor(self.client)

        async def main():
            for n in range(300):
                asyncio.ensure_future(executor.put(self.tree, b"%05d" % n, b"v"))
            await asyncio.sleep(0)

        asyncio.run(main())

        async def again():
            await executor.put(self.tree, b"last", b"v")
            await executor.aclose()

        asyncio.run(again())
        self.assertEqual(len(self.session.scan(self.tree)), 301)

    def test_loops_of_many_threads(self):
        executor = pando.aio.Executor(self.client)
        good = []

        def work(number):
            async def main():
                for n in range(100):
                    await executor.put(self.tree, f"{number}-{n}".encode(), b"v")
                good.append(number)

            asyncio.run(main())

        threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        asyncio.run(executor.aclose())
        self.assertEqual(sorted(good), [0, 1, 2])


if __name__ == "__main__":
    unittest.main()
