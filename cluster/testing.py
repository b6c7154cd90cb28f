"""For tests: pando-cluster as a user calls it, on a cluster with a folder of its own."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAMS = os.environ.get("PANDO_PROGRAMS", os.path.join(HERE, "..", "build", "bin"))

# Stands in for ssh: notes each call, takes no ControlPath that ssh does not take, has no way to hosts named in `down`, runs
# the others' here, behind what the user's shell does when it starts.
FAKE_SSH = """#!/bin/bash
printf '%s\\n' "$*" >>"$FAKE_SSH/calls"
while [[ $1 == -* ]]; do
  [[ $1 != -O ]] || exit 0
  if [[ $2 == ControlPath=* ]]; then
    # %C is 40 digits; a new socket has a name that is 17 bytes longer.
    path=${2#*=} hash=$(printf '%040d' 0)
    path=${path/\\%C/$hash}
    if [[ $path == *[[:blank:]%]* || $((${#path} + 17)) -ge 108 ]]; then
      echo "ssh: no path for a socket: $path" >&2
      exit 255
    fi
  fi
  shift 2
done
target=$1
shift
if grep -qx "$target" "$FAKE_SSH/down" 2>/dev/null; then
  echo "ssh: connect to host $target port 22: No route to host" >&2
  exit 255
fi
[[ ! -e $FAKE_SSH/start_file ]] || . "$FAKE_SSH/start_file"
exec bash -c "$*"
"""


class ClusterTest(unittest.TestCase):
    """Ends whatever a test leaves running."""

    local = ["--local"]

    def setUp(self):
        # Short: sockets go into it.
        folder = tempfile.TemporaryDirectory(prefix="pando-test-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.environment = dict(os.environ)
        self.config = f"{self.folder}/cluster.toml"
        self.addCleanup(self.end_everything)

    def write_config(self, hosts, bench="", cluster="", programs=PROGRAMS):
        with open(self.config, "w", encoding="utf-8") as file:
            file.write(f'[cluster]\nname = "test"\nwork = "{self.folder}/w"\n')
            file.write(f'programs = "{os.path.realpath(programs)}"\n{cluster}\n')
            file.write(f"{hosts}\n[bench]\nrecords = 2000\n{bench}\n")

    def write_programs(self, texts):
        """Scripts by name that stand in for Pando's programs. Their folder."""
        folder = f"{self.folder}/programs"
        os.makedirs(folder)
        for name, text in texts.items():
            with open(f"{folder}/{name}", "w", encoding="utf-8") as file:
                file.write(f"#!/bin/bash\n{text}\n")
            os.chmod(f"{folder}/{name}", 0o700)
        return folder

    def call(self, command, *arguments):
        """Exit code, standard output, standard error."""
        done = subprocess.run(
            [sys.executable, f"{HERE}/pando-cluster", command, self.config]
            + [*self.local, *arguments],
            capture_output=True,
            text=True,
            timeout=240,
            env=self.environment,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr

    def expect(self, code, command, *arguments):
        """Both outputs of a call that ends with `code`."""
        got, out, err = self.call(command, *arguments)
        self.assertEqual(got, code, f"{command}: {out}{err}")
        return out + err

    def processes(self):
        """Processes of this test's cluster: it is named in their command lines."""
        found = {}
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                # Others' command lines have bytes of any kind.
                with open(f"/proc/{pid}/cmdline", encoding="utf-8", errors="replace") as file:
                    words = file.read().split("\0")
            except OSError:
                continue
            if re.search("/pando-(memory|ycsb)$", words[0]) and self.folder in " ".join(words):
                found[int(pid)] = words
        return found

    def memory_server(self, number):
        """Its PID."""
        for pid, words in self.processes().items():
            if f"--server_id={number}" in words:
                return pid
        raise AssertionError(f"memory server {number} does not run")

    def end_everything(self):
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):  # it has just ended by itself
                os.kill(pid, signal.SIGKILL)

    def use_fake_ssh(self):
        """From now on ssh is ours; its calls are in self.ssh_calls()."""
        self.local = []
        os.makedirs(f"{self.folder}/bin")
        with open(f"{self.folder}/bin/ssh", "w", encoding="utf-8") as file:
            file.write(FAKE_SSH)
        os.chmod(f"{self.folder}/bin/ssh", 0o700)
        self.environment["PATH"] = f"{self.folder}/bin:{self.environment['PATH']}"
        self.environment["FAKE_SSH"] = self.folder

    def ssh_calls(self):
        try:
            with open(f"{self.folder}/calls", encoding="utf-8") as file:
                return file.read().splitlines()
        except FileNotFoundError:
            return []

    def write_start_file(self, text):
        """What a .bashrc does on all hosts."""
        with open(f"{self.folder}/start_file", "w", encoding="utf-8") as file:
            file.write(text)

    def cut_off(self, *addresses):
        with open(f"{self.folder}/down", "w", encoding="utf-8") as file:
            file.write("\n".join(addresses) + "\n")
