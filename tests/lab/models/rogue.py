"""A Python-backend model whose versions go wrong, each in its own way: FEATURES -> SCORE, their mean.

The parameter `mood.vN` says how version N goes wrong (default: not at all):

    wrong       answers 1 too much
    slow        takes 60 ms where the others take 2
    dies        its process ends at the first request, and the server still calls it READY
    late        raises from the third request on
    fails       raises while it loads
    crash_load  takes the whole server down while it loads
    crash       takes the whole server down at the first request
    long_load   takes 4 s to load
"""

# mypy: ignore-errors
# It runs in the container: its modules are not here.
import json
import os
import signal
import time

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Called by the Python backend; see its documentation for the contract."""

    def initialize(self, args):
        """Take on the mood of this version."""
        config = json.loads(args["model_config"])
        mood = config.get("parameters", {}).get(f"mood.v{args['model_version']}", {})
        self.mood = mood.get("string_value", "")
        self.requests = 0
        if self.mood == "fails":
            raise RuntimeError("no such file: weights.bin")
        if self.mood == "crash_load":
            _crash()
        if self.mood == "long_load":
            time.sleep(4)

    def execute(self, requests):
        """Answer one batch, or do what the mood says."""
        self.requests += len(requests)
        if self.mood == "dies":
            os._exit(3)
        if self.mood == "crash":
            _crash()
        if self.mood == "late" and self.requests > 2:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        time.sleep(0.06 if self.mood == "slow" else 0.002)
        return [self.respond(request) for request in requests]

    def respond(self, request):
        """The mean of each item, and one more where the mood is wrong."""
        array = pb_utils.get_input_tensor_by_name(request, "FEATURES").as_numpy()
        score = array.mean(axis=-1, keepdims=True) + (1 if self.mood == "wrong" else 0)
        return pb_utils.InferenceResponse([pb_utils.Tensor("SCORE", score.astype(np.float32))])


def _crash():
    """As a fault in a back end does: the server's process gets a signal that ends it."""
    os.kill(os.getppid(), signal.SIGSEGV)
    time.sleep(5)
