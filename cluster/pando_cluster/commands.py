"""up, status, bench, collect, down. Each returns an exit code; messages go to standard error."""

import contextlib
import re
import signal
import sys
import time

from pando_cluster import servers
from pando_cluster.hosts import HostError

OK = 0
FAILED = 1
USAGE = 2
NOTHING_RUNS = 3  # status
PARTLY = 4  # status

POLL_S = 0.3
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Failed(Exception):
    """Something has failed, and why; several lines."""


def say(text):
    print(f"pando-cluster: {text}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def uninterrupted():
    """Ctrl-C does not end the cleaning up that an earlier one began."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in _STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _fail_if(errors):
    if errors:
        raise Failed("\n".join(str(error) for error in errors))


def _by_host(planned):
    hosts = {}
    for server in planned:
        hosts.setdefault(server.host.name, []).append(server)
    return hosts


def _states(hosts, host):
    """What was started on a host and not stopped: state (running, dead) by name."""
    lines = hosts.answers(host, r"([\w.-]+) (running|dead) \S+", "status")
    return {line[1]: line[2] for line in lines}


def registered(hosts):
    """Ids of the memory servers that are registered and answer, as the leader sees them.

    And what the leader says about the others: empty where there are none.
    """
    config = hosts.config
    _, out, err = hosts.run(config.leader, servers.stats_command(config))
    ids = re.findall(r"^memory server (\d{1,5})\b.*:", out, re.MULTILINE)
    return {int(number) for number in ids}, err.strip()


def log_of(hosts, host, name):
    """The end of a server's log, indented, for error messages."""
    try:
        return "".join(f"\n  {line}" for line in hosts.agent(host, "log", name))
    except HostError:
        return ""


# --- up and down.


def up(hosts):
    """Starts what does not run and waits until all is registered.

    After a failure only what ran before is running.
    """
    config = hosts.config
    _, errors = hosts.each(
        config.hosts, lambda host: hosts.agent(host, "hello", *servers.programs_of(config, host))
    )
    _fail_if(errors)
    planned = servers.memory_servers(config)
    before, errors = hosts.each(config.memory_hosts, lambda host: _states(hosts, host))
    _fail_if(errors)
    missing = [s for s in planned if before[s.host.name].get(s.name) != "running"]
    try:
        _start(hosts, missing)
        _await_registered(hosts, planned)
    except BaseException as why:
        _take_back(hosts, missing)
        if isinstance(why, HostError):
            raise Failed(str(why)) from None
        raise
    started = f"{len(missing)} started" if missing else "they ran already"
    say(f"{len(planned)} memory servers are up ({started}); registry {config.cluster.registry}")
    return OK


def _start(hosts, missing):
    by_host = _by_host(missing)

    def start(host):
        for server in by_host[host.name]:
            hosts.agent(host, "start", server.name, *server.command)

    _, errors = hosts.each([h for h in hosts.config.memory_hosts if h.name in by_host], start)
    _fail_if(errors)


def _await_registered(hosts, planned):
    deadline = time.monotonic() + hosts.config.cluster.start_timeout_s
    wanted = {server.id: server for server in planned}
    while True:
        _check_alive(hosts, planned)
        known, why = registered(hosts)
        absent = sorted(wanted.keys() - known)
        if not absent:
            return
        if time.monotonic() > deadline:
            raise Failed(
                "\n".join(
                    f"{wanted[i].host.name}: {wanted[i].name} runs but does not answer after "
                    f"{hosts.config.cluster.start_timeout_s} s: {why}"
                    f"{log_of(hosts, wanted[i].host, wanted[i].name)}"
                    for i in absent
                )
            )
        time.sleep(POLL_S)


def _check_alive(hosts, planned):
    states, errors = hosts.each(hosts.config.memory_hosts, lambda host: _states(hosts, host))
    _fail_if(errors)
    dead = [s for s in planned if states[s.host.name].get(s.name) != "running"]
    if dead:
        raise Failed(
            "\n".join(
                f"{s.host.name}: {s.name} has ended:{log_of(hosts, s.host, s.name)}" for s in dead
            )
        )


def _take_back(hosts, missing):
    by_host = _by_host(missing)
    grace = hosts.config.cluster.stop_timeout_s

    def stop(host):
        names = [server.name for server in by_host[host.name]]
        hosts.agent(host, "stop", grace, *names, timeout=grace + 60)

    with uninterrupted():
        _, errors = hosts.each([h for h in hosts.config.memory_hosts if h.name in by_host], stop)
    for error in errors:
        say(f"{error}\n  what was just started there may still run: 'down' ends it")


def down(hosts):
    """Ends what up and bench have started, and nothing else."""
    grace = hosts.config.cluster.stop_timeout_s
    outcomes, errors = hosts.each(
        hosts.config.hosts, lambda host: hosts.agent(host, "stop", grace, timeout=grace + 60)
    )
    for host, lines in outcomes.items():
        for line in lines:
            say(f"{host}: {line}")
    _fail_if(errors)
    if not any(outcomes.values()):
        say("nothing was running")
    return OK


# --- status.


def status(hosts):
    """Prints a line a server: up, does not answer, dead, stopped, unknown.

    And one for each other process that was started there and not stopped. OK, NOTHING_RUNS, PARTLY,
    or FAILED where a host cannot be asked.
    """
    config = hosts.config
    planned = servers.memory_servers(config)
    states, errors = hosts.each(config.hosts, lambda host: _states(hosts, host))
    running = [s for s in planned if states.get(s.host.name, {}).get(s.name) == "running"]
    known = set()
    if running:
        try:
            known, why = registered(hosts)
            if why:
                say(f"{config.leader.name}: {why}")
        except HostError as error:
            errors.append(error)
    failed = {error.host for error in errors}
    for server in planned:
        state = states.get(server.host.name, {}).get(server.name, "stopped")
        if server.host.name in failed and server.host.name not in states:
            state = "unknown"
        elif state == "running":
            state = "up" if server.id in known else "does not answer"
        print(f"{server.host.name:16} {server.name:12} {state}")
    named = {(server.host.name, server.name) for server in planned}
    others = False  # memory servers that the file does not name
    for host, names in states.items():
        for name, state in names.items():
            if (host, name) in named:
                continue
            if name.startswith("memory-"):
                others = others or state == "running"
                state += ", not in the file"
            print(f"{host:16} {name:12} {state}")
    _fail_if(errors)
    if not running:
        return PARTLY if others else NOTHING_RUNS
    return OK if known >= {server.id for server in planned} == {s.id for s in running} else PARTLY
