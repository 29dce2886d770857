"""Model configurations for the tests of inputs."""

from __future__ import annotations

from console.core.model import ModelConfig, TensorSpec


def config(*inputs: TensorSpec, batch: int = 8, decoupled: bool = False, sequence: bool = False) -> ModelConfig:
    """Of a model named `m`."""
    return ModelConfig(
        name="m", version="1", max_batch_size=batch, inputs=inputs, decoupled=decoupled, sequence_batching=sequence
    )


FEATURES = TensorSpec("FEATURES", "FP32", (4,))
IDS = TensorSpec("IDS", "INT64", (-1,))
NAMES = TensorSpec("NAMES", "BYTES", (2,))
