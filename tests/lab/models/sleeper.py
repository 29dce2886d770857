"""A Python-backend model that takes its time as a GPU model does: a + b * batch, without using the CPU.

It is the model.py of every lab model that serves; config.pbtxt tells them apart by its parameters:

    answer      features: USER u -> FEATURES u + 0, 1/4, 2/4, 3/4;   score: FEATURES -> SCORE, their mean
    base_us     time of one execution, in microseconds              (a)
    item_us     time on top of it per item of the batch             (b)
    cpu_us      time of one execution spent computing on the host   (default 0)
    load_ms     time that loading takes                             (default 0)
    raise_every every n-th execution raises: Triton counts a failure for the whole batch (default never)
    error_every every n-th request gets an error answer, which Triton counts as success (default never)

`name.v2` overrides `name` for version 2. `gpu_mib` is read by the lab's card, not here.
"""

# mypy: ignore-errors
# It runs in the container: its modules are not here.
import json
import time

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Called by the Python backend; see its documentation for the contract."""

    def initialize(self, args):
        """Read the parameters; wait as long as loading takes."""
        config = json.loads(args["model_config"])
        given = {name: value["string_value"] for name, value in config.get("parameters", {}).items()}

        def number(name):
            return float(given.get(f"{name}.v{args['model_version']}", given.get(name, 0)))

        self.answer = {"features": self.features, "score": self.score}[given["answer"]]
        self.input = config["input"][0]["name"]
        self.output = config["output"][0]["name"]
        self.batched = config["max_batch_size"] > 0
        self.base_s, self.item_s = number("base_us") / 1e6, number("item_us") / 1e6
        self.cpu_s = number("cpu_us") / 1e6
        self.raise_every, self.error_every = int(number("raise_every")), int(number("error_every"))
        self.executions = self.requests = 0
        time.sleep(number("load_ms") / 1e3)

    def execute(self, requests):
        """Answer one batch."""
        started = time.monotonic()
        self.executions += 1
        if self.raise_every and self.executions % self.raise_every == 0:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        arrays = [pb_utils.get_input_tensor_by_name(request, self.input).as_numpy() for request in requests]
        answers = [self.respond(array) for array in arrays]
        while time.monotonic() - started < self.cpu_s:
            pass
        items = sum(len(array) for array in arrays) if self.batched else len(arrays)
        wanted = self.base_s + self.item_s * items
        time.sleep(max(0.0, wanted - (time.monotonic() - started)))
        return answers

    def respond(self, array):
        """Return the response to one request."""
        self.requests += 1
        if self.error_every and self.requests % self.error_every == 0:
            return pb_utils.InferenceResponse(error=pb_utils.TritonError("feature store has no such user"))
        return pb_utils.InferenceResponse([pb_utils.Tensor(self.output, self.answer(array))])

    @staticmethod
    def features(users):
        """Return FEATURES for USER."""
        return (users + np.arange(4) / 4).astype(np.float32)

    @staticmethod
    def score(features):
        """Return SCORE for FEATURES."""
        return features.mean(axis=-1, keepdims=True).astype(np.float32)
