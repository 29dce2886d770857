"""The way to the box: speed of its cards, firewalld, proxies, RDMA (I03-I06)."""

from __future__ import annotations

import re

from console.checks import box, container
from console.checks.box import BUS
from console.checks.check import Answer, check, note, ok, skip, warn
from console.checks.machine import active, texts, weighed
from console.checks.network_ports import METADATA, PORTS, listeners, published
from console.core.facts import Evidence, Facts, Unknowable
from console.core.finding import Deed, Fix
from console.core.text import one_line, whole_number

_NET = "/sys/class/net/*"
_NET_NEEDS = (f"{_NET}/speed", f"{_NET}/operstate", f"stat {_NET}/device", f"stat {_NET}/wireless")
FAST = 10_000
"""Mbit/s."""


@check(
    "I03",
    "the network card is fast enough",
    group="network",
    slug="nic-speed",
    needs=(*_NET_NEEDS, BUS),
    why=(
        "Images and tensors of many requests fill a slow link before they fill the GPU; models come through it too. "
        "10 Gbit/s are a rule of thumb; a cable or port that came up slower than the card can is the usual cause."
    ),
    source="seed reports S1 5.2, S2 4.1 (rule of thumb); Linux ABI sysfs-class-net",
)
def speed(facts: Facts) -> Answer:
    found: dict[str, int] = {}
    evidence: list[Evidence] = []
    for path in facts.glob(f"{_NET}/speed"):
        folder, name = path.rpartition("/")[0], path.split("/")[4]
        real = facts.glob(f"{folder}/device") and not facts.glob(f"{folder}/wireless")
        # A link that is down has no speed: reading the file is then an error of the kernel's.
        told, _ = texts(facts, (path, f"{folder}/operstate") if facts.glob(f"{folder}/operstate") else (path,))
        value = whole_number(told.get(path, ""))
        if real and value is not None and value > 0 and told.get(f"{folder}/operstate", "up") in ("up", "unknown"):
            found[name] = value
            evidence.append(Evidence(path, str(value)))
    if not found:
        return skip("no network card here tells a speed")
    name, most = max(found.items(), key=lambda one: one[1])
    text = f"{one_line(name, 20)} has {_speed(most)}"
    if most >= FAST:
        return ok(text, evidence)
    fix = Fix("S", (f"ethtool {name}",), "it tells what the card can and what the other end offers")
    return weighed(facts, warn(f"{text}, the fastest here; {_speed(FAST)} are usual", evidence, fix, mbit=str(most)))


def _speed(mbit: int) -> str:
    return f"{mbit / 1000:g} Gbit/s" if mbit >= 1000 else f"{mbit} Mbit/s"


# ------------------------------------------------------------------------------------------------------------ firewalld

_RULES = "$ iptables-save -t nat"
_TABLE = "$ nft list table inet netavark"
_LOOPBACK = ("127.", "::1", "::ffff:127.")


@check(
    "I04",
    "firewalld lets the ports through",
    group="network",
    slug="firewalld",
    needs=(PORTS, _RULES, _TABLE, METADATA, *container.NEEDS),
    why=(
        "A rootful container's ports are rules of the firewall. A reload of firewalld drops them: the container runs, "
        "the port listens, and nobody gets an answer."
    ),
    source="podman troubleshooting #30; containers/netavark#723, podman#8048",
)
def firewall(facts: Facts) -> Answer:
    if none := box.no_container(facts):
        return skip(none)
    found = box.inspect(facts)
    if not box.runs(found):
        return skip("the container does not run")
    if not active(facts, "firewalld"):
        return skip("firewalld does not run")
    ports = published(found)
    if not ports:
        return skip("the container publishes no port (E06)")
    host = box.at(found, "HostConfig", "NetworkMode") == "host"
    if host or box.rootless(facts):
        return _zones(facts, ports, host)
    if not facts.why_not(METADATA) and isinstance(facts.answer(METADATA), dict):
        return ok("firewalld runs, and Triton answers through its published port")
    rules = _rules(facts, ports)
    if rules is None:
        raise Unknowable("whether the ports' rules are there only root may see", f"sudo {_RULES[2:]} | grep {ports[0]}")
    there, evidence = rules
    missing = [port for port in ports if port not in there]
    if not missing:
        return ok(f"firewalld runs, {', '.join(map(str, ports))} have their rules", evidence)
    fix = Fix(
        "B",
        ("sudo podman network reload --all",),
        "the rules of all running containers are written anew; no container is touched, nothing to undo",
        deeds=(Deed("run", ("podman", "network", "reload", "--all")),),
        again=("I01", "E07"),
    )
    text = f"{', '.join(map(str, missing))}: no rule leads to the container, as after a reload of firewalld"
    return warn(text, evidence or [Evidence(_RULES, "no rule of these ports")], fix, port=str(missing[0]))


