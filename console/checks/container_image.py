"""Does the image fit driver and card, is it the one that was meant, and could it be pulled?"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from console.checks.box import (
    BUS,
    DRIVER,
    NO_DEVICE,
    NO_PODMAN,
    NVML,
    driver,
    gpus,
    inspect,
    no_container,
    nvml,
    version,
)
from console.checks.check import Answer, check, fail, note, ok, skip, unknown, warn
from console.checks.container import NEEDS, environment, name_of, podman, recreate, seen, strings, unit_of
from console.checks.errors import diagnose
from console.checks.image_floors import CAPABILITY, FLOORS, Floor, Verdict, newest_for, verdict
from console.clients.libpod import wall_time
from console.core.facts import Evidence, Facts, Unknowable
from console.core.finding import Fix
from console.core.model import GpuBox
from console.core.text import one_line

IMAGE = "@podman.image"
JOURNAL = "$ journalctl --no-pager --output=cat -n 200 -u {unit}"
_RELEASE = re.compile(r"(?:^|:)(\d\d\.\d\d)(?:\D|$)")
_CONSUMER = re.compile(r"GeForce|TITAN|GTX", re.IGNORECASE)
_REQUIRE = re.compile(r"(?:^|[\s,])cuda>=(\d{1,2}\.\d{1,2})")


# -------------------------------------------------------------------------------------------------- driver and the card


@check(
    "E04",
    "driver and card are new enough for the image",
    group="container",
    slug="image-floor",
    needs=(*NEEDS, IMAGE, NVML, *DRIVER, BUS),
    why="Each image is built for a CUDA version with a lowest driver and a lowest compute capability. Podman's CDI "
    "never looks at what the image wants, so the container starts and CUDA fails inside it.",
    source="Triton release notes 22.01 to 26.10; CUDA compatibility, minor-version table",
)
def image_floor(facts: Facts) -> Answer:
    """The image's release and CUDA against the driver and the card."""
    if why := no_container(facts):
        return skip(why)
    if not gpus(facts):
        return skip(NO_DEVICE)
    found = inspect(facts)
    image = None if facts.why_not(IMAGE) else facts.answer(IMAGE)
    told = environment(found, image)
    cards = _cards(facts)
    loaded = _driver(facts, cards)
    if loaded is None:
        return skip("no NVIDIA driver is loaded")
    release = _release(found, told)
    floor = FLOORS.get(release)
    cuda = version(told.get("CUDA_VERSION", ""))[:2] or (floor.cuda if floor is not None else _required(told))
    shown = ("NVIDIA_TRITON_SERVER_VERSION", "CUDA_VERSION", "NVIDIA_REQUIRE_CUDA")
    where = f"podman inspect {name_of(found)}"
    evidence = (
        *(Evidence(where, f"{key}={one_line(told[key], 120)}") for key in shown if key in told),
        loaded[1],
    )
    data = {"driver": loaded[0], "release": release, "cuda": _dotted(cuda)}
    small = _too_old(cards, floor)
    if small:
        fix = _older(facts, found, version(loaded[0]), cards)
        return fail(
            f"{small}, {release} wants {_dotted(floor.compute if floor else ())} or later", evidence, fix, **data
        )
    if not cuda:
        return unknown(f"release {release or 'of the image'} is not in the table, and the image names no CUDA version")
    supported = version(cards.cuda or "") if cards is not None else ()
    how = verdict(version(loaded[0]), floor, cuda, supported or None, _is_consumer(cards))
    return _said(facts, found, how, floor, evidence, data)


