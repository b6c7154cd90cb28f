"""The description of a cluster: reads the TOML file and checks all of it before anything is done.

Every error names the key by its path, like host[2].memory, and says what would be right.
"""

import dataclasses
import re
import tomllib
import typing
from dataclasses import dataclass, field

ROLES = ("memory", "compute")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_RANGE = re.compile(r"(.*)\[(\d+)-(\d+)\](.*)")
_DIGITS_MAX = 18  # of a number in a range
HOSTS_MAX = 1024
SHOWN_MAX = 200  # characters of a value
SERVERS_MAX = 1024


class ConfigError(Exception):
    """What is wrong with the file, beginning with the key's path."""

    def __init__(self, path, why):
        super().__init__(f"{path}: {why}" if path else why)


def option(default, check=None, **meta):
    """A key with its default; `check(value)` returns what would be right, or None."""
    if isinstance(default, list):
        return field(default_factory=lambda: list(default), metadata={"check": check, **meta})
    return field(default=default, metadata={"check": check, **meta})


def matches(pattern, right):
    return lambda value: None if re.fullmatch(pattern, value) else right


def between(low, high):
    return lambda value: None if low <= value <= high else f"{low} to {high}"


def one_of(*values):
    return lambda value: None if value in values else "one of " + ", ".join(map(str, values))


_name = matches(_NAME, "letters, digits, '.', '_' and '-', beginning with a letter or digit")
_size = matches(r"[1-9]\d*[KMGT]?", "a size like 512M or 64G")
_word = matches(r"[^\s\0]+", "one word")
_path = matches(r"/[^\n\0]*", "an absolute path")
_cores = matches(r"\d+(-\d+)?(,\d+(-\d+)?)*", "CPUs like 0-7 or 0,2,4-6")


def _flags(value):
    return None if all(f.startswith("--") for f in value) else "words that begin with --"


@dataclass
class Cluster:
    name: str = option("pando", _name)
    fabric: str = option("shm", _name)
    # Passed on to the programs. Empty: a directory in `work`, for one host.
    registry: str = option("", _word)
    # On every host, its owner's alone; empty: the cluster has no secret.
    secret_file: str = option("", _path)
    programs: str = option("", _path)  # folder of the programs on every host; empty: $PATH
    work: str = option("", _path)  # folder for pid files, logs, results; empty: from the name
    ssh_options: list[str] = option([])
    start_timeout_s: int = option(30, between(1, 3600))
    stop_timeout_s: int = option(10, between(0, 600))


@dataclass
class HostDefaults:
    """Keys that [defaults] may set for all hosts."""

    user: str = option("", _name)
    roles: list[str] = option([])
    device: str = option("", _name)  # RDMA device; empty: the one that is found
    port: int = option(0, between(1, 255))  # of the device; 0, not given: the first active one
    gid_index: int = option(-1, between(-1, 255))  # -1: the one that is found
    mtu: int = option(0, one_of(0, 256, 512, 1024, 2048, 4096))  # bytes; 0: the active one
    cores: str = option("", _cores)  # CPUs that the servers may use; empty: all
    numa_node: int = option(-1, between(-1, 1023))
    huge_pages: bool = option(False)
    memory: str = option("1G", _size)  # of each memory server
    locks: int = option(32768, between(512, 1 << 30))
    memory_servers: int = option(1, between(1, SERVERS_MAX))
    compute_servers: int = option(1, between(1, SERVERS_MAX))
    memory_flags: list[str] = option([], _flags)
    compute_flags: list[str] = option([], _flags)


@dataclass
class Host(HostDefaults):
    name: str = option("", _name)
    address: str = option("", _name)  # for ssh; empty: the name

    @property
    def is_memory(self):
        return "memory" in self.roles

    @property
    def is_compute(self):
        return "compute" in self.roles