def _zones(facts: Facts, ports: tuple[int, ...], host: bool) -> Answer:
    """These ports are sockets of the host: a zone of firewalld decides who reaches them."""
    open_ones = [one for one in listeners(facts) if one.port in ports and not one.address.startswith(_LOOPBACK)]
    if not open_ones:
        return ok("firewalld runs; the ports are for this host alone")
    kind = "the host's network" if host else "a rootless container's ports"
    shown = ", ".join(str(port) for port in sorted({one.port for one in open_ones}))
    evidence = [Evidence("$ ss -ltn", f"{one.address}:{one.port}") for one in open_ones]
    return note(f"firewalld runs: {kind} ({shown}) are reached from outside only where a zone opens them", evidence)


def _rules(facts: Facts, ports: tuple[int, ...]) -> tuple[set[int], list[Evidence]] | None:
    """(those of the ports that a rule leads on, the rules); None where neither iptables nor nft told."""
    there: set[int] = set()
    evidence: list[Evidence] = []
    told = False
    for need in (_RULES, _TABLE):
        try:
            answer = facts.command(need.removeprefix("$ "))
        except Unknowable:
            continue
        if answer.code != 0:
            continue
        told = told or need == _RULES
        for line in answer.out.splitlines():
            match = re.search(r"\bdport (\d{1,5})(?:[:-](\d{1,5}))?\b", line)
            if match is None or "dnat" not in line.lower():
                continue
            first, last = int(match.group(1)), int(match.group(2) or match.group(1))
            hit = {port for port in ports if first <= port <= last}
            there |= hit
            evidence += [Evidence(need, line.strip())] if hit and len(evidence) < 6 else []
    return (there, evidence) if told or there else None


# --------------------------------------------------------------------------------------------------------------- proxy

_ENVIRONMENT = ("/etc/environment", "/etc/profile.d/*.sh", "/etc/environment.d/*.conf")
_OF_SERVICE = (
    "/etc/systemd/system/podman.service.d/*.conf",
    "/etc/systemd/system.conf",
    "/etc/systemd/system.conf.d/*.conf",
    "/etc/containers/containers.conf",
    "/etc/containers/containers.conf.d/*.conf",
)
_PROXY = re.compile(r"\b((?:https?|all|no)_proxy)\b[\"']?\s*=(?!\s*(?:true|false)\b)", re.IGNORECASE)
"""`http_proxy = true` of containers.conf only says that containers are given the variables."""


@check(
    "I05",
    "proxies for pulls are known",
    group="network",
    slug="proxy",
    needs=(*_ENVIRONMENT, *_OF_SERVICE, box.PING),
    why=(
        "A pull goes out as the process that pulls: a shell has the user's proxy, Podman's API service has only what "
        "its unit or containers.conf gives. So a pull may work by hand and not from a tool, or the other way round."
    ),
    source="podman-pull(1), containers.conf(5) engine.env",
)
def proxy(facts: Facts) -> Answer:
    shells, blind = _proxies(facts, _ENVIRONMENT)
    services, more = _proxies(facts, _OF_SERVICE)
    if not shells and not services:
        if missing := blind or more:
            raise missing
        return ok("none is set: pulls go out directly")
    names = ", ".join(sorted({line.text.partition("=")[0] for line in (*shells, *services)}))
    if services:
        where = "for Podman's service" + (" and for shells" if shells else "")
    else:
        try:
            rootful = not box.rootless(facts)
        except Unknowable:
            rootful = False
        where = "for shells only" + (": a pull through Podman's service does not use it" if rootful else "")
    return note(f"{names} set {where}", (*shells, *services))


def _proxies(facts: Facts, patterns: tuple[str, ...]) -> tuple[list[Evidence], Unknowable | None]:
    """Lines that set one, without the value: it may hold a password."""
    found: list[Evidence] = []
    blind: Unknowable | None = None
    for pattern in patterns:
        try:
            for path in facts.glob(pattern) if "*" in pattern else (pattern,):
                lines = facts.lines(path, r"(?i)^(?!\s*[#;]).{0,200}_proxy\b")
                found += [
                    Evidence(line.where, f"{name}=… (value not shown)")
                    for line in lines
                    for name in _PROXY.findall(line.text[:4000])
                ]
        except Unknowable as why:
            blind = blind or why
    return found, blind


# ---------------------------------------------------------------------------------------------------------------- RDMA

_RDMA = "/sys/class/infiniband"


@check(
    "I06",
    "RDMA is known",
    group="network",
    slug="rdma",
    needs=(_RDMA, f"{_RDMA}/*/ports/*/state"),
    why=(
        "Servers on several boxes that exchange tensors are faster with RDMA. One box that answers over HTTP and gRPC "
        "does not use it."
    ),
    source="seed report S2 4.1; Linux ABI sysfs-class-infiniband",
)
def rdma(facts: Facts) -> Answer:
    names = facts.names(_RDMA)
    if not names:
        return skip("no RDMA device; one box alone needs none")
    found, _ = texts(facts, facts.glob(f"{_RDMA}/*/ports/*/state"))
    evidence = [Evidence(path, text) for path, text in found.items()]
    live = sorted({path.split("/")[4] for path, text in found.items() if "ACTIVE" in text})
    state = f", {', '.join(live)} active" if live else ", no port is active"
    return note(f"{', '.join(sorted(names)[:6])}{state}", evidence)
