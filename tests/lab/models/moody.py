"""A Python-backend model with moods that sleeper.py has not: it hangs, or takes large inputs.

    base_us, item_us  time of one execution: base + item * batch, slept, in microseconds
    hang_after        executions after which the next one never ends (default: none hangs)
    load_ms           time that loading takes (default 0)

Its answer is the mean of each item's input.
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
        """Read the parameters."""
        config = json.loads(args["model_config"])
        given = {
            name: float(value["string_value"])
            for name, value in config.get("parameters", {}).items()
            if name in ("base_us", "item_us", "hang_after", "load_ms")
        }
        self.base_s, self.item_s = given.get("base_us", 0) / 1e6, given.get("item_us", 0) / 1e6
        self.hang_after, self.executions = given.get("hang_after", 0), 0
        self.input, self.output = config["input"][0]["name"], config["output"][0]["name"]
        time.sleep(given.get("load_ms", 0) / 1e3)

    def execute(self, requests):
        """Answer one batch."""
        self.executions += 1
        while self.hang_after and self.executions > self.hang_after:
            time.sleep(1)
        answers = []
        items = 0
        for request in requests:
            array = pb_utils.get_input_tensor_by_name(request, self.input).as_numpy()
            items += len(array)
            mean = array[:, :4].mean(axis=-1, keepdims=True).astype(np.float32)
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor(self.output, mean)]))
        time.sleep(self.base_s + self.item_s * items)
        return answers
