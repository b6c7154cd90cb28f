"""What tests have in common: a client and a tree on the servers of python_test."""

import os
import unittest

import pando


class ClusterTest(unittest.TestCase):
    def setUp(self):
        self.handles_before = pando.open_handles()
        self.client = self.connect()
        self.tree = self.new_tree(self.id().rsplit(".", 1)[-1])
        self.session = self.client.session()

    def tearDown(self):
        self.client.close()
        self.assertEqual(pando.open_handles(), self.handles_before)

    @staticmethod
    def connect(**options):
        return pando.connect(os.environ["PANDO_REGISTRY"], memory_servers_min=int(os.environ.get("PANDO_TEST_SERVERS", "2")), **options)

    def new_tree(self, name, **options):
        """Dropped when the test ends."""
        tree = self.client.create_tree(name, **{"key_bytes_max": 32, "value_bytes_max": 32, **options})
        self.addCleanup(self.drop, name)
        return tree

    def drop(self, name):
        with self.connect() as client:
            client.drop_tree(name)
