"""What a container is made of, as libpod's own SpecGenerator body: captured from a container, written as `podman run`.

Captured is all that makes a difference, from the inspect answer and from the command that made it; what can be had from
neither is said. Left out is what comes anew by itself: the image's own environment and labels, what a CDI device puts
in, names that hold the old container's identity.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from console.actions.target import ContainerView
from console.clients import cdi, libpod, run_words
from console.clients.run_words import Option
from console.core.plan import WrongInput
from console.core.secrets import mask_command
from console.core.text import one_line

Body = dict[str, Any]
UNLIMITED = 2**64 - 1
"""libpod's number for no limit; -1 is refused as no unsigned number (host.md 3.3)."""
FAILURE_ACTIONS = {"none": 0, "kill": 2, "restart": 3, "stop": 4}
NANOSECONDS = 10**9

_KEPT_OPTIONS = """
add-host annotation attach cap-add cap-drop cgroup-parent cgroupns cgroups cidfile conmon-pidfile cpu-period
cpu-quota cpu-shares cpus cpuset-cpus cpuset-mems detach detach-keys device dns dns-opt dns-option dns-search
entrypoint env env-file env-host expose gpus group-add health-cmd health-interval health-on-failure
health-retries health-start-period health-timeout hostname http-proxy init interactive ip ip6 ipc label
label-file log-driver log-opt mac-address memory memory-reservation memory-swap memory-swappiness mount name
net network network-alias no-healthcheck no-hostname oom-kill-disable oom-score-adj passwd pid pidfile
pids-limit privileged publish publish-all pull quiet read-only replace restart rm sdnotify secret security-opt
shm-size sig-proxy stop-signal stop-timeout sysctl tls-verify tmpfs tty tz ulimit umask user userns uts volume
workdir
"""
_FROM_INSPECT = frozenset(_KEPT_OPTIONS.split())
"""Options that the inspect answer keeps, that are read here from the command, or that mean nothing afterwards."""
_OWN_ANNOTATIONS = (
    "io.podman.",
    "io.container.manager",
    "io.kubernetes.cri-o.",
    "org.opencontainers.image.",
    "org.systemd.property.",
)
"""What Podman puts there itself; the last are Podman 5's: stop signal and time."""
_OWN_ENVIRONMENT = frozenset({"container", "TERM", "HOSTNAME"})


class Captured(Struct, frozen=True):
    """What a container is made of; holds secrets."""

    body: Body
    not_captured: tuple[str, ...] = ()
    """What could not be had, a sentence each."""


def captured(view: ContainerView) -> Captured:
    """Of a container as it is now; WrongInput where there is none."""
    inspected = view.inspect()
    if inspected is None:
        raise WrongInput(f"there is no container {one_line(view.name, 80)} here; podman ps --all lists them")
    image = view.image(inspected.get("Image", "")) or {}
    command = _table(inspected, "Config").get("CreateCommand") or []
    return capture(inspected, image, cdi.environment(libpod.cdi_names(command), view.box.root))


def capture(inspected: Mapping[str, Any], image: Mapping[str, Any], cdi_env: Iterable[str] = ()) -> Captured:
    """Of an inspect answer of Podman 4 or 5, its image's answer, and the variables that come from CDI (pure)."""
    config, host = _table(inspected, "Config"), _table(inspected, "HostConfig")
    base = _table(image, "Config")
    made_by = config.get("CreateCommand") or []
    options = run_words.options_of(made_by)
    body: Body = {
        "name": inspected.get("Name", ""),
        "image": inspected.get("ImageName") or inspected.get("Image", ""),
        **_process(inspected, config, base),
        "env": _environment(config, base, frozenset(cdi_env), options),
        "labels": _labels(config, base),
        "annotations": _annotations(config),
        **_health(config, base),
        **_devices(host, options),
        **_mounts(inspected, host, options),
        **_network(inspected, host, options),
        **_limits(host, options),
        **_namespaces(host, options),
        **_security(host, options),
        **_policy(inspected, config, host),
        **_secrets(config, options),
    }
    return Captured({key: value for key, value in body.items() if _tells(value)}, _not_captured(inspected, options))


