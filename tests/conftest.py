"""Fixtures that every test may use."""

from __future__ import annotations

from tests.lab.fixtures import lab, lab_alone, nvml_library, nvml_standin

__all__ = ["lab", "lab_alone", "nvml_library", "nvml_standin"]
