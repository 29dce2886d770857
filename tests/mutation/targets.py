"""Which modules are mutated, in three groups, and which tests must notice."""

from __future__ import annotations

PER_MODULE = {
    "parsers": {
        "console.core.kernel_faults": ["tests/core/test_kernel_faults.py"],
        "console.core.packages": ["tests/core/test_packages.py"],
        "console.core.podman_events": ["tests/core/test_podman_events.py"],
        "console.core.podman_frames": ["tests/core/test_podman_frames.py"],
        "console.core.secrets": ["tests/core/test_secrets.py"],
        "console.core.text": ["tests/core/test_text.py"],
        "console.core.triton_command": ["tests/core/test_triton_command.py"],
        "console.core.triton_log": ["tests/core/test_triton_log.py"],
        "console.core.unit_log": ["tests/core/test_unit_log.py", "tests/core/test_podman_events.py"],
        "console.clients.cgroup": ["tests/clients/test_cgroup.py"],
        "console.clients.host": ["tests/clients/test_host.py", "tests/sources/test_host.py"],
        "console.clients.journal": ["tests/clients/test_journal.py"],
        "console.clients.libpod": ["tests/clients/test_libpod.py"],
        "console.clients.nvml_throttle": ["tests/clients/test_nvml_throttle.py", "tests/clients/test_nvml.py"],
        "console.clients.pbtxt": ["tests/clients/test_pbtxt.py"],
        "console.clients.proc": ["tests/clients/test_proc.py"],
        "console.clients.triton_metrics": ["tests/clients/test_triton_metrics.py"],
        "console.clients.triton_wire": ["tests/clients/test_triton_wire.py"],
    },
    "rates": {
        "console.core.changes": ["tests/core/test_store.py"],
        "console.core.derive": ["tests/core/test_store.py"],
        "console.core.history": ["tests/core/test_history.py"],
        "console.core.rates": ["tests/core/test_rates.py"],
    },
    "rules": {
        "console.advisors.blind": ["tests/advisors/test_blind.py"],
        "console.advisors.config": ["tests/advisors/test_config.py"],
        "console.advisors.figures": ["tests/advisors/test_figures.py", "tests/advisors/test_flow.py"],
        "console.advisors.flow": ["tests/advisors/test_flow.py"],
        "console.advisors.gpu": ["tests/advisors/test_gpu.py"],
        "console.advisors.memory": [
            "tests/advisors/test_config.py",
            "tests/advisors/test_figures.py",
            "tests/advisors/test_server.py",
        ],
        "console.advisors.rule": ["tests/advisors/test_why.py", "tests/advisors/test_server.py"],
        "console.advisors.server": ["tests/advisors/test_server.py"],
        "console.advisors.table": ["tests/advisors/test_conformance.py", "tests/advisors/test_why.py"],
        "console.advisors.why": ["tests/advisors/test_why.py"],
    },
}
