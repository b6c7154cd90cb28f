"""Runs the agent on hosts: over ssh with one connection a host, or on this one without ssh.

Nothing is asked for (BatchMode): a host that wants a password is an error. Thread-safe; calls for
several hosts run at the same time (each()).
"""

import contextlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

AGENT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "agent")
CONNECT_TIMEOUT_S = 10
CALL_TIMEOUT_S = 60
LOOK_S = 1  # between two looks at what a command has printed
OUTPUT_MAX = 1 << 28  # bytes; results of long runs have some millions
SSH_FAILED = 255
BEGINS = "pando-cluster-begins"  # the line before an output that we have asked for; as in the agent
PARALLEL_MAX = 32
# What may precede our part of ControlPath: a socket's path has less than 108 bytes, of which 77 are
# for our folder, %C, and what ssh adds for a new socket. Blanks, % and $ mean something to ssh.
CONTROL_PARENT = re.compile(r"/[A-Za-z0-9._/-]{0,29}")


class HostError(Exception):
    """What went wrong on one host; `host` is its name in the file."""

    def __init__(self, host, why):
        super().__init__(f"{host}: {why}")
        self.host = host


class Hosts:
    """The hosts of a Config. Close it (or use `with`) to end the shared connections."""

    def __init__(self, config):
        self.config = config
        self._contacted = {}  # hosts by target
        self._control = None if config.local else self._control_folder()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def close(self):
        if self._control is None:
            return
        # Fails where there is no connection any more, which is what is wanted.
        self.each(
            list(self._contacted.values()),
            lambda host: self._run(
                host, ["ssh", *self._options(), "-O", "exit", self._target(host)], CONNECT_TIMEOUT_S
            ),
        )
        shutil.rmtree(self._control, ignore_errors=True)
        self._control = None

    def folder(self, host):
        """Where a host keeps what belongs to this cluster; hosts may share a file system."""
        return f"{self.config.cluster.work}/{host.name}"

    def agent(self, host, verb, *arguments, timeout=CALL_TIMEOUT_S):
        """The lines that the agent prints. HostError: its message, or why it was not reached."""
        with open(AGENT, encoding="utf-8") as script:
            code, out, err = self._run(
                host, self._agent_command(host, verb, arguments), timeout, stdin=script
            )
        if code == SSH_FAILED and not self.config.local:
            raise HostError(host.name, self._unreachable(host, err))
        if code != 0 and err:
            raise HostError(host.name, err)
        lines = self._asked_for(host, out).splitlines()
        if code != 0:
            raise HostError(host.name, f"{verb} failed with exit code {code}")
        return lines

    def answers(self, host, pattern, verb, *arguments):
        """A match of each line that the agent prints. HostError: one is nothing that it prints."""
        matches = []
        for line in self.agent(host, verb, *arguments):
            match = re.fullmatch(pattern, line)
            if not match:
                raise HostError(host.name, f"{line[:200]!r} is no answer to '{verb}'")
            matches.append(match)
        return matches

    def answer(self, host, pattern, verb, *arguments):
        """The same where it prints one line."""
        matches = self.answers(host, pattern, verb, *arguments)
        if len(matches) != 1:
            raise HostError(host.name, f"{len(matches)} lines are no answer to '{verb}'")
        return matches[0]

    def run(self, host, command, timeout=CALL_TIMEOUT_S):
        """Exit code and both outputs of a command. HostError: the host was not reached."""
        if self.config.local:
            return self._run(host, command, timeout)
        words = self._ssh(host, command)
        words[-1] = f"echo; echo {BEGINS}; {words[-1]}"
        code, out, err = self._run(host, words, timeout)
        if code == SSH_FAILED:
            raise HostError(host.name, self._unreachable(host, err))
        return code, self._asked_for(host, out), err

    def fetch(self, host, path, to):
        """Copies a text file from a host to here. HostError."""
        # Not scp: the user's shell starts its server, and what start files print breaks the protocol.
        code, text, err = self.run(host, ["cat", "--", path])
        if code != 0:
            raise HostError(host.name, f"{path} cannot be fetched: {err}")
        try:
            with open(to, "w", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            raise HostError(host.name, f"{to} cannot be written: {error.strerror}") from None

    def each(self, hosts, work):
        """Runs work(host) for all hosts at once. Results by host name, and the HostErrors."""
        results, errors = {}, []
        if not hosts:
            return results, errors
        with ThreadPoolExecutor(min(len(hosts), PARALLEL_MAX)) as pool:
            for host, future in [(host, pool.submit(work, host)) for host in hosts]:
                try:
                    results[host.name] = future.result()
                except HostError as error:
                    errors.append(error)
        return results, errors

    # --- Commands.

    def _target(self, host):
        return f"{host.user}@{host.address}" if host.user else host.address

    @staticmethod
    def _control_folder():
        """A new one for the sockets of the shared connections."""
        parent = tempfile.gettempdir()
        # ssh does not go on without such a socket: it ends with an error.
        parent = parent if CONTROL_PARENT.fullmatch(parent) else "/tmp"
        return tempfile.mkdtemp(prefix="pando-ssh-", dir=parent)

    def _options(self):
        options = ["-o", "BatchMode=yes", "-o", f"ConnectTimeout={CONNECT_TIMEOUT_S}"]
        # One connection for all commands to a host.
        options += ["-o", "ControlMaster=auto", "-o", "ControlPersist=60"]
        return options + ["-o", f"ControlPath={self._control}/%C", *self.config.cluster.ssh_options]

    def _ssh(self, host, command):
        target = self._target(host)
        self._contacted[target] = host
        return ["ssh", *self._options(), target, shlex.join(command)]

    def _agent_command(self, host, verb, arguments):
        arguments = [self.folder(host), verb, *map(str, arguments)]
        if self.config.local:
            return ["bash", AGENT, *arguments]
        return self._ssh(host, ["bash", "-s", "--", *arguments])

    def _unreachable(self, host, err):
        target = self._target(host)
        why = err or "ssh failed"
        return f"cannot be reached: {why} (does 'ssh {target} true' work without a password?)"

    @staticmethod
    def _asked_for(host, out):
        """What follows the line BEGINS: start files of a user's shell may print before it."""
        before, line, asked_for = out.partition(f"\n{BEGINS}\n")
        if line:
            return asked_for
        raise HostError(
            host.name,
            f"its shell prints {before.strip()[:200]!r} and does not run what ssh hands to it: its "
            "start files (like .bashrc) must not end it where there is no terminal",
        )

    @staticmethod
    def _run(host, command, timeout, stdin=subprocess.DEVNULL):
        # Files, not pipes: a connection that stays open in the background would keep a pipe open.
        # Greetings and logs have bytes of any kind.
        text = {"mode": "w+", "encoding": "utf-8", "errors": "replace"}
        with tempfile.TemporaryFile(**text) as out, tempfile.TemporaryFile(**text) as err:
            try:
                with subprocess.Popen(
                    command,
                    stdin=stdin,
                    stdout=out,
                    stderr=err,
                    start_new_session=True,  # Ctrl-C is ours: what was begun on a host is ended
                ) as process:
                    code = Hosts._await(host, process, (out, err), timeout)
            except FileNotFoundError:
                raise HostError(host.name, f"there is no program '{command[0]}' here") from None
            except OSError as error:  # it may not be executed, or is no program
                why = f"'{command[0]}' cannot be run here: {error.strerror}"
                raise HostError(host.name, why) from None
            out.seek(0)
            err.seek(0)
            return code, out.read(), err.read().strip()

    @staticmethod
    def _await(host, process, outputs, timeout):
        """Its exit code. HostError: it takes too long, or prints too much."""
        deadline = time.monotonic() + timeout
        try:
            while True:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(LOOK_S)
                if any(os.fstat(file.fileno()).st_size > OUTPUT_MAX for file in outputs):
                    raise HostError(host.name, f"prints more than {OUTPUT_MAX} bytes")
                if process.returncode is not None:
                    return process.returncode
                if time.monotonic() > deadline:
                    raise HostError(host.name, f"no answer within {timeout} s")
        except BaseException:
            process.kill()
            raise
