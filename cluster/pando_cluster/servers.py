"""The plan: which processes of Pando a Config means, and their command lines."""

import os
from dataclasses import dataclass

from pando_cluster.config import Host


@dataclass(frozen=True)
class Server:
    """A memory server: `name` in pid files and messages, `id` in the registry."""

    name: str
    id: int
    host: Host
    command: list[str]


def program(config, name):
    """A program's path on the hosts; its bare name where $PATH is to find it."""
    folder = config.cluster.programs
    if not folder and config.local:
        here = os.path.dirname(os.path.realpath(__file__))
        # Of a build; of where all of it is installed (bin/, share/pando/cluster/pando_cluster/).
        for way in (("..", "..", "build", "bin"), ("..", "..", "..", "..", "bin")):
            found = os.path.realpath(os.path.join(here, *way))
            if os.path.exists(os.path.join(found, "pando-memory")):
                folder = found
                break
    return f"{folder}/{name}" if folder else name


def _transport(config, host):
    """Flags of the fabric; shm is what the programs take by themselves."""
    if config.cluster.fabric == "shm":
        return []
    flags = [f"--fabric={config.cluster.fabric}"]
    if host.device:
        flags.append(f"--device={host.device}")
    if host.port:
        flags.append(f"--port={host.port}")
    if host.gid_index >= 0:
        flags.append(f"--gid_index={host.gid_index}")
    if host.mtu:
        flags.append(f"--mtu={host.mtu}")
    if config.cluster.secret_file:
        flags.append(f"--secret_file={config.cluster.secret_file}")
    return flags


def _placed(host, command):
    return ["taskset", "-c", host.cores, *command] if host.cores else command


def memory_servers(config):
    """All memory servers, ids from 1 in the order of the file. The first keeps the catalog."""
    servers = []
    for host in config.memory_hosts:
        for _ in range(host.memory_servers):
            number = len(servers) + 1
            command = [
                program(config, "pando-memory"),
                f"--registry={config.cluster.registry}",
                f"--server_id={number}",
                f"--memory={host.memory}",
                f"--locks={host.locks}",
                *_transport(config, host),
            ]
            if host.numa_node >= 0:
                command.append(f"--numa_node={host.numa_node}")
            if host.huge_pages:
                command.append("--huge_pages")
            command += host.memory_flags
            servers.append(Server(f"memory-{number}", number, host, _placed(host, command)))
    return servers


def programs_of(config, host):
    """What has to be installed on a host."""
    needed = []
    if host.is_memory:
        needed.append(program(config, "pando-memory"))
    if host.is_compute:
        needed.append(program(config, "pando-ycsb"))
    if host is config.leader:
        needed.append(program(config, "pando"))
    if host.cores:
        needed.append("taskset")
    return needed


def stats_command(config):
    """Asks every registered memory server; for the leader."""
    return [
        program(config, "pando"),
        "stats",
        f"--registry={config.cluster.registry}",
        *_transport(config, config.leader),
    ]


def _ycsb(config, host):
    bench = config.bench
    flags = {
        "registry": config.cluster.registry,
        "memory_servers": config.memory_servers,
        "all_compute_servers": config.compute_servers,
        "workload": bench.workload,
        "records": bench.records,
        "threads": bench.threads,
        "coroutines": bench.coroutines,
        "theta": bench.theta,
        "keys": bench.keys,
        "key_bytes": bench.key_bytes,
        "value_bytes": bench.value_bytes,
        "tree": bench.tree,
        "preset": bench.preset,
        "index_cache": bench.index_cache,
        "seed": bench.seed,
        "duration": bench.duration,
        "warmup": bench.warmup,
        "rate": bench.rate,
    }
    if bench.operations:
        flags["operations"] = bench.operations
    if bench.distribution:
        flags["distribution"] = bench.distribution
    if bench.mode == "owned":
        owned = ("mode", "route", "hot_bytes", "log_bytes", "service_threads", "flush_threads",
                 "ranges_min", "dirty_percent")
        flags.update((name, getattr(bench, name)) for name in owned)
    words = [program(config, "pando-ycsb"), *(f"--{name}={value}" for name, value in flags.items())]
    return words + ["--noprogress", *_transport(config, host), *bench.flags, *host.compute_flags]


def load_command(config, result):
    """Makes the tree and loads it, on the leader; `result` is a file that says that it is done.

    None: the records are there.
    """
    if config.bench.load == "none":
        return None
    leader = config.leader
    load = f"--load={config.bench.load}"
    command = [*_ycsb(config, leader), "--load_only", load, f"--json={result}"]
    if config.bench.drop:
        command.append("--drop")
    return _placed(leader, command)


def run_commands(config, start_at_s, results):
    """The share of each compute host by its name. `results(host)`: folder for what it writes."""
    commands, first = {}, 0
    for host in config.compute_hosts:
        folder = results(host)
        command = [
            *_ycsb(config, host),
            "--load=none",
            f"--compute_servers={host.compute_servers}",
            f"--first_compute_server={first}",
            f"--start_at={start_at_s:.3f}",
            f"--json={folder}/result.json",
            f"--histograms={folder}/histograms.json",
        ]
        first += host.compute_servers
        commands[host.name] = _placed(host, command)
    return commands