def _said(
    facts: Facts,
    found: Mapping[str, Any],
    how: Verdict,
    floor: Floor | None,
    evidence: tuple[Evidence, ...],
    data: dict[str, str],
) -> Answer:
    loaded, cuda = data["driver"], data["cuda"]
    image = f"{data['release']} (CUDA {cuda})" if data["release"] else f"CUDA {cuda}"
    wants = f"{floor.driver}" if floor is not None and floor.driver is not None else ""
    if how == "fits":
        return ok(f"driver {loaded} carries {image}", evidence, **data)
    if how == "compat":
        text = f"{loaded} carries {image} through the image's compatibility libraries" + (
            f" ({wants} without)" if wants else ""
        )
        return note(text, evidence, **data)
    if how == "minor":
        return note(f"{loaded} carries {image} by CUDA's minor-version compatibility", evidence, **data)
    if how == "unknown":
        return unknown(f"release {data['release'] or '?'} with CUDA {cuda} is not in the table", evidence=evidence)
    cards = _cards(facts)
    fix = _older(facts, found, version(loaded), cards)
    if how == "between":
        text = f"{image} wants {wants or 'a newer driver'}; {loaded} is of no branch that its notes allow"
        return warn(text, evidence, fix, **data)
    text = f"{image} wants {f'driver {wants} or later' if wants else 'a newer driver'}, {loaded} is loaded"
    if _uses_gpu(cards, found):
        return warn(f"{text}; yet it uses the card now", evidence, fix, **data)
    return fail(text, evidence, fix, **data)


def _cards(facts: Facts) -> GpuBox | None:
    try:
        return nvml(facts)
    except Unknowable:
        return None


def _driver(facts: Facts, cards: GpuBox | None) -> tuple[str, Evidence] | None:
    if cards is not None and cards.driver and version(cards.driver):
        return cards.driver, Evidence("NVML", f"driver {cards.driver}, CUDA {cards.cuda or '?'}")
    found = driver(facts)
    return found if found is not None and version(found[0]) else None


def _release(found: Mapping[str, Any], told: Mapping[str, str]) -> str:
    for text in (told.get("NVIDIA_TRITON_SERVER_VERSION", ""), str(found.get("ImageName") or "").rpartition("/")[2]):
        match = _RELEASE.search(text)
        if match is not None:
            return match[1]
    return ""


def _required(told: Mapping[str, str]) -> tuple[int, ...]:
    match = _REQUIRE.search(told.get("NVIDIA_REQUIRE_CUDA", ""))
    return version(match[1]) if match is not None else ()


def _dotted(numbers: tuple[int, ...] | None) -> str:
    return ".".join(str(number) for number in numbers or ())


def _too_old(cards: GpuBox | None, floor: Floor | None) -> str:
    """The card that the image leaves out; "" = none that is known of."""
    if cards is None or floor is None or floor.compute is None:
        return ""
    for card in cards.gpus:
        most = CAPABILITY.get(card.architecture or "")
        if most is not None and most < floor.compute:
            name = card.name or f"GPU {card.index}"
            return f"{name} ({card.architecture}) has compute capability {_dotted(most)} at most"
    return ""


def _is_consumer(cards: GpuBox | None) -> bool:
    """The compatibility libraries are for data-centre cards."""
    return cards is not None and any(_CONSUMER.search(card.name or "") for card in cards.gpus)


def _uses_gpu(cards: GpuBox | None, found: Mapping[str, Any]) -> bool:
    own = str(found.get("Id") or "")
    processes = [one for card in (cards.gpus if cards is not None else ()) for one in card.processes or ()]
    return bool(own) and any(one.container_id == own for one in processes)


def _older(facts: Facts, found: Mapping[str, Any], loaded: tuple[int, ...], cards: GpuBox | None) -> Fix:
    told = (CAPABILITY.get(card.architecture or "") for card in (cards.gpus if cards is not None else ()))
    release = newest_for(loaded, min((one for one in told if one is not None), default=None))
    if not release:
        return Fix("S", ("nvidia-smi",), effect="no image of 2022 or later is for this driver: update it")
    image = f"nvcr.io/nvidia/tritonserver:{release}-py3"
    change = recreate(facts, {"image": image}, "the image")
    where = "" if unit_of(facts) is None else f"; put {image} in the place of the unit's image"
    return Fix(
        "S",
        (podman(facts, f"pull {image}"), *change.commands),
        effect=f"{release} is the newest whose notes this driver satisfies{where}; a gap in service; TensorRT engines "
        "are built anew in it; or update the driver (A12), which needs a reboot",
        again=("E03", "E05"),
    )


