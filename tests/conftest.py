"""Fixtures that every test may use."""

from __future__ import annotations

import signal

from tests.actions.own_lock import own_lock
from tests.lab.fixtures import lab, lab_alone, nvml_library, nvml_standin
from tests.sharing import pytest_addoption, pytest_collection_modifyitems, pytest_xdist_make_scheduler

__all__ = [
    "lab",
    "lab_alone",
    "nvml_library",
    "nvml_standin",
    "own_lock",
    "pytest_addoption",
    "pytest_collection_modifyitems",
    "pytest_xdist_make_scheduler",
]

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Started in the background (`scripts/test &`), which a shell without job control does with SIGINT ignored; the
    # programs under test would inherit that, and they are to be interrupted.
    signal.signal(signal.SIGINT, signal.default_int_handler)
