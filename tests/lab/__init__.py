"""The lab: a real Podman, a real Triton and a stand-in card on a machine without a GPU (`scripts/lab`)."""
