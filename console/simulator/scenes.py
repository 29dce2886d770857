"""The scenes as data: what the box serves, and what each scene changes in a healthy one.

A scene is told by what goes wrong, and its figures are chosen so that the verdict named beside it (design: screens.md
section 3) holds over the whole swing of the traffic. `healthy` must leave nothing but notes.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from console.planning.batcher import Scheduling, ServiceTime

TENSORRT = "10.5.0.18"
"""TensorRT of the image 24.10-py3, the one with Triton 2.51.0, whose recorded answers are followed."""


LOAD_S = 0.4
READ_MIB_PER_S = 1200


@dataclass(frozen=True, slots=True)
class Tensor:
    """An input or output; dims without the batch dimension, data type as the model config names it."""

    name: str
    data_type: str
    dims: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Release:
    """What is other in one version of a model than in the rest of them."""

    version: int
    slower: float = 1.0
    """Factor on the time of its runs."""
    shift: float = 0.0
    """Relative difference of its answers: a version that was trained on something else."""
    failed: str | None = None
    """Triton's reason when it cannot be loaded."""
    tensorrt: str = TENSORRT
    """What built its engine."""


@dataclass(frozen=True, slots=True)
class Model:
    """A model with a scheduler of its own. `vram_mib` is what a load takes, `plan_mib` the size of its file."""

    name: str
    version: int
    scheduling: Scheduling
    service: ServiceTime
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    requests_per_second: float
    vram_mib: int
    plan_mib: int
    other_versions: tuple[int, ...] = ()
    """Folders on disk beside the served one."""
    pinned: bool = False
    """Its file names the served version, so that a newer folder waits for an operator."""
    releases: tuple[Release, ...] = ()
    engine_batch: int = 64
    """The largest batch that its file was built for."""

    @property
    def load_s(self) -> float:
        """Seconds that a load of one version takes: the engine's start, and the time in which its file is read."""
        return LOAD_S + self.plan_mib / READ_MIB_PER_S

    def release(self, version: int) -> Release:
        """What is other in this version."""
        return next((one for one in self.releases if one.version == version), Release(version))


@dataclass(frozen=True, slots=True)
class Ensemble:
    """Steps run one after the other, each output feeding the next input. Its requests come from outside."""

    name: str
    version: int
    steps: tuple[str, ...]
    max_batch_size: int
    requests_per_second: float


@dataclass(frozen=True, slots=True)
class CardState:
    """What a scene sets on the card. Heat is in °C above what the load alone makes."""

    extra_heat: float = 0.0
    slowed_sm_mhz: int | None = None
    """SM clock while the card slows itself down for heat; None when it does not."""
    slowed_share: float = 0.0
    """Share of each second spent slowed, as the driver's counter says."""


@dataclass(frozen=True, slots=True)
class NewVersion:
    """A version folder that somebody copies into the repository while the box runs."""

    after_seconds: float
    model: str
    version: int


@dataclass(frozen=True, slots=True)
class Exit:
    """The container could not be started: it exited with this code, leaving this last line in its log."""

    code: int
    last_line: str
    starts: int


@dataclass(frozen=True, slots=True)
class Scene:
    """One situation of the box. `verdict` is the id in the verdict table that it is made to show."""

    name: str
    summary: str
    verdict: str
    models: tuple[Model, ...]
    ensembles: tuple[Ensemble, ...] = ()
    card: CardState = field(default_factory=CardState)
    new_versions: tuple[NewVersion, ...] = ()
    nvml_error: int = 0
    """What every NVML initialisation answers; 0 is success (18: library and kernel module do not match)."""
    exit: Exit | None = None


def _other_tensorrt(built_with: str) -> str:
    return (
        "Internal: unable to create TensorRT engine: IRuntime::deserializeCudaEngine: Error Code 6: API Usage Error "
        "(The engine plan file is not compatible with this version of TensorRT, "
        f"expecting library version {TENSORRT} got {built_with}, please rebuild.)"
    )


def _built_with(version: int, tensorrt: str) -> Release:
    return Release(version, failed=_other_tensorrt(tensorrt), tensorrt=tensorrt)


