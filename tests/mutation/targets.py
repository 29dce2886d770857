"""Which modules are mutated, in three groups, and which tests must notice beside the module's own (`OWN_TESTS`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

OWN_TESTS = "tests/{}/test_{}*.py"
"""Package and module: `console.core.text` is held by tests/core/test_text*.py."""

PER_MODULE: Mapping[str, Mapping[str, Sequence[str]]] = {
    "parsers": {
        "console.core.kernel_faults": (),
        "console.core.packages": (),
        "console.core.podman_events": (),
        "console.core.podman_frames": (),
        "console.core.secrets": (),
        "console.core.text": (),
        "console.core.triton_command": (),
        "console.core.triton_log": (),
        "console.core.unit_log": ("tests/core/test_podman_events.py",),
        "console.clients.cgroup": (),
        "console.clients.host": ("tests/sources/test_host.py",),
        "console.clients.journal": (),
        "console.clients.libpod": (),
        "console.clients.nvidia_host": ("tests/clients/test_nvml.py",),
        "console.clients.nvml_throttle": ("tests/clients/test_nvml.py",),
        "console.clients.pbtxt": (),
        "console.clients.pbtxt_batching": (),
        "console.clients.pbtxt_edit": (),
        "console.clients.proc": (),
        "console.clients.triton_metrics": (),
        "console.clients.triton_wire": (),
        "console.clients.units": (),
    },
    "rates": {
        "console.core.changes": ("tests/core/test_store.py",),
        "console.core.derive": ("tests/core/test_store.py",),
        "console.core.histograms": (),
        "console.core.history": (),
        "console.core.rates": (),
    },
    "rules": {
        "console.advisors.blind": (),
        "console.advisors.config": (),
        "console.advisors.figures": ("tests/advisors/test_flow.py",),
        "console.advisors.flow": (),
        "console.advisors.gpu": (),
        "console.advisors.memory": (),
        "console.advisors.rule": ("tests/advisors/test_why.py", "tests/advisors/test_server.py"),
        "console.advisors.server": (),
        "console.advisors.table": (
            "tests/advisors/test_conformance.py",
            "tests/advisors/test_why.py",
            "tests/advisors/test_rule.py",
        ),
        "console.advisors.why": (),
    },
}
