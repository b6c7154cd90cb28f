#!/usr/bin/python3
"""pando-cluster --local from up to down, with real servers on the shm fabric."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
import unittest

sys.dont_write_bytecode = True
import testing
from histogram_test import document
from pando_cluster import results

TWO = """
[[host]]
name = "a"
roles = ["memory", "compute"]
memory = "64M"
[[host]]
name = "b"
roles = ["memory", "compute"]
memory = "64M"
compute_servers = 2
"""
ONE = '[[host]]\nname = "a"\nroles = ["memory", "compute"]\nmemory = "64M"\nmemory_servers = 2\n'

# Stands in for pando-ycsb, which writes its result also where it fails: each host's is there already.
MADE_RESULTS = """
for word in "$@"; do
  [[ $word != --histograms=* ]] || result=${word#*=}
done
host=${result%/results/*}
cp "${0%/*}/${host##*/}.json" "$result"
exit 130
"""


class LocalTest(testing.ClusterTest):
    def test_from_up_to_down(self):
        self.write_config(TWO, "operations = 6000\nworkload = 'd'\nstart_delay_s = 8")
        self.expect(3, "status")
        self.assertIn("2 memory servers are up (2 started)", self.expect(0, "up"))
        first = self.memory_server(1)
        self.assertIn("they ran already", self.expect(0, "up"))
        self.assertEqual(self.memory_server(1), first)
        status = self.expect(0, "status")
        self.assertRegex(status, r"a +memory-1 +up\nb +memory-2 +up\n")

        out = self.expect(0, "bench", f"--output={self.folder}/out")
        self.assertRegex(out, r"run +6000 operations")
        self.assertEqual(len(self.processes()), 2, "only the memory servers are left")
        (run_name,) = os.listdir(f"{self.folder}/out")
        self.check_results(f"{self.folder}/out/{run_name}")

        again = self.expect(0, "collect", f"--output={self.folder}/again")
        self.assertIn(f"run {run_name}", again)
        self.check_results(f"{self.folder}/again/{run_name}")

        out = self.expect(0, "down")
        self.assertIn("a: memory-1 stopped", out)
        self.assertIn("b: memory-2 stopped", out)
        self.assertEqual(self.processes(), {})
        self.assertIn("nothing was running", self.expect(0, "down"))
        self.expect(3, "status")

    def test_owned_trees(self):
        owned = "operations = 6000\nmode = 'owned'\nroute = 'owner'\nhot_bytes = '1M'\nlog_bytes = '1M'\n"
        self.write_config(TWO, owned + "service_threads = 2\nflush_threads = 2\nstart_delay_s = 8")
        self.expect(0, "up")
        out = self.expect(0, "bench", f"--output={self.folder}/out")
        self.assertRegex(out, r"owned +[1-9][0-9.]* % hits, .* flushed into")
        (run_name,) = os.listdir(f"{self.folder}/out")
        with open(f"{self.folder}/out/{run_name}/result.json", encoding="utf-8") as file:
            result = json.load(file)
        run, owned = result["run"], result["run"]["owned"]
        self.assertEqual((run["operations"], run["errors"]), (6000, 0), out)
        self.assertEqual(result["config"]["mode"], "owned")
        # Of each host until it had done its own share: an owner may serve the others for longer.
        self.assertGreater(owned["log_messages"], 0)
        self.assertGreater(owned["hits"] + owned["misses"], 0)
        self.assertGreaterEqual(owned["ranges"], 1)

    def check_results(self, folder):
        with open(f"{folder}/result.json", encoding="utf-8") as file:
            result = json.load(file)
        run = result["run"]
        self.assertEqual((run["operations"], run["errors"]), (6000, 0))
        self.assertEqual(sum(run["per_second"]), 6000)
        # Inserts of all compute servers are of different keys, and reads find them.
        self.assertEqual(run["by_operation"]["insert"]["not_found"], 0)
        self.assertEqual(run["by_operation"]["read"]["not_found"], 0)
        self.assertEqual(result["compute_servers"], 3)
        self.assertEqual(result["hosts"]["a"]["operations"], 2000)
        self.assertEqual(result["hosts"]["b"]["operations"], 4000)
        reads = run["by_operation"]["read"]["count"]
        buckets = result["histograms"]["read"]["latency_ns"]["buckets"]
        self.assertEqual(sum(count for _, count in buckets), reads)
        with open(f"{folder}/latency.csv", encoding="utf-8") as file:
            rows = [row for row in csv.DictReader(file) if row["operation"] == "read"]
        self.assertEqual(sum(int(row["count"]) for row in rows), reads)
        with open(f"{folder}/result.png", "rb") as file:
            self.assertEqual(file.read(8), b"\x89PNG\r\n\x1a\n")
        with open(f"{folder}/table.txt", encoding="utf-8") as file:
            self.assertIn("insert", file.read())

        self.check_against_the_program(folder)

    def check_against_the_program(self, folder):
        """Percentiles from a host's histograms are those that pando-ycsb itself has computed."""
        run_name = os.path.basename(folder)
        _, run = results.read_file(f"{folder}/b.histograms.json")
        with open(f"{self.folder}/w/b/results/{run_name}/result.json", encoding="utf-8") as file:
            theirs = json.load(file)["run"]
        for name, summary in run.summary()["by_operation"].items():
            self.assertEqual(summary, theirs["by_operation"][name])
        self.assertEqual(run.summary()["fabric"], theirs["fabric"])
        self.assertEqual(run.summary()["tree"], theirs["tree"])
        self.assertEqual(run.summary()["owned"], theirs["owned"])

    def test_down_after_a_kill(self):
        self.write_config(ONE)
        self.expect(0, "up")
        os.kill(self.memory_server(1), signal.SIGKILL)
        while len(self.processes()) > 1:
            time.sleep(0.01)
        log = f"{self.folder}/w/a/memory-1.log"
        with open(log, "a", encoding="utf-8") as file:
            file.write("why it has crashed\n")
        self.assertRegex(self.expect(4, "status"), r"memory-1 +dead\n.*memory-2 +does not answer")
        self.assertIn("memory servers [1, 2] are not up", self.expect(1, "bench"))
        self.assertIn("(1 started)", self.expect(0, "up"))
        for name, kept in ((log, False), (f"{log}.1", True)):
            with open(name, encoding="utf-8") as file:
                self.assertEqual("why it has crashed" in file.read(), kept)
        os.kill(self.memory_server(2), signal.SIGKILL)
        while len(self.processes()) > 1:
            time.sleep(0.01)
        self.assertRegex(self.expect(4, "status"), r"memory-1 +up\n.*memory-2 +dead")
        out = self.expect(0, "down")
        self.assertIn("memory-1 stopped", out)
        self.assertIn("memory-2 dead", out)
        self.assertEqual(self.processes(), {})

    def test_a_server_that_the_file_no_longer_names_is_shown(self):
        self.write_config(ONE)
        self.expect(0, "up")
        self.write_config(ONE.replace("memory_servers = 2", ""))
        forgotten = r"a +memory-2 +running, not in the file\n"
        self.assertRegex(self.expect(0, "status"), rf"a +memory-1 +up\n{forgotten}")
        os.kill(self.memory_server(1), signal.SIGKILL)
        while len(self.processes()) > 1:
            time.sleep(0.01)
        self.assertRegex(self.expect(4, "status"), rf"a +memory-1 +dead\n{forgotten}")
        self.assertIn("memory-2 stopped", self.expect(0, "down"))
        self.assertEqual(self.processes(), {})
        self.assertNotIn("memory-2", self.expect(3, "status"))

    def test_a_stopped_server_is_killed_after_the_grace(self):
        self.write_config(ONE, cluster="stop_timeout_s = 1")
        self.expect(0, "up")
        os.kill(self.memory_server(2), signal.SIGSTOP)
        self.assertIn("memory-2 killed", self.expect(0, "down"))
        self.assertEqual(self.processes(), {})

    def test_a_recycled_pid_is_left_alone(self):
        self.write_config(ONE)
        self.expect(0, "up")
        with open(f"{self.folder}/w/a/memory-1.pid", encoding="utf-8") as file:
            pid, started, boot = file.read().split()
        with subprocess.Popen(["sleep", "600"]) as other:
            for line in (f"{other.pid} {started} {boot}x", f"{other.pid} 1 {boot}", "x", ""):
                with open(f"{self.folder}/w/a/memory-1.pid", "w", encoding="utf-8") as file:
                    file.write(line + "\n")
                self.assertRegex(self.call("status")[1], "memory-1 +dead")
                self.assertIn("memory-1 dead", self.expect(0, "down"))
            self.assertIsNone(other.poll())
            other.kill()
        self.assertEqual(self.memory_server(1), int(pid), "nobody knew that it was ours")

    def test_a_folder_that_others_may_have_made_is_refused(self):
        self.write_config(ONE, cluster="stop_timeout_s = 1")
        precious, work = f"{self.folder}/precious", f"{self.folder}/w"
        with open(precious, "w", encoding="utf-8") as file:
            file.write("data")
        os.makedirs(f"{work}/a")
        os.symlink(precious, f"{work}/a/lock")
        other = subprocess.Popen(["sleep", "600"])
        self.addCleanup(other.wait)
        self.addCleanup(other.kill)
        with open(f"/proc/{other.pid}/stat", encoding="utf-8") as file:
            started = file.read().rpartition(") ")[2].split()[19]
        with open("/proc/sys/kernel/random/boot_id", encoding="utf-8") as file:
            boot = file.read().strip()
        with open(f"{work}/a/memory-1.pid", "w", encoding="utf-8") as file:
            file.write(f"{other.pid} {started} {boot}\n")

        def refused(why):
            for command in ("status", "down", "up", "collect"):
                self.assertIn(f"a: {why}", self.expect(1, command))
            agent = ["bash", f"{testing.HERE}/pando_cluster/agent", f"{work}/a"]
            for words in (["start", "memory-2", "true"], ["folder", f"{work}/a/results"]):
                done = subprocess.run(
                    [*agent, *words], capture_output=True, text=True, timeout=60, check=False
                )
                self.assertEqual(done.returncode, 1)
                self.assertIn(why, done.stderr)
            self.assertIsNone(other.poll())
            with open(precious, encoding="utf-8") as file:
                self.assertEqual(file.read(), "data")

        for link in (work, f"{work}/a"):
            os.rename(link, f"{self.folder}/theirs")
            os.symlink(f"{self.folder}/theirs", link)
            refused(f"{link} is a symbolic link")
            os.unlink(link)
            os.rename(f"{self.folder}/theirs", link)
        if os.geteuid() == 0:  # who else could give a folder away?
            for folder in (work, f"{work}/a"):
                os.chown(folder, 12345, -1)
                refused(f"{folder} belongs to another user")
                os.chown(folder, 0, -1)
        # In a folder of ours the pid file is believed, and the lock is not emptied all the same.
        self.assertIn("memory-1 stopped", self.expect(0, "down"))
        with open(precious, encoding="utf-8") as file:
            self.assertEqual(file.read(), "data")

    def test_a_server_that_cannot_start_takes_the_others_back(self):
        self.write_config(TWO + 'memory_flags = ["--no_such_flag"]\n')
        out = self.expect(1, "up")
        self.assertIn("b: memory-2 has ended", out)
        self.assertIn("there is no flag --no_such_flag", out)
        self.assertEqual(self.processes(), {})
        self.expect(3, "status")

    def test_what_ran_before_survives_a_failed_up(self):
        self.write_config(TWO)
        self.expect(0, "up")
        first = self.memory_server(1)
        os.kill(self.memory_server(2), signal.SIGKILL)
        self.write_config(TWO + 'memory_flags = ["--no_such_flag"]\n')
        self.expect(1, "up")
        self.assertEqual(self.memory_server(1), first)

    def test_a_failed_run_says_why_and_ends(self):
        self.write_config(TWO + 'compute_flags = ["--no_such_flag"]\n', "duration = 600")
        self.expect(0, "up")
        started = time.monotonic()
        out = self.expect(1, "bench", f"--output={self.folder}/out")
        self.assertIn("b: bench-run has failed", out)
        self.assertIn("there is no flag --no_such_flag", out)
        self.assertLess(time.monotonic() - started, 200)  # not the ten minutes of the run
        self.assertEqual(len(self.processes()), 2, "only the memory servers are left")
        self.write_config(TWO, "theta = 0.5\nworkload = 'nothing'")
        self.assertIn("a: bench-load has failed", self.expect(1, "bench"))

    def bench_with(self, code, **faults):
        """Output, result and name of a bench whose host b has a result with `faults`."""
        for host, fields in (("a", {}), ("b", faults)):
            made = document([5000] * 50, 100, 101, [50])
            made["run"].update(fields)
            with open(f"{self.folder}/programs/{host}.json", "w", encoding="utf-8") as file:
                json.dump(made, file)
        out = self.expect(code, "bench", f"--output={self.folder}/out")
        run_name = max(os.listdir(f"{self.folder}/out"))
        with open(f"{self.folder}/out/{run_name}/result.json", encoding="utf-8") as file:
            return out, json.load(file), run_name

    def test_a_run_that_is_not_whole_is_no_success(self):
        stats = "echo 'memory server 1 (catalog): 64M'; echo 'memory server 2: 64M'"
        programs = {"pando": stats, "pando-memory": "", "pando-ycsb": MADE_RESULTS}
        bench = "load = 'none'\nstart_delay_s = 1"
        self.write_config(TWO, bench, programs=self.write_programs(programs))
        out, result, _ = self.bench_with(0)
        self.assertNotIn("stopped", out)
        self.assertEqual(result["run"]["operations"], 100)
        self.bench_with(0, stopped=False, tree_error="")
        for faults, says in (
            ({"stopped": True}, "stopped by a signal"),
            ({"gave_up": True}, "gave up after too many errors in a row"),
            ({"tree_error": "server 2 is gone"}, "the tree is lost: server 2 is gone"),
        ):
            out, result, run_name = self.bench_with(1, **faults)
            for line in (f"\nb: {says}", f"\npando-cluster: b: {says}"):
                self.assertIn(line, out)
            self.assertNotIn(f"a: {says}", out)
            ((field, value),) = faults.items()
            self.assertEqual(result["run"][field], value)
            self.assertEqual(result["hosts"]["b"][field], value)
            self.assertFalse(result["hosts"]["a"][field])
            # Nor is it one when it is fetched again.
            collected = f"--run={run_name}", f"--output={self.folder}/again"
            self.assertIn(says, self.expect(1, "collect", *collected))
        # One that nobody has made leaves nothing behind, nor does one without results.
        os.makedirs(f"{self.folder}/w/a/results/zero")
        for run_name, says in (
            ("nowhere", "a: there is no run nowhere: the last ones are "),
            ("zero", "histograms.json cannot be fetched"),
        ):
            none = f"{self.folder}/none/{run_name}"
            out = self.expect(1, "collect", f"--run={run_name}", f"--output={self.folder}/none")
            self.assertIn(says, out)
            self.assertFalse(os.path.exists(none))

    def test_programs_that_cannot_be_run_are_named(self):
        folder = self.write_programs({"pando": "", "pando-memory": "", "pando-ycsb": ""})
        self.write_config(TWO, programs=folder)
        os.chmod(f"{folder}/pando", 0o600)
        says = f"a: '{folder}/pando' cannot be run here: Permission denied"
        self.assertIn(says, self.expect(1, "bench"))
        with open(f"{folder}/pando", "w", encoding="utf-8") as file:
            file.write("no program")
        os.chmod(f"{folder}/pando", 0o700)
        self.assertIn("cannot be run here: Exec format error", self.expect(1, "bench"))

    def test_what_cannot_be_written_is_said(self):
        stats = "echo 'memory server 1 (catalog): 64M'; echo 'memory server 2: 64M'"
        programs = {"pando": stats, "pando-memory": "", "pando-ycsb": MADE_RESULTS}
        bench = "load = 'none'\nstart_delay_s = 1"
        self.write_config(TWO, bench, programs=self.write_programs(programs))
        _, _, run_name = self.bench_with(0)
        folder = f"{self.folder}/out/{run_name}"
        os.unlink(f"{folder}/result.json")
        os.symlink("/dev/full", f"{folder}/result.json")
        out = self.expect(1, "collect", f"--output={self.folder}/out")
        self.assertIn(f"pando-cluster: {folder} cannot be written: No space left on device; ", out)
        self.assertIn(f"'collect --run={run_name}'", out)
        for command, more in (("plan", ""), ("plan", "x" * 10_000), ("status", "")):
            self.write_config(TWO, f"{bench}\nflags = ['--x={more}']")
            with open("/dev/full", "w", encoding="utf-8") as full:
                done = subprocess.run(
                    [sys.executable, f"{testing.HERE}/pando-cluster", command, self.config, "--local"],
                    stdout=full,
                    stderr=subprocess.PIPE,
                    text=True,
                    check=False,
                )
            self.assertEqual(done.returncode, 1)
            self.assertIn("No space left on device\n", done.stderr)
            self.assertNotIn("Traceback", done.stderr)
            self.assertNotIn("Exception", done.stderr)

    def test_ctrl_c_ends_the_run(self):
        self.write_config(TWO, "duration = 600")
        self.expect(0, "up")
        bench = subprocess.Popen(
            [sys.executable, f"{testing.HERE}/pando-cluster", "bench", self.config, "--local"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=self.folder,
        )
        while len(self.runs()) < 2 and bench.poll() is None:
            time.sleep(0.05)
        # A second one does not disturb the first, and fails.
        self.write_config(TWO, "duration = 1\nload = 'none'")
        self.assertIn("another bench is on", self.expect(1, "bench"))
        self.assertIsNone(bench.poll())
        self.assertEqual(len(self.runs()), 2)
        bench.send_signal(signal.SIGINT)
        self.assertEqual(bench.wait(60), 1)
        deadline = time.monotonic() + 60  # its compute servers go a moment later
        while len(self.processes()) > 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertEqual(len(self.processes()), 2, "only the memory servers are left")

    def runs(self):
        """The pando-ycsb of each host that make a run."""
        return [words for words in self.processes().values() if "--load=none" in words]

    def test_mistakes_in_the_file(self):
        self.write_config(ONE + 'memroy = "1G"\n')
        self.assertIn("host[0].memroy: there is no such key", self.expect(2, "up"))
        self.config = f"{self.folder}/nowhere.toml"
        self.assertIn("cannot be read", self.expect(2, "status"))


if __name__ == "__main__":
    unittest.main()
