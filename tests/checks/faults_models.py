"""Faults of the model repository."""

from __future__ import annotations

from typing import Any

from tests.checks import fault_effects as effects
from tests.checks.faults import fault
from tests.checks.faults_driver import DEBIAN, EL8, EL9, ROCKY, ROOTLESS
from tests.checks.tree import Tree


def _unavailable(box: Tree, model: str, reason: str) -> None:
    def by(index: Any) -> None:
        for one in index:
            if one["name"] == model:
                one.update(state="UNAVAILABLE", reason=reason)

    box.change("@triton.index", by)
    box.change("@triton.metadata", lambda found: found.update(ready=False))
    box.change("@triton.configs", lambda found: found.pop(model, None))
    effects.say(box, f"E1130 08:40:11 1 model_repository_manager.cc:1348] \"failed to load '{model}': {reason}\"")


@fault("L03", DEBIAN, EL8, EL9, also=("E07",), needs="server container")
def config_is_broken(box: Tree) -> None:
    path = f"{effects.models(box)}/resnet50/config.pbtxt"
    box.edit(path, 'name: "resnet50"', 'name: "resnet50')
    _unavailable(box, "resnet50", "Invalid argument: failed to read text proto from /models/resnet50/config.pbtxt")


@fault("L04", DEBIAN, EL8, ROCKY, also=("E07",), needs="server container")
def config_names_another_model(box: Tree) -> None:
    path = f"{effects.models(box)}/resnet50/config.pbtxt"
    box.edit(path, 'name: "resnet50"', 'name: "resnet101"')
    reason = "Invalid argument: model name 'resnet101' does not match the directory name 'resnet50'"
    _unavailable(box, "resnet50", reason)


@fault("L02", DEBIAN, EL8, also=("E10", "E07"), needs="server container")
def version_folder_is_no_number(box: Tree) -> None:
    root = f"{effects.models(box)}/resnet50"
    for path in [f"{root}/1", *box.under(f"{root}/1")]:
        box.files[path.replace(f"{root}/1", f"{root}/v1")] = box.files.pop(path)
    _unavailable(
        box,
        "resnet50",
        "Invalid argument: at least one version must be available under the version policy of model 'resnet50'",
    )


@fault("L01", DEBIAN, EL8, EL9, needs="server container")
def newer_version_does_not_serve(box: Tree) -> None:
    root = f"{effects.models(box)}/resnet50"
    for path in [f"{root}/1", *box.under(f"{root}/1")]:
        box.files[path.replace(f"{root}/1", f"{root}/2")] = box.files[path]


@fault("L05", ROCKY, DEBIAN, also=("E05", "E07"), needs="server container")
def engine_of_another_tensorrt(box: Tree) -> None:
    effects.add_engine(box)
    reason = "Internal: unable to load plan file to auto complete config: /models/detector/1/model.plan"
    box.change(
        "@triton.index",
        lambda index: index.append({"name": "detector", "version": "1", "state": "UNAVAILABLE", "reason": reason}),
    )
    box.change("@triton.metadata", lambda found: found.update(ready=False))
    effects.say(
        box,
        "E1130 08:40:11 1 logging.cc:40] 6: The engine plan file is not compatible with this version of TensorRT, "
        "expecting library version 8.6.1.6 got 8.5.2.2, please rebuild.",
        f"E1130 08:40:11 1 model_lifecycle.cc:638] \"failed to load 'detector' version 1: {reason}\"",
    )


@fault("L07", DEBIAN, ROOTLESS, also=("E10", "H07", "E07"), takes="server", needs="container server")
def models_unreadable(box: Tree) -> None:
    root = effects.models(box)
    owner = 1000
    for path in [root, *box.under(root)]:
        box.stat(path, uid=owner, gid=owner, mode=0o700 if box.files[path].kind == "dir" else 0o600)
    effects.set_container(box, "Config", User="1000:1000" if not box.value("@podman.ping")["rootless"] else "1000")
    if not box.value("@podman.ping")["rootless"]:
        for path in [root, *box.under(root)]:
            box.stat(path, uid=0, gid=0)
    effects.say(box, "E1130 08:40:11 1 server.cc:595] failed to stat file /models: Permission denied")
    effects.no_server(box)


@fault("H07", DEBIAN, EL8, also=("L07",), needs="container")
def models_writable_by_all(box: Tree) -> None:
    root = effects.models(box)
    for path in [root, *box.under(root)]:
        box.stat(path, mode=0o777 if box.files[path].kind == "dir" else 0o666)


@fault("E20", DEBIAN, EL8, needs="server container")
def all_versions_are_loaded(box: Tree) -> None:
    root = f"{effects.models(box)}/resnet50"
    for version in range(2, 9):
        for path in [f"{root}/1", *box.under(f"{root}/1")]:
            box.files[path.replace(f"{root}/1", f"{root}/{version}")] = box.files[path]
    box.edit(
        f"{root}/config.pbtxt", 'backend: "onnxruntime"\n', 'backend: "onnxruntime"\nversion_policy: { all { } }\n'
    )

    def by(configs: Any) -> None:
        one = {**configs["resnet50"]["1"], "version_policy": {"all": {}}}
        configs["resnet50"] = {str(version): one for version in range(1, 9)}

    box.change("@triton.configs", by)
    ready = [{"name": "resnet50", "version": str(version), "state": "READY"} for version in range(2, 9)]
    box.change("@triton.index", lambda index: index.extend(ready))


@fault("E21", DEBIAN, EL8, needs="server container")
def batches_never_fill(box: Tree) -> None:
    def by(stats: Any) -> None:
        for one in stats["model_stats"]:
            if one["name"] == "resnet50":
                one["execution_count"] = one["inference_count"]

    box.change("@triton.stats", by)
    box.edit(
        f"{effects.models(box)}/resnet50/config.pbtxt",
        "max_queue_delay_microseconds: 500",
        "max_queue_delay_microseconds: 20000",
    )
    box.change(
        "@triton.configs",
        lambda found: found["resnet50"]["1"]["dynamic_batching"].update(max_queue_delay_microseconds=20000),
    )