@dataclass
class Bench:
    workload: str = option("a", _word)
    records: int = option(1_000_000, between(1, 1 << 40))
    operations: int = option(0, between(0, 1 << 48))  # of all threads together; 0: duration
    duration: float = option(10.0, between(0, 1e9))  # seconds
    warmup: float = option(0.0, between(0, 1e9))
    rate: float = option(0.0, between(0, 1e12))  # operations/s of all together; 0: closed loop
    threads: int = option(1, between(1, 1024))  # a compute server
    coroutines: int = option(8, between(1, 1024))  # a thread
    distribution: str = option("", _name)  # empty: the workload's
    theta: float = option(0.99, between(0.001, 0.999))
    keys: str = option("integer", _name)
    key_bytes: int = option(0, between(0, 255))
    value_bytes: int = option(8, between(0, 65536))
    tree: str = option("ycsb", _word)
    load: str = option("bulk", one_of("bulk", "none"))  # none: the records are there
    drop: bool = option(True)  # what is there of that tree, before loading
    preset: str = option("everything", _name)
    index_cache: str = option("64M", _size)
    mode: str = option("shared", one_of("shared", "owned"))
    route: str = option("any", one_of("any", "owner"))  # owned: which keys a compute server asks for
    hot_bytes: str = option("64M", _size)  # owned: an owner's memory for records
    log_bytes: str = option("16M", _size)  # owned: an owner's log on a memory server
    service_threads: int = option(1, between(1, 64))  # owned: execute what others ask for
    flush_threads: int = option(1, between(1, 16))  # owned: write an owner's records to leaves
    ranges_min: int = option(1, between(1, 64))  # owned: into which an owner divides its keys, at least
    dirty_percent: int = option(50, between(1, 90))  # owned: of hot_bytes, of writes that leaves do not have
    seed: int = option(1, between(0, 2**63 - 1))
    start_delay_s: float = option(5.0, between(0.5, 3600))  # for connecting, before the start
    clock_skew_max_ms: float = option(50.0, between(0.1, 60_000))
    flags: list[str] = option([], _flags)


@dataclass
class Config:
    cluster: Cluster
    hosts: list[Host]
    bench: Bench
    local: bool = False

    @property
    def memory_hosts(self):
        return [host for host in self.hosts if host.is_memory]

    @property
    def compute_hosts(self):
        return [host for host in self.hosts if host.is_compute]

    @property
    def leader(self):
        """The host that asks the cluster questions and loads: the first compute host."""
        return (self.compute_hosts or self.hosts)[0]

    @property
    def memory_servers(self):
        return sum(host.memory_servers for host in self.memory_hosts)

    @property
    def compute_servers(self):
        return sum(host.compute_servers for host in self.compute_hosts)


_TYPE_NAMES = {str: "a string", int: "a whole number", float: "a number", bool: "true or false"}


