#!/usr/bin/python3
"""pando-cluster over ssh, with an ssh of its own on the PATH: the commands, and hosts that fail."""

import os
import re
import shlex
import subprocess
import sys
import unittest
from unittest import mock

sys.dont_write_bytecode = True
import testing
from pando_cluster import config, hosts

RACK = """
[[host]]
name = "m[1-2]"
address = "m[1-2].rack"
user = "pando"
roles = ["memory"]
memory = "64G"
device = "mlx5_0"
port = 2
gid_index = 0
mtu = 1024
cores = "0-1"
numa_node = 0
memory_servers = 2
[[host]]
name = "c[1-2]"
roles = ["compute"]
compute_servers = 3
"""
RACK_CLUSTER = """
fabric = "verbs"
registry = "memcached://c1:11211/r"
secret_file = "/etc/pando/secret"
ssh_options = ["-o", "Port=2222"]
"""
# Two hosts of the file on this machine: shm connects them.
HERE = """
[[host]]
name = "a"
address = "localhost"
roles = ["memory", "compute"]
memory = "64M"
[[host]]
name = "b"
address = "localhost"
roles = ["memory", "compute"]
memory = "64M"
"""


class SshTest(testing.ClusterTest):
    def setUp(self):
        super().setUp()
        self.use_fake_ssh()

    def plan(self):
        """Host and words of each command."""
        lines = self.expect(0, "plan").splitlines()
        return [(line.split(": ")[0], shlex.split(line.split(": ")[1])) for line in lines]

    def test_the_plan_of_a_rack(self):
        self.write_config(RACK, "threads = 4", RACK_CLUSTER)
        plan = self.plan()
        self.assertEqual([host for host, _ in plan], ["m1", "m1", "m2", "m2", "c1", "c1", "c2"])
        memory = plan[2][1]
        self.assertEqual(memory[:3], ["taskset", "-c", "0-1"])
        self.assertTrue(memory[3].endswith("/pando-memory"))
        for flag in (
            "--server_id=3",
            "--memory=64G",
            "--registry=memcached://c1:11211/r",
            "--fabric=verbs",
            "--device=mlx5_0",
            "--port=2",
            "--gid_index=0",
            "--mtu=1024",
            "--secret_file=/etc/pando/secret",
            "--numa_node=0",
        ):
            self.assertIn(flag, memory)
        load, first, second = (words for _, words in plan[4:])
        self.assertIn("--load_only", load)
        self.assertIn("--drop", load)
        for words, number in ((first, 0), (second, 3)):
            for flag in (
                f"--first_compute_server={number}",
                "--all_compute_servers=6",
                "--compute_servers=3",
                "--memory_servers=4",
                "--load=none",
                "--threads=4",
                "--fabric=verbs",
                "--secret_file=/etc/pando/secret",
            ):
                self.assertIn(flag, words)
            found = [w for w in words if w.startswith(("--device", "--port", "--gid_index", "--mtu"))]
            self.assertEqual(found, [], "not given for that host")
        start = [word for words in (first, second) for word in words if "--start_at" in word]
        self.assertEqual(len(set(start)), 1, "all start at one moment")
        self.assertEqual([call for call in self.ssh_calls() if "-O exit" not in call], [])

    def test_an_unreachable_host_is_named_and_nothing_is_started(self):
        self.write_config(RACK, cluster=RACK_CLUSTER)
        self.cut_off("pando@m2.rack")
        out = self.expect(1, "up")
        self.assertIn("m2: cannot be reached: ssh: connect to host pando@m2.rack", out)
        self.assertIn("'ssh pando@m2.rack true'", out)
        self.assertNotIn("m1: cannot", out)
        calls = self.ssh_calls()
        self.assertEqual([call for call in calls if " start " in call], [])
        greeting = next(call for call in calls if " hello " in call and "m1.rack" in call)
        for option in ("BatchMode=yes", "ControlMaster=auto", "ControlPath=", "Port=2222"):
            self.assertIn(option, greeting)
        self.assertTrue(any("-O exit" in call for call in calls), "connections are closed")
        out = self.expect(1, "status")
        self.assertRegex(out, r"m1 +memory-1 +stopped")
        self.assertRegex(out, r"m2 +memory-3 +unknown")

    def test_any_folder_for_temporary_files_will_do(self):
        self.write_config(HERE)
        for name in ("x" * 30, "x" * 80, "a b", "100%d"):
            self.environment["TMPDIR"] = f"{self.folder}/{name}"
            os.makedirs(self.environment["TMPDIR"])
            self.expect(3, "status")
            self.assertEqual(os.listdir(self.environment["TMPDIR"]), [])
        paths = re.findall("ControlPath=(.*)/%C", "\n".join(self.ssh_calls()))
        self.assertEqual([path for path in paths if os.path.exists(path)], [], "nothing is left")

    def test_a_missing_program_is_said_for_its_host(self):
        self.write_config(HERE)
        with open(self.config, encoding="utf-8") as file:
            text = file.read().replace(os.path.realpath(testing.PROGRAMS), self.folder)
        with open(self.config, "w", encoding="utf-8") as file:
            file.write(text)
        out = self.expect(1, "up")
        self.assertIn(f"a: there is no program {self.folder}/pando-memory", out)
        self.assertIn("b: there is no program", out)

    def test_from_up_to_down_over_ssh(self):
        self.write_config(HERE, "operations = 4000\nworkload = 'a'\nstart_delay_s = 8")
        self.expect(0, "up")
        self.expect(0, "status")
        out = self.expect(0, "bench", f"--output={self.folder}/out")
        self.assertRegex(out, r"run +4000 operations")
        self.write_start_file("printf Welcome")
        again = self.expect(0, "collect", f"--output={self.folder}/again")
        (run_name,) = os.listdir(f"{self.folder}/again")
        self.assertIn(f"run {run_name}", out + again)
        for name in ("a.histograms.json", "b.histograms.json", "result.json"):
            with open(f"{self.folder}/out/{run_name}/{name}", encoding="utf-8") as file:
                text = file.read()
            with open(f"{self.folder}/again/{run_name}/{name}", encoding="utf-8") as file:
                self.assertEqual(file.read(), text)
        missing = "00000000-000000-000"  # a run that has no results
        os.makedirs(f"{self.folder}/w/a/results/{missing}")
        out = self.expect(1, "collect", f"--run={missing}", f"--output={self.folder}/out")
        self.assertRegex(out, f"a: .*/a/results/{missing}/histograms.json cannot be fetched: .*No such")
        self.cut_off("localhost")
        self.assertIn("a: cannot be reached", self.expect(1, "down"))
        self.assertEqual(len(self.processes()), 2)
        self.cut_off("nobody")
        self.expect(0, "down")
        self.assertEqual(self.processes(), {})

    def test_what_start_files_print_is_no_answer(self):
        self.write_config(HERE)
        # Like answers, in no known encoding, and without an end of line.
        self.write_start_file(r"printf 'started 1\nWillkommen, sch\366ner Tag'")
        self.assertIn("2 memory servers are up (2 started)", self.expect(0, "up"))
        self.assertRegex(self.expect(0, "status"), r"^a +memory-1 +up\nb +memory-2 +up\n$")
        with mock.patch.dict(os.environ, self.environment):
            with hosts.Hosts(config.load(self.config)) as asked:
                start = ("start", "bench-run", "sleep", "60")
                (first,) = asked.agent(asked.config.leader, *start)
                (second,) = asked.agent(asked.config.leader, *start)
        self.assertRegex(first, "^started ")
        self.assertEqual(second, first.replace("started", "running"), "not taken for ours")
        out = self.expect(0, "down")
        for line in ("a: bench-run stopped", "a: memory-1 stopped", "b: memory-2 stopped"):
            self.assertIn(f"pando-cluster: {line}\n", out)
        self.assertNotIn("Willkommen", out)

    def test_a_shell_that_runs_nothing_is_an_error(self):
        self.write_config(HERE)
        for code, printed in ((0, "closed until noon"), (1, "closed until noon"), (0, "")):
            self.write_start_file(f"echo {printed}; exit {code}")
            for command in ("up", "status", "bench", "down"):
                out = self.expect(1, command)
                self.assertIn(f"a: its shell prints '{printed}' and does not run", out)

    def answer(self, verb, text):
        """From now on the hosts answer so when they are asked for `verb`."""
        printed = shlex.quote(f"\npando-cluster-begins\n{text}\n")
        self.write_start_file(f'case "$* " in *" {verb} "*) printf %s {printed}; exit 0 ;; esac')

    def test_answers_that_are_none_are_said(self):
        self.write_config(HERE, "operations = 400\nload = 'none'")
        refused = "a: '{}' is no answer to '{}'"
        for text in ("memory-1 running", "memory-1 up 5", "memory-1 dead 5 6", "\x1b[2J"):
            self.answer("status", text)
            for command in ("status", "up"):
                out = self.expect(1, command)
                self.assertIn(refused.format(text.replace("\x1b", r"\x1b"), "status"), out)
        self.write_start_file("")
        self.expect(0, "up")
        self.answer("stats", f"memory server {'9' * 5000}: here")
        self.assertIn("memory servers [1, 2] are not up", self.expect(1, "bench"))
        for text in ("now", f"now {'9' * 5000}", "then 5"):
            self.answer("hello", text)
            self.assertIn(refused.format(text[:200], "hello"), self.expect(1, "bench"))
        for text, why in (("stopped 5", "'stopped 5' is"), ("started 5\nstarted 6", "2 lines are")):
            self.answer("start", text)
            self.assertIn(f"a: {why} no answer to 'start'", self.expect(1, "bench"))
        # A run is a folder in the one for results, and nowhere else.
        self.answer("runs", "../elsewhere\n/tmp\n..")
        out = self.expect(1, "collect", f"--output={self.folder}/out")
        self.assertIn("a: there are no results", out)
        self.assertFalse(os.path.exists(f"{self.folder}/elsewhere"))

    def test_an_output_without_end_is_no_answer(self):
        self.write_config(HERE)
        self.write_start_file("head -c 2000 /dev/zero; exec sleep 50")
        with mock.patch.dict(os.environ, self.environment), mock.patch.object(hosts, "OUTPUT_MAX", 1000):
            with hosts.Hosts(config.load(self.config)) as asked:
                with self.assertRaisesRegex(hosts.HostError, "a: prints more than 1000 bytes"):
                    asked.agent(asked.config.leader, "status", timeout=40)

    def test_down_ends_what_it_can_reach(self):
        self.write_config(HERE)
        self.expect(0, "up")
        with open(self.config, encoding="utf-8") as file:
            text = file.read()
        self.write_config(HERE.replace('name = "b"', 'name = "b"\nuser = "x"'))
        self.cut_off("x@localhost")
        out = self.expect(1, "down")
        self.assertIn("a: memory-1 stopped", out)
        self.assertIn("b: cannot be reached", out)
        self.assertEqual(len(self.processes()), 1)
        with open(self.config, "w", encoding="utf-8") as file:
            file.write(text)
        self.expect(0, "down")
        self.assertEqual(self.processes(), {})

    def test_a_batch_job_describes_its_nodes(self):
        """The Slurm script: its file is right, and the cluster goes down whatever happens."""
        stubs = {
            "bin/scontrol": "printf 'n%s\\n' 1 2 3 4 5",
            "bin/memcached": 'echo "memcached $*" >>"$FAKE_SSH/calls"; exec sleep 600',
            "pando-cluster": 'echo "$1" >>"$FAKE_SSH/calls"\n'
            "[[ $1 != bench ]] || exit 1\n"
            f'[[ $1 == down ]] || exec {testing.HERE}/pando-cluster plan "$2"',
        }
        for name, text in stubs.items():
            with open(f"{self.folder}/{name}", "w", encoding="utf-8") as file:
                file.write(f"#!/bin/bash\n{text}\n")
            os.chmod(f"{self.folder}/{name}", 0o700)
        job = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-5]", "SLURM_SUBMIT_DIR": self.folder}
        done = subprocess.run(
            ["bash", f"{testing.HERE}/slurm/pando.sbatch"],
            env={**self.environment, **job, "PANDO_CLUSTER": self.folder},
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        self.assertEqual(done.returncode, 1, done.stderr)  # of the bench
        hosts = [line.split(": ")[0] for line in done.stdout.splitlines()]
        self.assertEqual(hosts, ["n1", "n2", "n3", "n3", "n4", "n5"])
        self.assertIn("--registry=memcached://n1:11211/job7", done.stdout)
        calls = [call for call in self.ssh_calls() if not call.startswith("memcached")]
        self.assertEqual(calls, ["up", "bench", "down"])


if __name__ == "__main__":
    unittest.main()
