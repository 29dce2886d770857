"""The model.py of a model that cannot load: it fails as an engine built by another TensorRT does."""

# mypy: ignore-errors
# It runs in the container: its modules are not here.
import triton_python_backend_utils as pb_utils

REASON = (
    "Internal: unable to load plan file to auto complete config: "
    "/models/rerank/3/model.plan: IRuntime::deserializeCudaEngine: Error Code 1: Serialization "
    "(Serialization assertion stdVersionRead == kSERIALIZATION_VERSION failed.Version tag does not match. "
    "Note: Current Version: 239, Serialized Engine Version: 213)\n"
    "[E] The engine plan file is not compatible with this version of TensorRT, expecting library version "
    "10.0.1.6 got 8.5.3.1, please rebuild.\n"
    "[E] Error Code 4: Internal Error (Engine deserialization failed.)"
)


class TritonPythonModel:
    """Never gets further than its first call."""

    def initialize(self, args):
        """Fail, with a reason of several lines as TensorRT writes it."""
        raise pb_utils.TritonModelException(REASON)
