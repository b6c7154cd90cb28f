"""bench and collect: one run over all compute hosts, and its merged result."""

import contextlib
import datetime
import json
import os
import re
import time

from pando_cluster import plot, results, servers
from pando_cluster.commands import FAILED, OK, POLL_S, Failed, _fail_if, _states, log_of, say
from pando_cluster.commands import registered, uninterrupted
from pando_cluster.hosts import HostError

RUN = "bench-run"  # names of processes
LOAD = "bench-load"


def _results(hosts, host, run_name):
    return f"{hosts.folder(host)}/results/{run_name}"


def bench(hosts, output):
    """Loads, runs on all compute hosts from one moment on, and collects.

    Whatever it started has ended afterwards.
    """
    config = hosts.config
    if not config.compute_hosts:
        raise Failed("no host has the role compute: nothing can run a benchmark")
    known, why = registered(hosts)
    absent = sorted(set(range(1, config.memory_servers + 1)) - known)
    if absent:
        raise Failed(f"memory servers {absent} are not up: 'up' first, or see 'status'\n{why}")
    run_name = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%d-%H%M%S-%f")[:-3]
    _, errors = hosts.each(
        config.compute_hosts,
        lambda host: hosts.agent(host, "folder", _results(hosts, host, run_name)),
    )
    _fail_if(errors)
    mine = set()
    try:
        _load(hosts, run_name, mine)
        _check_clocks(hosts)
        _run(hosts, run_name, mine)
    finally:
        _stop(hosts, mine)
    return collect(hosts, output, run_name)


def _stop(hosts, mine):
    """Ends what is left of `mine`: (host name, process name), and not what another bench runs."""
    grace = hosts.config.cluster.stop_timeout_s

    def stop(host):
        names = [name for host_name, name in mine if host_name == host.name]
        hosts.agent(host, "stop", grace, *names, timeout=grace + 60)

    with uninterrupted():
        names = {host_name for host_name, _ in mine}
        _, errors = hosts.each([h for h in hosts.config.compute_hosts if h.name in names], stop)
    for error in errors:
        say(str(error))


def _start(hosts, host, name, command, mine):
    mine.add((host.name, name))  # before: an answer may be lost
    if hosts.answer(host, r"(running|started) \d+", "start", name, *command)[1] == "running":
        mine.remove((host.name, name))
        raise HostError(host.name, f"{name} runs already: another bench is on ('down' ends it)")


def _load(hosts, run_name, mine):
    leader = hosts.config.leader
    result = f"{_results(hosts, leader, run_name)}/load.json"
    command = servers.load_command(hosts.config, result)
    if command is None:
        return
    say(f"{leader.name}: loads {hosts.config.bench.records} records")
    _start(hosts, leader, LOAD, command, mine)
    while _states(hosts, leader).get(LOAD) == "running":
        time.sleep(POLL_S)
    _check_ended(hosts, leader, LOAD, result)


def _check_clocks(hosts):
    """The hosts start by their own clocks: those must agree. (A slow answer proves nothing.)"""
    limit = hosts.config.bench.clock_skew_max_ms / 1000

    def ahead(host):
        before = time.time()
        theirs = int(hosts.answer(host, r"now (\d{1,20})", "hello")[1]) / 1e9
        after = time.time()
        skew = max(0.0, theirs - after, before - theirs)
        if skew > limit:
            raise HostError(
                host.name,
                f"its clock is {skew:.3f} s off, {limit:.3f} s are allowed: run chrony, or raise "
                "bench.clock_skew_max_ms",
            )

    _, errors = hosts.each(hosts.config.compute_hosts, ahead)
    _fail_if(errors)


def _run(hosts, run_name, mine):
    config = hosts.config

    def result_of(host):
        return f"{_results(hosts, host, run_name)}/histograms.json"

    start_at_s = time.time() + config.bench.start_delay_s
    commands = servers.run_commands(config, start_at_s, lambda h: _results(hosts, h, run_name))
    say(f"{len(commands)} hosts run workload {config.bench.workload} (run {run_name})")
    _, errors = hosts.each(
        config.compute_hosts, lambda host: _start(hosts, host, RUN, commands[host.name], mine)
    )
    _fail_if(errors)
    waiting = list(config.compute_hosts)
    while waiting:
        time.sleep(POLL_S)
        states, errors = hosts.each(waiting, lambda host: _states(hosts, host))
        _fail_if(errors)
        ended = [host for host in waiting if states[host.name].get(RUN) != "running"]
        waiting = [host for host in waiting if host not in ended]
        # One that failed fails the run at once, not when the others have measured for an hour.
        _, errors = hosts.each(ended, lambda h: _check_ended(hosts, h, RUN, result_of(h)))
        _fail_if(errors)


def _check_ended(hosts, host, name, result):
    if hosts.agent(host, "has", result) != ["yes"]:
        raise HostError(host.name, f"{name} has failed:{log_of(hosts, host, name)}")


def collect(hosts, output, run_name=None):
    """Fetches a run's results (default: the last one) and writes all files into `output`/RUN."""
    config = hosts.config
    if not config.compute_hosts:
        raise Failed("no host has the role compute: there are no results")
    # What is no name could be a path to somewhere here.
    named = hosts.agent(config.leader, "runs")
    run_names = [name for name in named if re.fullmatch(r"\w[\w.-]*", name)]
    if not run_names:
        raise Failed(f"{config.leader.name}: there are no results: 'bench' first")
    if run_name is None:
        run_name = run_names[-1]
    elif run_name not in run_names:
        raise Failed(
            f"{config.leader.name}: there is no run {run_name}: the last ones are "
            + ", ".join(run_names[-3:])
        )
    folder = os.path.join(output, run_name)
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise Failed(f"{folder} cannot be made: {error.strerror}") from None

    def fetch(host):
        to = f"{folder}/{host.name}.histograms.json"
        hosts.fetch(host, f"{_results(hosts, host, run_name)}/histograms.json", to)
        try:
            return results.read_file(to)
        except results.ResultError as error:
            raise HostError(host.name, str(error)) from None

    fetched, errors = hosts.each(config.compute_hosts, fetch)
    if errors:
        with contextlib.suppress(OSError):
            os.rmdir(folder)  # where nothing was fetched
    _fail_if(errors)
    runs = {name: run for name, (_, run) in fetched.items()}
    whole = results.merge(runs.values())
    try:
        _write(config, folder, run_name, fetched[config.leader.name][0], runs, whole)
    except OSError as error:
        raise Failed(
            f"{folder} cannot be written: {error.strerror}; make room, or give another --output, "
            f"and 'collect --run={run_name}'"
        ) from None
    print(results.table(config, run_name, runs, whole), end="")
    say(f"results are in {folder}")
    for name, run in runs.items():
        for fault in run.faults:
            say(f"{name}: {fault}")
    return FAILED if whole.faults else OK


def _write(config, folder, run_name, document, runs, whole):
    with open(f"{folder}/table.txt", "w", encoding="utf-8") as file:
        file.write(results.table(config, run_name, runs, whole))
    with open(f"{folder}/result.json", "w", encoding="utf-8") as file:
        json.dump(results.result_json(config, run_name, document, runs, whole), file, indent=1)
        file.write("\n")
    results.write_data(folder, whole)
    title = f"{config.cluster.name}: workload {config.bench.workload}, {config.cluster.fabric}"
    if whole.faults:
        title += " (not whole)"
    try:
        plot.write(f"{folder}/result.png", title, whole)
    except ImportError as error:
        say(f"no picture ({error}): install python3-matplotlib, then 'collect' again")