# ------------------------------------------------------------------------------------------------------------- its name


@check(
    "E19",
    "the image is pinned",
    group="container",
    slug="image-pinned",
    needs=(*NEEDS, IMAGE),
    why="latest means another image after each pull: other CUDA, other TensorRT, engines that no longer load. A tag of "
    "a release, or a digest, is the same image next year.",
    source="host.md E19; podman-run(1)",
)
def image_pinned(facts: Facts) -> Answer:
    """The name that the container was made from."""
    if why := no_container(facts):
        return skip(why)
    found = inspect(facts)
    name = str(found.get("ImageName") or "")
    image = None if facts.why_not(IMAGE) else facts.answer(IMAGE)
    evidence = seen(found, "ImageName", "ImageDigest")
    built = _built(facts, image)
    if not name:
        return unknown("the name of its image is not told", podman(facts, "ps --all"))
    if "@sha256:" in name or re.fullmatch(r"(?:sha256:)?[0-9a-f]{12,64}", name):
        return ok(f"by digest{built}", evidence, image=name)
    tag = name.rpartition("/")[2].partition(":")[2]
    if tag and tag != "latest" and not tag.startswith("latest-"):
        return ok(f"{one_line(tag, 60)}{built}", evidence, image=name)
    digests = strings(image.get("RepoDigests")) if isinstance(image, dict) else ()
    fix = (
        recreate(facts, {"image": digests[0]}, f"the image {digests[0]}")
        if digests and unit_of(facts) is None
        else None
    )
    return warn(f"{'tag latest' if tag else 'no tag'}: the next pull changes it{built}", evidence, fix, image=name)


def _built(facts: Facts, image: Any) -> str:
    created = wall_time(str(image.get("Created") or "")) if isinstance(image, dict) else None
    if created is None:
        return ""
    months = int((facts.wall - created) / (30.44 * 86400)) if facts.wall > created else 0
    age = f", {months} months ago" if months else ""
    return f", built {datetime.fromtimestamp(created, UTC):%Y-%m-%d}{age}"


# --------------------------------------------------------------------------------------------------------------- pulls


@check(
    "E22",
    "its image could be pulled",
    group="container",
    slug="image-pull",
    needs=(*NEEDS, JOURNAL),
    why="A unit that cannot pull its image never makes a container. The registry wants a login, or the service has no "
    "proxy in its environment: no network request is made to find out.",
    source="host.md E22, 6.2",
)
def image_pull(facts: Facts) -> Answer:
    """A failed pull in the journal of the unit that should make the container."""
    why = no_container(facts)
    owner = unit_of(facts)
    if why != "no Triton container" or owner is None:
        return skip(why if why == NO_PODMAN else "no pull failed")
    words = f"journalctl{' --user' if owner.user else ''} -u {shlex.quote(owner.name)} -n 200"
    names = facts.every("unit")
    if not names or owner.user:
        return unknown("the journal of its unit was not read", words)
    found = facts.command(JOURNAL.removeprefix("$ ").replace("{unit}", names[0]))
    if not found.out.strip() or found.code != 0:
        return unknown("the journal of its unit could not be read", f"sudo {words}")
    failed = [one for one in diagnose(found.out) if one.rule in ("registry", "image-absent")]
    if not failed:
        return ok(f"no failed pull in the journal of {owner.name}", (Evidence(f"$ {words}", "no such line"),))
    first = failed[0]
    evidence = tuple(Evidence(f"$ {words}, {line.where}", line.text) for line in first.evidence)
    login = podman(facts, "login --username '$oauthtoken' nvcr.io")
    fix = Fix(
        "S",
        (login, f"{owner.systemctl} show {shlex.quote(owner.name)} -p Environment"),
        effect="a login, or HTTPS_PROXY in the unit's environment, then start it again; a tag that is not there needs "
        "another name",
        again=("E01", "I05"),
    )
    return fail(first.title, evidence, fix, cause=first.rule)
