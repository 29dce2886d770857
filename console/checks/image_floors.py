"""What each release of NVIDIA's Triton image wants of driver and card.

Rows are of Triton's own release notes ("Driver Requirements", "GPU Requirements",
docs.nvidia.com/deeplearning/triton-inference-server/release-notes/rel-YY-MM.html); a release whose notes were not seen
is not here. What CUDA itself wants is of docs.nvidia.com/deploy/cuda-compatibility, minor-version compatibility.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

Version = tuple[int, ...]
Verdict = Literal["fits", "compat", "minor", "between", "old", "unknown"]
"""fits: as the notes want it. compat: through the compatibility libraries in the image, which data-centre cards use.
minor: by CUDA's compatibility within a major version. between: a branch that neither names. old: too old."""


class Floor(Struct, frozen=True):
    """Of one release."""

    cuda: Version
    driver: int | None
    """Branch; None where the notes name none (26.06 and later point to CUDA's own table)."""
    branches: tuple[Version, ...] = ()
    """Older branches that the notes allow on data-centre cards, each from this version on."""
    compute: Version | None = None
    """Lowest compute capability; None where that part of the notes was not seen."""


_OLDEST: tuple[Version, ...] = ((418, 40), (440, 33), (450, 51), (460, 27), (470, 57))
_FROM_450: tuple[Version, ...] = ((450, 51), (470, 57), (510, 47))
_FROM_470: tuple[Version, ...] = ((470, 57), (525, 85), (535, 86), (545, 23))

_ROWS: tuple[tuple[tuple[str, ...], Floor], ...] = (
    (("22.01", "22.02", "22.03", "22.04"), Floor((11, 6), 510, _OLDEST, (6, 0))),
    (("22.05", "22.06", "22.08"), Floor((11, 7), 515, _FROM_450, (6, 0))),
    (("22.10", "22.11", "22.12"), Floor((11, 8), 520, (*_FROM_450, (515, 65)), (6, 0))),
    (
        ("23.03", "23.04", "23.05", "23.06", "23.07"),
        Floor((12, 1), 530, (*_FROM_450, (515, 65), (525, 85), (530, 30)), (6, 0)),
    ),
    (("23.08", "23.09", "23.10"), Floor((12, 2), 535, (*_FROM_450, (525, 85), (535, 86)), (6, 0))),
    (("23.12",), Floor((12, 3), 545, (*_FROM_450, (525, 85), (535, 86), (545, 23)), (6, 0))),
    (("24.01", "24.02"), Floor((12, 3), 545, _FROM_470, (6, 0))),
    (("24.03", "24.04", "24.05"), Floor((12, 4), 545, _FROM_470, (6, 0))),
    (("24.07",), Floor((12, 5), 555, _FROM_470, (6, 0))),
    (("24.10",), Floor((12, 6), 560, _FROM_470, (6, 0))),
    (("24.12",), Floor((12, 6), 560, _FROM_470)),
    (("25.02", "25.03"), Floor((12, 8), 560, _FROM_470, (7, 5))),
    (("25.04", "25.06"), Floor((12, 9), 575, _FROM_470, (7, 5))),
    (("25.08", "25.10"), Floor((13, 0), 575, _FROM_470, (7, 5))),
    (("26.02",), Floor((13, 1), 575, _FROM_470, (7, 5))),
    (("26.04",), Floor((13, 2), 575, _FROM_470, (7, 5))),
    (("26.06",), Floor((13, 3), None, (), (7, 5))),
    (("26.09", "26.10"), Floor((13, 4), None, (), (7, 5))),
)
FLOORS: Mapping[str, Floor] = {release: floor for releases, floor in _ROWS for release in releases}
"""Release -> what it wants."""

CUDA_MINIMUM: Mapping[int, int] = {11: 450, 12: 525, 13: 580}
"""CUDA's major version -> the lowest driver branch on which all of its minor versions run."""

CAPABILITY: Mapping[str, Version] = {"Kepler": (3, 7), "Maxwell": (5, 3), "Pascal": (6, 2), "Volta": (7, 2)}
"""Architecture (as NVML names it) -> the highest compute capability that cards of it have, of those that some release
leaves out."""


def verdict(
    driver: Version, floor: Floor | None, cuda: Version | None, supported: Version | None, is_consumer: bool
) -> Verdict:
    """Whether a driver carries an image. `cuda`: the image's; `supported`: the newest that the driver has by itself."""
    cuda = cuda or (floor.cuda if floor is not None else None)
    if cuda is None:
        return "unknown"
    if supported is not None and supported[:2] >= cuda[:2]:
        return "fits"
    minimum = CUDA_MINIMUM.get(cuda[0])
    wanted = floor.driver if floor is not None else None
    if wanted is not None and driver[0] >= max(wanted, minimum or 0):
        return "fits"
    if floor is not None and not is_consumer and _named(driver, floor):
        return "compat"
    if minimum is None:
        return "unknown"
    if driver[0] >= minimum:
        return "minor"
    if wanted is not None and driver[0] >= wanted:
        return "between"
    lowest = min(floor.branches, default=None) if floor is not None else None
    return "between" if lowest is not None and driver >= lowest and not is_consumer else "old"


def _named(driver: Version, floor: Floor) -> bool:
    if floor.driver is not None and driver[0] >= floor.driver:
        return True
    return any(driver[0] == branch[0] and driver >= branch for branch in floor.branches)


def newest_for(driver: Version, compute_below: Version | None) -> str:
    """The newest release whose notes this driver (and a card of at most this capability) satisfies; "" = none."""
    for release in sorted(FLOORS, reverse=True):
        floor = FLOORS[release]
        card = compute_below is None or floor.compute is None or compute_below >= floor.compute
        if card and floor.driver is not None and verdict(driver, floor, None, None, is_consumer=True) == "fits":
            return release
    return ""