def _tells(value: object) -> bool:
    """False for what says nothing: an empty answer is Podman's default."""
    return value not in (None, "", [], {}, ()) and value is not False


def _table(answer: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = answer.get(key)
    return value if isinstance(value, dict) else {}


# ------------------------------------------------------------------------------------------------------------ process


def _process(inspected: Mapping[str, Any], config: Mapping[str, Any], base: Mapping[str, Any]) -> Body:
    identity = str(inspected.get("Id", ""))
    command = list(config.get("Cmd") or [])
    whole = [inspected.get("Path") or "", *(inspected.get("Args") or [])]
    entrypoint = [word for word in whole[: len(whole) - len(command)] if word]
    return {
        "command": None if command == list(base.get("Cmd") or []) else command,
        "entrypoint": None if entrypoint == _words(base.get("Entrypoint")) else entrypoint,
        "user": _unless(config.get("User"), base.get("User")),
        "work_dir": _unless(config.get("WorkingDir"), base.get("WorkingDir")),
        "hostname": None if config.get("Hostname") in (identity[:12], "") else config.get("Hostname"),
        "terminal": config.get("Tty"),
        "stdin": config.get("OpenStdin"),
        "umask": _unless(config.get("Umask"), "0022"),
        "timezone": config.get("Timezone"),
        "stop_signal": _signal(config.get("StopSignal")),
        "stop_timeout": config.get("StopTimeout"),
        "init": _annotation(config, "init"),
        "timeout": config.get("Timeout") or None,
    }


def _words(value: object) -> list[str]:
    """Podman 4 gives an entry point as one text, 5 as a list."""
    if isinstance(value, str):
        return value.split()
    return [str(word) for word in value] if isinstance(value, list) else []


def _unless(value: object, default: object) -> object:
    return None if value == default or not value else value


def _signal(value: object) -> int | None:
    """A number, as the API wants; SIGTERM is the default. Podman 5 tells names."""
    import signal

    if isinstance(value, str):
        try:
            value = int(signal.Signals[value if value.startswith("SIG") else f"SIG{value}"])
        except KeyError:
            return None
    return value if isinstance(value, int) and value != signal.SIGTERM else None


def _annotation(config: Mapping[str, Any], name: str) -> bool:
    return _table(config, "Annotations").get(f"io.podman.annotations.{name}") == "TRUE"


def _environment(
    config: Mapping[str, Any], base: Mapping[str, Any], cdi_env: frozenset[str], options: Sequence[Option]
) -> dict[str, str]:
    own = dict(_pair(line) for line in base.get("Env") or ())
    asked = {_pair(line)[0] for line in run_words.values(options, "env")}
    found = dict(_pair(line) for line in config.get("Env") or ())
    return {
        name: value
        for name, value in found.items()
        if name in asked or (own.get(name) != value and name not in cdi_env and not _is_podmans(name, value))
    }


def _pair(line: str) -> tuple[str, str]:
    name, _, value = str(line).partition("=")
    return name, value


def _is_podmans(name: str, value: str) -> bool:
    return name in _OWN_ENVIRONMENT or (name == "HOME" and value in ("/root", "/"))


def _labels(config: Mapping[str, Any], base: Mapping[str, Any]) -> dict[str, str]:
    own = _table(base, "Labels")
    return {name: value for name, value in _table(config, "Labels").items() if own.get(name) != value}


def _annotations(config: Mapping[str, Any]) -> dict[str, str]:
    found = _table(config, "Annotations")
    return {name: value for name, value in found.items() if not name.startswith(_OWN_ANNOTATIONS)}


def _health(config: Mapping[str, Any], base: Mapping[str, Any]) -> Body:
    health = config.get("Healthcheck")
    if not health or health == base.get("Healthcheck"):
        return {}
    action = str(config.get("HealthcheckOnFailureAction") or "none").lower()
    return {"healthconfig": health, "health_check_on_failure_action": FAILURE_ACTIONS.get(action) or None}


# -------------------------------------------------------------------------------------------- devices, mounts, secrets


def _devices(host: Mapping[str, Any], options: Sequence[Option]) -> Body:
    """By the names that it was made with; the nodes that inspect lists are those of the last start."""
    if options:
        asked = [*run_words.values(options, "device"), *_gpus(options)]
        return {"devices": [{"path": path} for path in asked]}
    nodes = [
        f"{one.get('PathOnHost')}:{one.get('PathInContainer')}:{one.get('CgroupPermissions') or 'rwm'}"
        for one in host.get("Devices") or ()
    ]
    return {"devices": [{"path": path} for path in nodes]}


def _gpus(options: Sequence[Option]) -> list[str]:
    return [f"nvidia.com/gpu={value}" for value in run_words.values(options, "gpus")]


def _mounts(inspected: Mapping[str, Any], host: Mapping[str, Any], options: Sequence[Option]) -> Body:
    relabel = dict(_relabels(options))
    mounts: list[Body] = []
    volumes: list[Body] = []
    for one in inspected.get("Mounts") or ():
        target = str(one.get("Destination", ""))
        flags = [*("ro" for _ in [0] if not one.get("RW", True)), *relabel.get(target, ())]
        if one.get("Type") == "volume":
            more = [flag for flag in one.get("Options") or () if flag not in ("rbind", "nosuid", "nodev")]
            volumes.append({"Name": one.get("Name", ""), "Dest": target, "Options": [*flags, *more]})
        else:
            own = [str(flag) for flag in one.get("Options") or ()]
            spread = [one["Propagation"]] if one.get("Propagation") not in (None, "", "rprivate") else []
            mounts.append(
                {"type": "bind", "source": one.get("Source"), "destination": target, "options": [*flags, *own, *spread]}
            )
    for target, told in _table(host, "Tmpfs").items():
        kept = [flag for flag in str(told).split(",") if flag and flag != "rprivate"]
        mounts.append({"type": "tmpfs", "source": "tmpfs", "destination": target, "options": kept})
    return {"mounts": mounts, "volumes": volumes}


def _relabels(options: Sequence[Option]) -> Iterator[tuple[str, list[str]]]:
    """Relabelling leaves no trace in the inspect answer, and a private label must be set anew for a new container."""
    for value in run_words.values(options, "volume"):
        parts = value.split(":")
        if len(parts) > 2:
            yield parts[1], [flag for flag in parts[2].split(",") if flag in ("z", "Z", "U")]
    for value in run_words.values(options, "mount"):
        pairs = dict(_pair(part) for part in value.split(","))
        target = pairs.get("target") or pairs.get("dst") or pairs.get("destination") or ""
        flags = {"shared": ["z"], "private": ["Z"]}.get(pairs.get("relabel", ""), [])
        yield target, flags + (["U"] if pairs.get("U") == "true" or pairs.get("chown") == "true" else [])


def _secrets(config: Mapping[str, Any], options: Sequence[Option]) -> Body:
    mounted: list[Body] = []
    by_variable: dict[str, str] = {}
    asked = run_words.values(options, "secret")
    for value in asked:
        source, *rest = value.split(",")
        pairs = dict(_pair(part) for part in rest)
        if pairs.get("type") == "env":
            by_variable[pairs.get("target") or source] = source
        else:
            mounted.append({"source": source} | ({"target": pairs["target"]} if pairs.get("target") else {}))
    if not asked:
        mounted = [{"source": one.get("Name")} for one in config.get("Secrets") or ()]
    return {"secrets": mounted, "secret_env": by_variable}


# ------------------------------------------------------------------------------------------------------------ network


def _network(inspected: Mapping[str, Any], host: Mapping[str, Any], options: Sequence[Option]) -> Body:
    mode, _, rest = str(host.get("NetworkMode") or "").partition(":")
    if mode in ("container", "ns"):
        return {"netns": {"nsmode": "path" if mode == "ns" else mode, "value": rest}}
    told = {
        "portmappings": list(_ports(_table(host, "PortBindings"))),
        "dns_server": host.get("Dns"),
        "dns_option": host.get("DnsOptions"),
        "dns_search": host.get("DnsSearch"),
        "hostadd": host.get("ExtraHosts"),
        "netns": {"nsmode": mode} if mode else None,
    }
    if rest and mode in ("slirp4netns", "pasta"):
        told["network_options"] = {mode: rest.split(",")}
    if mode == "bridge":
        told["networks"] = _networks(inspected, options)
    return told


def _networks(inspected: Mapping[str, Any], options: Sequence[Option]) -> Body:
    short = str(inspected.get("Id", ""))[:12]
    addresses = [*run_words.values(options, "ip"), *run_words.values(options, "ip6")]
    hardware = run_words.values(options, "mac-address")
    found: Body = {}
    for name, one in _table(_table(inspected, "NetworkSettings"), "Networks").items():
        aliases = [alias for alias in (one or {}).get("Aliases") or () if alias != short]
        found[name] = {"aliases": aliases} if aliases else {}
    if len(found) == 1 and (addresses or hardware):
        only = next(iter(found.values()))
        only.update({"static_ips": addresses} if addresses else {})
        only.update({"static_mac": hardware[-1]} if hardware else {})
    return found


def _ports(bindings: Mapping[str, Any]) -> Iterator[Body]:
    for inside, outside in bindings.items():
        number, _, protocol = inside.partition("/")
        for one in outside or ():
            mapping = {"container_port": int(number), "protocol": protocol or "tcp"}
            address = one.get("HostIp") or ""
            if address not in ("", "0.0.0.0"):
                mapping["host_ip"] = address
            if one.get("HostPort"):
                mapping["host_port"] = int(one["HostPort"])
            yield mapping


# ------------------------------------------------------------------------------------------------- limits, namespaces


def _limits(host: Mapping[str, Any], options: Sequence[Option]) -> Body:
    memory = {
        "limit": host.get("Memory") or None,
        "reservation": host.get("MemoryReservation") or None,
        "swap": host.get("MemorySwap") or None,
        "swappiness": host.get("MemorySwappiness") or None,
        "disableOOMKiller": host.get("OomKillDisable") or None,
    }
    cpu = {
        "cpus": host.get("CpusetCpus") or None,
        "mems": host.get("CpusetMems") or None,
        "period": host.get("CpuPeriod") or None,
        "quota": host.get("CpuQuota") or None,
        "shares": host.get("CpuShares") or None,
    }
    asked = bool(run_words.values(options, "pids-limit"))
    pids = {"limit": host.get("PidsLimit")} if asked else {}
    resources = {"memory": _told(memory), "cpu": _told(cpu), "pids": pids}
    return {
        "r_limits": [_rlimit(one) for one in host.get("Ulimits") or ()],
        "resource_limits": _told(resources),
        "shm_size": host.get("ShmSize"),
        "oom_score_adj": host.get("OomScoreAdj") or None,
    }


def _told(pairs: Mapping[str, Any]) -> Body:
    return {name: value for name, value in pairs.items() if _tells(value)}


def _rlimit(one: Mapping[str, Any]) -> Body:
    name = str(one.get("Name", "")).removeprefix("RLIMIT_").lower()
    return {"type": name, "soft": _unsigned(one.get("Soft")), "hard": _unsigned(one.get("Hard"))}


def _unsigned(value: object) -> int:
    return UNLIMITED if not isinstance(value, int) or value < 0 else value


def _namespaces(host: Mapping[str, Any], options: Sequence[Option]) -> Body:
    userns = run_words.values(options, "userns")
    return {
        "ipcns": _namespace(host.get("IpcMode"), "shareable"),
        "pidns": _namespace(host.get("PidMode"), "private"),
        "utsns": _namespace(host.get("UTSMode"), "private"),
        "cgroupns": _namespace(host.get("CgroupMode"), ""),
        "userns": _namespace(userns[-1] if userns else None, ""),
        "cgroup_parent": host.get("CgroupParent"),
        "cgroups_mode": _unless(host.get("Cgroups"), "default"),
    }


def _namespace(mode: object, default: str) -> Body | None:
    if not mode or mode == default or not isinstance(mode, str):
        return None
    kind, _, value = mode.partition(":")
    return {"nsmode": kind, "value": value} if value else {"nsmode": kind}


# ----------------------------------------------------------------------------------------------------- rights, policy


def _security(host: Mapping[str, Any], options: Sequence[Option]) -> Body:
    told = [*(host.get("SecurityOpt") or ()), *run_words.values(options, "security-opt")]
    body: Body = {
        "privileged": host.get("Privileged"),
        "read_only_filesystem": host.get("ReadonlyRootfs"),
        "cap_add": host.get("CapAdd"),
        "cap_drop": host.get("CapDrop"),
        "groups": host.get("GroupAdd"),
        "sysctl": dict(_pair(value) for value in run_words.values(options, "sysctl")),
        "selinux_opts": [],
    }
    for option in dict.fromkeys(told):
        _security_option(body, str(option))
    return body


def _security_option(body: Body, option: str) -> None:
    """`label=disable` of the command line is `disable` in the API (host.md 3.3)."""
    name, mark, value = option.partition("=") if "=" in option else option.partition(":")
    if name == "label":
        body["selinux_opts"] = list(dict.fromkeys([*body["selinux_opts"], *value.split(",label=")]))
    elif name == "no-new-privileges":
        body["no_new_privileges"] = not mark or value == "true"
    elif name == "seccomp":
        body["seccomp_profile_path"] = value
    elif name == "apparmor":
        body["apparmor_profile"] = value
    elif name in ("mask", "unmask"):
        body[name] = value.split(":")


def _policy(inspected: Mapping[str, Any], config: Mapping[str, Any], host: Mapping[str, Any]) -> Body:
    restart = _table(host, "RestartPolicy")
    log = _table(host, "LogConfig")
    tag = {"tag": log["Tag"]} if log.get("Tag") else {}
    return {
        "restart_policy": restart.get("Name"),
        "restart_tries": restart.get("MaximumRetryCount") or None,
        "remove": host.get("AutoRemove"),
        "log_configuration": {"driver": log["Type"], "options": tag} if log.get("Type") else None,
        "oci_runtime": inspected.get("OCIRuntime"),
        "sdnotifyMode": config.get("sdNotifyMode"),
    }


def _not_captured(inspected: Mapping[str, Any], options: Sequence[Option]) -> tuple[str, ...]:
    found: list[str] = []
    if inspected.get("Pod"):
        found.append("it is in a pod: its place there is not captured")
    if not options and (_table(inspected, "HostConfig").get("Devices") or ()):
        found.append("it was made through the API, which keeps no CDI name: its device nodes are taken as they are now")
    if not options and inspected.get("MountLabel"):
        found.append("it was made through the API, which keeps no SELinux options: type and level are set anew")
    unknown = sorted({one.name for one in options} - _FROM_INSPECT)
    found += [f"--{one_line(name, 40)} of the command that made it is not carried over" for name in unknown]
    return tuple(found)


# ---------------------------------------------------------------------------------------------------------- to podman


def create_body(body: Body) -> Body:
    """What goes to `POST /containers/create`, with what the command line's own client adds: the command, which alone
    keeps CDI names, and the annotations from which inspect tells the security options."""
    told = {
        "label": ",label=".join(body.get("selinux_opts") or ()),
        "seccomp": body.get("seccomp_profile_path", ""),
        "apparmor": body.get("apparmor_profile", ""),
    }
    annotations = {f"io.podman.annotations.{name}": value for name, value in told.items() if value}
    return {
        **body,
        "annotations": {**(body.get("annotations") or {}), **annotations},
        "containerCreateCommand": run_command(body),
    }


def run_command(body: Body) -> list[str]:
    """The `podman run` that means the same; holds secrets."""
    return ["podman", "run", "--detach", *_run_options(body), body["image"], *body.get("command", ())]


def shown_command(body: Body) -> str:
    """The same to be shown: quoted for a shell, secrets and all values of the environment masked."""
    import shlex

    return shlex.join(mask_command(run_command(body)))


_FLAGS = (
    ("name", "--name"),
    ("hostname", "--hostname"),
    ("user", "--user"),
    ("work_dir", "--workdir"),
    ("cgroup_parent", "--cgroup-parent"),
    ("shm_size", "--shm-size"),
    ("stop_timeout", "--stop-timeout"),
    ("stop_signal", "--stop-signal"),
    ("timezone", "--tz"),
    ("umask", "--umask"),
    ("oom_score_adj", "--oom-score-adj"),
    ("sdnotifyMode", "--sdnotify"),
    ("cgroups_mode", "--cgroups"),
)
_LISTS = (
    ("cap_add", "--cap-add"),
    ("cap_drop", "--cap-drop"),
    ("groups", "--group-add"),
    ("dns_server", "--dns"),
    ("dns_option", "--dns-option"),
    ("dns_search", "--dns-search"),
    ("hostadd", "--add-host"),
)
_TABLES = (("labels", "--label"), ("annotations", "--annotation"), ("sysctl", "--sysctl"), ("env", "--env"))
_SWITCHES = (
    ("remove", "--rm"),
    ("init", "--init"),
    ("privileged", "--privileged"),
    ("read_only_filesystem", "--read-only"),
    ("terminal", "--tty"),
    ("stdin", "--interactive"),
)
_NAMESPACES = (
    ("ipcns", "--ipc"),
    ("pidns", "--pid"),
    ("utsns", "--uts"),
    ("userns", "--userns"),
    ("cgroupns", "--cgroupns"),
)
_RESOURCES = (
    ("memory", "limit", "--memory"),
    ("memory", "reservation", "--memory-reservation"),
    ("memory", "swap", "--memory-swap"),
    ("memory", "swappiness", "--memory-swappiness"),
    ("cpu", "cpus", "--cpuset-cpus"),
    ("cpu", "mems", "--cpuset-mems"),
    ("cpu", "period", "--cpu-period"),
    ("cpu", "quota", "--cpu-quota"),
    ("cpu", "shares", "--cpu-shares"),
    ("pids", "limit", "--pids-limit"),
)


def _run_options(body: Body) -> Iterator[str]:
    for key, flag in _FLAGS:
        if _tells(body.get(key)):
            yield from (flag, str(body[key]))
    yield from (flag for key, flag in _SWITCHES if body.get(key))
    for key, flag in _LISTS:
        for value in body.get(key) or ():
            yield from (flag, str(value))
    for key, flag in _TABLES:
        for name, value in (body.get(key) or {}).items():
            yield from (flag, f"{name}={value}")
    for one in body.get("devices") or ():
        yield from ("--device", one["path"])
    yield from _run_network(body)
    yield from _run_mounts(body)
    for one in body.get("r_limits") or ():
        yield from ("--ulimit", f"{one['type']}={_limit_words(one)}")
    for group, key, flag in _RESOURCES:
        value = body.get("resource_limits", {}).get(group, {}).get(key)
        if value is not None:
            yield from (flag, str(value))
    for key, flag in _NAMESPACES:
        if body.get(key):
            yield from (flag, ":".join(filter(None, (body[key]["nsmode"], body[key].get("value")))))
    yield from _run_security(body)
    yield from _run_policy(body)
    if body.get("entrypoint"):
        import json

        yield from ("--entrypoint", json.dumps(body["entrypoint"]))


def _limit_words(one: Mapping[str, int]) -> str:
    soft, hard = ("-1" if one[key] == UNLIMITED else str(one[key]) for key in ("soft", "hard"))
    return soft if soft == hard else f"{soft}:{hard}"


def _run_network(body: Body) -> Iterator[str]:
    mode = body.get("netns") or {}
    networks = body.get("networks") or {}
    more = (body.get("network_options") or {}).get(mode.get("nsmode", ""), [])
    if networks:
        for name, one in networks.items():
            yield from ("--network", name)
            for alias in one.get("aliases", ()):
                yield from ("--network-alias", alias)
            for address in one.get("static_ips", ()):
                yield from ("--ip6" if ":" in address else "--ip", address)
            if one.get("static_mac"):
                yield from ("--mac-address", one["static_mac"])
    elif mode and mode["nsmode"] != "bridge":
        yield from ("--network", ":".join(filter(None, (mode["nsmode"], mode.get("value"), ",".join(more)))))
    for one in body.get("portmappings") or ():
        yield from ("--publish", port_words(one))


def port_words(one: Mapping[str, Any]) -> str:
    """`127.0.0.1:9000:8000`, as `--publish` has it."""
    address = str(one.get("host_ip") or "")
    outside = [f"[{address}]" if ":" in address else address] if address else []
    outside += [str(one["host_port"])] if one.get("host_port") else []
    protocol = "" if one.get("protocol", "tcp") == "tcp" else f"/{one['protocol']}"
    return ":".join([*outside, f"{one['container_port']}{protocol}"])


def _run_mounts(body: Body) -> Iterator[str]:
    for one in body.get("mounts") or ():
        flags = [flag for flag in one.get("options") or () if flag != "rbind"]
        if one["type"] == "tmpfs":
            yield from ("--tmpfs", ":".join(filter(None, (one["destination"], ",".join(flags)))))
        else:
            yield from ("--volume", ":".join(filter(None, (one["source"], one["destination"], ",".join(flags)))))
    for one in body.get("volumes") or ():
        yield from ("--volume", ":".join(filter(None, (one["Name"], one["Dest"], ",".join(one["Options"])))))
    for one in body.get("secrets") or ():
        yield from ("--secret", one["source"] + (f",target={one['target']}" if one.get("target") else ""))
    for target, source in (body.get("secret_env") or {}).items():
        yield from ("--secret", f"{source},type=env,target={target}")


def _run_security(body: Body) -> Iterator[str]:
    for value in body.get("selinux_opts") or ():
        yield from ("--security-opt", f"label={value}")
    if body.get("no_new_privileges"):
        yield from ("--security-opt", "no-new-privileges")
    for key, name in (("seccomp_profile_path", "seccomp"), ("apparmor_profile", "apparmor")):
        if body.get(key):
            yield from ("--security-opt", f"{name}={body[key]}")
    for name in ("mask", "unmask"):
        if body.get(name):
            yield from ("--security-opt", f"{name}={':'.join(body[name])}")


def _run_policy(body: Body) -> Iterator[str]:
    if body.get("restart_policy"):
        tries = f":{body['restart_tries']}" if body.get("restart_tries") else ""
        yield from ("--restart", f"{body['restart_policy']}{tries}")
    log = body.get("log_configuration") or {}
    if log.get("driver"):
        yield from ("--log-driver", log["driver"])
    health = body.get("healthconfig") or {}
    if not health:
        return
    test = health.get("Test") or []
    if test[:1] == ["NONE"]:
        yield "--no-healthcheck"
        return
    import json

    yield from ("--health-cmd", test[1] if test[:1] == ["CMD-SHELL"] else json.dumps(test[1:]))
    for key, flag in (("Interval", "interval"), ("Timeout", "timeout"), ("StartPeriod", "start-period")):
        if health.get(key):
            yield from (f"--health-{flag}", f"{health[key] / NANOSECONDS:g}s")
    if health.get("Retries"):
        yield from ("--health-retries", str(health["Retries"]))
    actions = {number: name for name, number in FAILURE_ACTIONS.items()}
    if body.get("health_check_on_failure_action"):
        yield from ("--health-on-failure", actions[body["health_check_on_failure_action"]])