RANKING = Model(
    name="ranking",
    version=2,
    scheduling=Scheduling(max_batch_size=16, instances=2),
    service=ServiceTime(1.2, 0.1, jitter=0.03),
    inputs=(Tensor("features", "TYPE_FP32", (64,)),),
    outputs=(Tensor("score", "TYPE_FP32", (1,)),),
    requests_per_second=1470,
    vram_mib=3174,
    plan_mib=418,
    other_versions=(1, 3),
    pinned=True,
    releases=(Release(3, slower=0.9),),
)
RECALL = Model(
    name="recall",
    version=7,
    scheduling=Scheduling(max_batch_size=8),
    service=ServiceTime(2.0, 0.12, jitter=0.03),
    inputs=(Tensor("user_id", "TYPE_INT64", (1,)),),
    outputs=(Tensor("features", "TYPE_FP32", (64,)),),
    requests_per_second=0,
    vram_mib=1741,
    plan_mib=1638,
    other_versions=(8,),
    pinned=True,
    releases=(_built_with(8, "10.7.0.23"),),
)
RERANK = Model(
    name="rerank",
    version=3,
    scheduling=Scheduling(max_batch_size=8),
    service=ServiceTime(5.5, 0.6, jitter=0.03),
    inputs=(Tensor("tokens", "TYPE_INT32", (128,)),),
    outputs=(Tensor("score", "TYPE_FP32", (1,)),),
    requests_per_second=20,
    vram_mib=512,
    plan_mib=220,
    other_versions=(4,),
    pinned=True,
    releases=(Release(4, shift=0.2),),
)
RECO = Ensemble("reco", 1, ("recall", "ranking"), max_batch_size=8, requests_per_second=180)

ENTRYPOINT_LINE = "/opt/nvidia/nvidia_entrypoint.sh: line 67: /opt/tritonserver/bin/tritonserver: Permission denied"

HEALTHY = Scene("healthy", "nothing stands out", "V31", (RANKING, RECALL, RERANK), (RECO,))


def _with_ranking(ranking: Model) -> tuple[Model, ...]:
    return tuple(ranking if model.name == ranking.name else model for model in HEALTHY.models)


SCENES: dict[str, Scene] = {
    scene.name: scene
    for scene in (
        HEALTHY,
        replace(
            HEALTHY,
            name="queue-bound",
            summary="one instance with small batches for more traffic than it has room for",
            verdict="V22",
            models=_with_ranking(replace(RANKING, scheduling=Scheduling(max_batch_size=4), requests_per_second=1940)),
            ensembles=(replace(RECO, max_batch_size=4),),
        ),
        replace(
            HEALTHY,
            name="delay-too-long",
            summary="requests wait 5 ms for company that does not come; a new version lies on disk",
            verdict="V20",
            models=_with_ranking(
                replace(
                    RANKING,
                    scheduling=Scheduling(max_batch_size=16, instances=2, max_queue_delay_us=5000),
                    requests_per_second=60,
                    other_versions=(1,),
                    pinned=False,
                )
            ),
            ensembles=(replace(RECO, requests_per_second=60),),
            new_versions=(NewVersion(30, "ranking", 3),),
        ),
        replace(
            HEALTHY,
            name="throttled",
            summary="the card is too hot and slows itself down",
            verdict="V06",
            card=CardState(extra_heat=22, slowed_sm_mhz=1110, slowed_share=0.62),
        ),
        replace(
            HEALTHY,
            name="vram-full",
            summary="the models fill the card's memory, so nothing can be reloaded beside itself",
            verdict="V10",
            models=tuple(replace(m, vram_mib=10_240) if m.name == "recall" else m for m in HEALTHY.models),
        ),
        replace(
            HEALTHY,
            name="load-failed",
            summary="rerank's engine was made by another TensorRT; the other models serve",
            verdict="V04",
            models=tuple(
                replace(m, releases=(*m.releases, _built_with(m.version, "8.5.3.1"))) if m.name == "rerank" else m
                for m in HEALTHY.models
            ),
        ),
        replace(
            HEALTHY,
            name="driver-mismatch",
            summary="the driver was updated without a reboot: NVML cannot start, what runs goes on",
            verdict="V05",
            nvml_error=18,
        ),
        replace(
            HEALTHY,
            name="triton-down",
            summary="the container cannot start: its entry point may not be executed",
            verdict="V01",
            exit=Exit(126, ENTRYPOINT_LINE, starts=5),
        ),
    )
}


def many_models(count: int, active_share: float = 0.05) -> tuple[Model, ...]:
    """`count` small models for measuring the console, the first `active_share` of them under traffic."""
    active = round(count * active_share)
    return tuple(
        replace(
            RERANK,
            name=f"model_{number:04d}",
            version=1,
            requests_per_second=20.0 if number < active else 0.0,
            vram_mib=4,
            plan_mib=1,
            other_versions=(),
            pinned=False,
            releases=(),
        )
        for number in range(count)
    )
