#!/usr/bin/python3
"""The description of a cluster: what is taken, and what is said about mistakes."""

import os
import sys
import unittest

sys.dont_write_bytecode = True
from pando_cluster import config

HERE = os.path.dirname(os.path.abspath(__file__))
HOST = '[[host]]\nname = "a"\nroles = ["memory", "compute"]\n'


class ConfigTest(unittest.TestCase):
    def refused(self, text, *words, local=False):
        with self.assertRaises(config.ConfigError) as caught:
            config.parse(text, local)
        for word in words:
            self.assertIn(word, str(caught.exception))

    def test_examples_are_right(self):
        laptop = config.load(f"{HERE}/laptop.toml", local=True)
        self.assertEqual(laptop.memory_servers, 2)
        rack = config.load(f"{HERE}/rack.toml")
        self.assertEqual(len(rack.hosts), 16)
        self.assertEqual(rack.memory_servers, 8)
        self.assertEqual(rack.leader.name, "compute01")
        self.assertEqual(rack.cluster.fabric, "verbs")
        config.load(f"{HERE}/rack.toml", local=True)

    def test_defaults_and_hosts(self):
        text = '[defaults]\nmemory = "8G"\nroles = ["memory"]\n[[host]]\nname = "a"\n'
        text += '[[host]]\nname = "b"\nmemory = "2G"\naddress = "a"\nmemory_servers = 3\n'
        parsed = config.parse(text)
        self.assertEqual([host.memory for host in parsed.hosts], ["8G", "2G"])
        self.assertEqual([host.address for host in parsed.hosts], ["a", "a"])
        self.assertEqual(parsed.memory_servers, 4)
        self.assertEqual(parsed.leader.name, "a")
        self.assertEqual(parsed.cluster.registry, "/tmp/pando-cluster-pando/registry")

    def test_ranges_of_hosts(self):
        head = '[cluster]\nfabric = "verbs"\nregistry = "memcached://x:1/p"\n'
        parsed = config.parse(
            head + '[[host]]\nname = "m[08-11]"\naddress = "m[8-11].x"\nroles = ["memory"]\n'
        )
        self.assertEqual([host.name for host in parsed.hosts], ["m08", "m09", "m10", "m11"])
        self.assertEqual(parsed.hosts[1].address, "m9.x")
        self.refused(HOST.replace('"a"', '"a[3-1]"'), "host[0].name", "range")
        self.refused(HOST.replace('"a"', '"a[1-3]"\naddress = "b[1-2]"'), "host[0].address")

    def test_local_leaves_other_machines_out(self):
        text = '[cluster]\nfabric = "verbs"\nregistry = "memcached://x:1/p"\n'
        text += HOST + 'device = "mlx5_0"\nport = 2\ngid_index = 3\nmtu = 1024\n'
        text += 'cores = "0-63"\nnuma_node = 3\n'
        parsed = config.parse(text, local=True)
        host = parsed.hosts[0]
        self.assertEqual((parsed.cluster.fabric, host.device, host.cores), ("shm", "", ""))
        self.assertEqual((host.port, host.gid_index, host.mtu), (0, -1, 0))
        self.assertEqual(host.numa_node, -1)
        self.assertEqual(parsed.cluster.registry, f"{parsed.cluster.work}/registry")

    def test_operations_need_no_duration(self):
        self.assertEqual(config.parse(HOST + "[bench]\noperations = 5\n").bench.duration, 0)
        both = config.parse(HOST + "[bench]\noperations = 5\nduration = 3\n").bench
        self.assertEqual((both.operations, both.duration), (5, 3.0))
        self.refused(HOST + "[bench]\nduration = 0\n", "bench.duration", "when to stop")

    def test_unknown_keys_are_named_by_path(self):
        self.refused(HOST + 'memroy = "1G"\n', "host[0].memroy", "no such key", "memory")
        self.refused(HOST + "[bench]\nrecord = 1\n", "bench.record", "no such key")
        self.refused("[clutser]\n" + HOST, "clutser", "no such table")
        self.refused('[defaults]\nname = "x"\n' + HOST, "defaults.name", "no such key")

    def test_wrong_types_and_values(self):
        self.refused(HOST + "memory = 5\n", "host[0].memory", "a string", "5")
        self.refused(HOST + 'memory = "5X"\n', "host[0].memory", "a size like")
        self.refused(HOST + "locks = true\n", "host[0].locks", "whole number")
        self.refused(HOST + "memory_servers = 0\n", "host[0].memory_servers", "1 to")
        self.refused(HOST + 'memory_flags = ["x"]\n', "host[0].memory_flags", "begin with --")
        self.refused(HOST + 'memory_flags = ["--x", 1]\n', "host[0].memory_flags[1]", "a string")
        self.refused(HOST + 'cores = "all"\n', "host[0].cores")
        self.refused(HOST + "port = 0\n", "host[0].port", "1 to 255")
        self.refused(HOST + "port = 256\n", "host[0].port", "1 to 255")
        self.refused(HOST + 'port = "1"\n', "host[0].port", "whole number")
        self.refused(HOST + "gid_index = -2\n", "host[0].gid_index", "-1 to 255")
        self.refused(HOST + "mtu = 1500\n", "host[0].mtu", "one of 0, 256, 512, 1024")
        self.refused("[defaults]\nmtu = 1\n" + HOST, "defaults.mtu")
        self.refused(HOST + '[bench]\nduration = "1"\n', "bench.duration", "a number")
        self.refused(HOST + '[bench]\nload = "put"\n', "bench.load", "bulk, none")
        self.refused(HOST + '[bench]\nmode = "hot"\n', "bench.mode", "shared, owned")
        self.refused(HOST + '[bench]\nroute = "owner"\n', "bench.route", 'mode = "owned"')
        self.refused('[cluster]\nwork = "tmp"\n' + HOST, "cluster.work", "absolute")
        self.refused('host = "a"\n', "host", "[[host]]")
        self.refused("host = [1]\n", "host[0]", "table")
        self.refused("cluster = 1\n" + HOST, "cluster", "table")
        self.refused("x = [", "no TOML")

    def test_values_may_be_of_any_length(self):
        bench = HOST + "[bench]\n"
        self.refused(f"{bench}records = {'9' * 5000}\n", "too many digits")
        self.refused(f"{bench}records = 0x{'f' * 5000}\n", "bench.records: is 1 to", "too long")
        self.refused(f"{bench}tree = 0x{'f' * 5000}\n", "bench.tree: is a string", "too long")
        self.refused(f"{bench}duration = {'9' * 400}\n", "bench.duration: is too large a number")
        self.refused(f"{bench}threads{'.x' * 5000} = 1\n", "bench.threads: is a whole number")
        self.refused(f"x = {'[' * 5000}{']' * 5000}\n", "in one another")
        for name in (f"m[{'9' * 5000}-1]", f"m[1-{'9' * 5000}]"):
            self.refused(HOST.replace('"a"', f'"{name}"'), "host[0].name: is a range of 1 to 1024")
        with self.assertRaises(config.ConfigError) as caught:
            config.parse(f'{HOST}memory = "{"x" * 100_000}"\n')
        self.assertLess(len(str(caught.exception)), 300)

    def test_command_lines_have_no_nul(self):
        self.refused(HOST + 'memory_flags = ["--a\\u0000"]\n', "host[0].memory_flags[0]", "NUL")
        self.refused('[cluster]\nssh_options = ["\\u0000"]\n' + HOST, "ssh_options[0]", "NUL")

    def test_names_are_no_options_of_ssh(self):
        self.refused(HOST.replace('"a"', '"-oProxyCommand=x"'), "host[0].name")
        self.refused(HOST + 'address = "-oProxyCommand=x"\n', "host[0].address")
        self.refused(HOST + 'user = "a b"\n', "host[0].user")

    def test_hosts_make_a_cluster(self):
        self.refused("", "which hosts")
        self.refused(HOST + HOST, "host[1].name", "'a' is there twice")
        self.refused('[[host]]\nname = "a"\n', "host[0].roles", "no role")
        self.refused('[[host]]\nroles = ["memory"]\n', "host[0].name")
        self.refused('[[host]]\nname = "a"\nroles = ["disk"]\n', "host[0].roles", "disk")
        self.refused('[[host]]\nname = "a"\nroles = ["compute"]\n', "no memory server")
        self.refused(
            '[[host]]\nname = "a"\nroles = ["memory"]\ncompute_servers = 2\n',
            "host[0].compute_servers",
            "no role compute",
        )

    def test_fabric_and_registry_span_the_hosts(self):
        two = HOST + HOST.replace('"a"', '"b"')
        self.refused(two, "cluster.fabric", "shm", "--local")
        self.assertEqual(config.parse(two, local=True).compute_servers, 2)
        self.refused('[cluster]\nfabric = "verbs"\n' + two, "cluster.registry", "memcached://")


if __name__ == "__main__":
    unittest.main()
