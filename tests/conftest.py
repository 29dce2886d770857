"""Fixtures that every test may use."""

from __future__ import annotations

from tests.lab.fixtures import lab, lab_alone, nvml_library, nvml_standin
from tests.sharing import pytest_addoption, pytest_collection_modifyitems, pytest_xdist_make_scheduler

__all__ = [
    "lab",
    "lab_alone",
    "nvml_library",
    "nvml_standin",
    "pytest_addoption",
    "pytest_collection_modifyitems",
    "pytest_xdist_make_scheduler",
]