def _shown(value):
    """A value of a file, in a message."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # a number of thousands of digits, tables in tables
        return "what is there, which is too long to be shown"
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}..."


def _typed(value, wanted, path):
    if typing.get_origin(wanted) is list:
        if not isinstance(value, list):
            raise ConfigError(path, f"is a list of strings, not {_shown(value)}")
        return [_typed(item, str, f"{path}[{i}]") for i, item in enumerate(value)]
    if wanted is float and type(value) is int:
        try:
            return float(value)
        except OverflowError:
            raise ConfigError(path, f"is too large a number: {_shown(value)}") from None
    if type(value) is not wanted:  # not isinstance: true is no number
        raise ConfigError(path, f"is {_TYPE_NAMES[wanted]}, not {_shown(value)}")
    if wanted is str and "\0" in value:  # no command line can have it
        raise ConfigError(path, f"has no NUL character: {_shown(value)}")
    return value


def _fill(kind, table, path, defaults=None):
    """An object of dataclass `kind` from a table: no unknown keys, right types, right values."""
    if not isinstance(table, dict):
        raise ConfigError(path, f"is a table, not {_shown(table)}")
    fields = {f.name: f for f in dataclasses.fields(kind)}
    types = typing.get_type_hints(kind)
    result = kind()
    for name, value in (defaults or {}).items():
        setattr(result, name, value)
    for name, value in table.items():
        key = f"{path}.{name}"
        if name not in fields:
            raise ConfigError(key, f"there is no such key; there are {', '.join(sorted(fields))}")
        value = _typed(value, types[name], key)
        check = fields[name].metadata["check"]
        right = check(value) if check else None
        if right:
            raise ConfigError(key, f"is {right}, not {_shown(value)}")
        setattr(result, name, value)
    return result


def expand(text, path):
    """m[01-03] is m01, m02, m03; a text without a range is itself."""
    match = _RANGE.fullmatch(text)
    if not match:
        return [text]
    before, first, last, after = match.groups()
    too_long = max(len(first), len(last)) > _DIGITS_MAX
    if too_long or not 0 <= int(last) - int(first) < HOSTS_MAX:
        raise ConfigError(path, f"is a range of 1 to {HOSTS_MAX} hosts, not {_shown(text)}")
    return [f"{before}{n:0{len(first)}}{after}" for n in range(int(first), int(last) + 1)]


def _expand_host(table, path):
    """A [[host]] table as tables of single hosts."""
    if not isinstance(table, dict):
        raise ConfigError(path, f"is a table, not {_shown(table)}")
    name = table.get("name")
    if not isinstance(name, str):
        raise ConfigError(f"{path}.name", "every host has a name, a string")
    names = expand(name, f"{path}.name")
    address = table.get("address", "")
    addresses = expand(address, f"{path}.address") if isinstance(address, str) else [address]
    if len(addresses) not in (1, len(names)):
        raise ConfigError(f"{path}.address", f"{len(addresses)} addresses for {len(names)} hosts")
    if len(addresses) < len(names):
        addresses *= len(names)
    return [
        {**table, "name": n, **({"address": a} if "address" in table else {})}
        for n, a in zip(names, addresses)
    ]


def _check_host(host, table, path):
    if not host.roles:
        raise ConfigError(f"{path}.roles", f"host {host.name} has no role: memory, compute or both")
    for role in host.roles:
        if role not in ROLES:
            raise ConfigError(f"{path}.roles", f"is of {' and '.join(ROLES)}, not {_shown(role)}")
    if len(set(host.roles)) != len(host.roles):
        raise ConfigError(f"{path}.roles", "names a role twice")
    for role in ROLES:
        count = f"{role}_servers"
        if count in table and role not in host.roles:
            raise ConfigError(f"{path}.{count}", f"host {host.name} has no role {role}")
    host.address = host.address or host.name


def _check_whole(config):
    names = set()
    for i, host in enumerate(config.hosts):
        if host.name in names:
            raise ConfigError(f"host[{i}].name", f"'{host.name}' is there twice")
        names.add(host.name)
    if not config.memory_hosts:
        raise ConfigError("host", "no host has the role memory: there is no memory server")
    for count, role in ((config.memory_servers, "memory"), (config.compute_servers, "compute")):
        if count > SERVERS_MAX:
            raise ConfigError("host", f"{count} {role} servers are too many: {SERVERS_MAX} at most")
    if config.bench.operations == 0 and config.bench.duration == 0:
        raise ConfigError("bench.duration", "when to stop? Set operations or duration above 0")
    if config.bench.route == "owner" and config.bench.mode != "owned":
        raise ConfigError("bench.route", 'keys of a shared tree have no owner: set mode = "owned"')
    if config.local:
        return
    addresses = {host.address for host in config.hosts}
    if config.cluster.fabric == "shm" and len(addresses) > 1:
        raise ConfigError(
            "cluster.fabric",
            f"shm connects processes of one host, and there are {len(addresses)}: "
            "use another fabric, or --local to run everything here",
        )
    if len(addresses) > 1 and not config.cluster.registry:
        raise ConfigError(
            "cluster.registry", "several hosts need one, like memcached://HOST:11211/NAME"
        )


def parse(text, local=False):
    """The Config that a TOML text describes. ConfigError: what is wrong with it.

    With `local` every host is this one, without ssh, on the shm fabric: RDMA, CPUs and NUMA
    nodes, which describe other machines, are left out.
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError("", f"is no TOML: {error}") from None
    except ValueError:
        raise ConfigError("", "has a number of too many digits") from None
    except RecursionError:
        raise ConfigError("", "has too many lists or tables in one another") from None
    known = ("cluster", "defaults", "host", "bench")
    for key in document:
        if key not in known:
            raise ConfigError(key, f"there is no such table; there are {', '.join(known)}")
    cluster = _fill(Cluster, document.get("cluster", {}), "cluster")
    bench = _fill(Bench, document.get("bench", {}), "bench")
    if bench.operations and "duration" not in document["bench"]:
        bench.duration = 0.0
    default_table = document.get("defaults", {})
    _fill(HostDefaults, default_table, "defaults")
    tables = document.get("host", [])
    if not isinstance(tables, list) or not tables:
        raise ConfigError("host", "which hosts? Write a [[host]] table for each")
    hosts = []
    for i, table in enumerate(tables):
        for single in _expand_host(table, f"host[{i}]"):
            host = _fill(Host, single, f"host[{i}]", default_table)
            _check_host(host, single, f"host[{i}]")
            hosts.append(host)
    config = Config(cluster, hosts, bench, local)
    if local:
        _make_local(config)
    cluster.work = cluster.work or f"/tmp/pando-cluster-{cluster.name}"
    _check_whole(config)
    cluster.registry = cluster.registry or f"{cluster.work}/registry"
    return config


def _make_local(config):
    if config.cluster.fabric != "shm":
        config.cluster.fabric = "shm"
        config.cluster.registry = ""
    for host in config.hosts:
        host.device, host.port, host.gid_index, host.mtu = "", 0, -1, 0
        host.cores, host.numa_node = "", -1


def load(path, local=False):
    """parse() of a file. ConfigError also where it cannot be read."""
    try:
        with open(path, encoding="utf-8") as file:
            return parse(file.read(), local)
    except OSError as error:
        raise ConfigError("", f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError("", f"is no UTF-8: {error}") from None
