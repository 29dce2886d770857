"""An incident on a real server, recorded, bundled and opened elsewhere: traffic, a bad version swapped in, the card's
memory rising, the container killed. Secrets are planted wherever a box has some."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from console.core import units
from tests.bundle.stand import Opened, opened
from tests.lab import paths, podman, repository
from tests.lab.fixtures import Standin
from tests.lab.own import OwnTriton, own_triton

PLANTED = {
    "environment": "hf_Qx71zzTopSecretEnv0042",
    "odd name": "Vq9-licence-77-Zt41-code",
    "flag": "adm1n-Header-8812-xyzzy",
    "label": "lbl-Pass-5521-ququx",
    "configuration": "cfgKey-3319-Aplomb-77",
    "log": "log-Passw0rd-6610-zz",
    "log, by itself": "glpat-Zz7719LoggedTokenXyz",
    "settings": "Zset-Header-2204-qq",
    "settings file": "ops-Pass-9917-vv",
}
LEAKY = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        raise pb_utils.TritonModelException(
            "Internal: unable to load plan file: IRuntime::deserializeCudaEngine: Error Code 1: Serialization "
            "(Serialization assertion stdVersionRead == kSERIALIZATION_VERSION failed.Version tag does not match. "
            "Note: Current Version: 239, Serialized Engine Version: 213) while asking store: password: {log} "
            "and {token} and {env}"
        )
"""
MEMORY_STEP = 700 << 20
GIB = 1 << 30


class Incident:
    """What was done, and when by this machine's clock."""

    def __init__(self, own: OwnTriton, folder: Path, card: Standin) -> None:
        self.own, self.folder, self.card = own, folder, card
        self.environment = card.environment | {
            "XDG_STATE_HOME": str(folder / "state"),
            "XDG_CONFIG_HOME": str(folder / "config"),
        }
        settings = folder / "config" / "gpuconsole" / "config.toml"
        settings.parent.mkdir(parents=True)
        settings.write_text(f'[triton]\nheaders = {{ x-key = "{PLANTED["settings"]}" }}\n')
        self.words = [
            "--socket", own.socket, "--container", own.name, "--http-port", str(own.port),
            "--grpc-port", str(own.port + 1), "--metrics-port", str(own.port + 2), "--repository", str(own.repository),
            "--utc",
        ]  # fmt: skip
        self.swapped = self.killed = 0.0

    def console(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """A command of gpuconsole, to its end."""
        done = subprocess.run(
            [sys.executable, "-m", "console", *words, *self.words],
            env=self.environment, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0 or not check, done.stderr + done.stdout
        return done

    def play(self) -> None:
        """All of it, recorded."""
        record = subprocess.Popen(
            [sys.executable, "-m", "console", "record", *self.words],
            env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        ended = threading.Event()
        traffic = threading.Thread(target=self._ask, args=(ended,))
        memory = threading.Thread(target=self._fill, args=(ended,))
        try:
            assert record.stdout is not None
            assert "recording into" in record.stdout.readline()
            traffic.start()
            memory.start()
            time.sleep(8)
            self._bad_version()
            time.sleep(6)
            self.killed = time.time()
            podman.run("kill", "--signal", "KILL", self.own.name)
            time.sleep(8)
        finally:
            ended.set()
            record.send_signal(signal.SIGINT)
            record.communicate(timeout=30)

    def _bad_version(self) -> None:
        version = self.own.repository / "rank" / "2"
        version.mkdir()
        (version / "model.py").write_text(
            LEAKY.format(log=PLANTED["log"], token=PLANTED["log, by itself"], env=PLANTED["environment"])
        )
        self.swapped = time.time()
        self.console("do", "model.swap", "rank", "version=2", "--yes", "--confirm", "rank", check=False)

    def _ask(self, ended: threading.Event) -> None:
        body = {"inputs": [{"name": "FEATURES", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]}]}
        while not ended.wait(0.05):
            try:
                self.own.triton("POST", "/v2/models/rank/infer", body, timeout=5)
            except OSError:
                continue

    def _fill(self, ended: threading.Event) -> None:
        card = self.card.card
        while not ended.wait(2.0) and card.memory_used + MEMORY_STEP < card.memory_total:
            card.memory_used += MEMORY_STEP


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory, nvml_library: Path) -> Iterator[tuple[Incident, Opened, Path]]:
    folder = tmp_path_factory.mktemp("incident")
    if not Path(paths.SOCKET).exists():
        pytest.skip("the lab is not up: run scripts/lab up")
    from tests.lab.nvml import values

    values.create(folder / "nvml.values")
    card = Standin(nvml_library, folder / "nvml.values")
    config = repository.sleeper_config("rank", api_key=PLANTED["configuration"])
    more = [
        "--env", f"HF_TOKEN={PLANTED['environment']}", "--env", f"MACHINE_OF={PLANTED['odd name']}",
        "--label", f"db_password={PLANTED['label']}",
    ]  # fmt: skip
    flags = [
        "--model-control-mode=explicit", "--load-model=*",
        f"--http-restricted-api=shared-memory:admin={PLANTED['flag']}",
    ]  # fmt: skip
    environment_file = folder / "models" / "rank" / "notes.txt"
    with own_triton(folder / "models", [("rank", config, (1,))], more=more, flags=flags) as own:
        environment_file.write_text(f"password={PLANTED['settings file']}")
        incident = Incident(own, folder, card)
        incident.play()
        path = folder / "box.tar.zst"
        incident.console("bundle", "--last", "5m", "--out", str(path))
        elsewhere = folder / "elsewhere"
        elsewhere.mkdir()
        yield incident, opened(Path(shutil.copy(path, elsewhere))), path


@pytest.mark.lab
@pytest.mark.slow
@pytest.mark.timeout(240)
def test_the_summary_alone_names_the_cause_and_the_minute(bundle: tuple[Incident, Opened, Path]) -> None:
    incident, found, _ = bundle
    text = found.summary
    cause = text.partition("## Suspected cause")[2].partition("## ")[0]
    first = cause.strip().splitlines()[0]
    assert first.startswith("1. ✗")
    assert f"container {incident.own.name} ended, exit 137" in first
    minute = units.moment(incident.killed, utc=True)[:16]
    assert minute in first or units.moment(incident.killed + 5, utc=True)[:16] in first
    assert "the kernel's log" in cause
    swapped = units.moment(incident.swapped, utc=True)[:16]
    (failed,) = [line for line in cause.splitlines() if "rank 2 failed to load" in line]
    assert "the engine was built by another version of TensorRT" in failed
    assert swapped in failed or units.moment(incident.swapped + 20, utc=True)[:16] in failed
    assert "GPU memory rose from " in cause
    assert re.search(r"^- .* swap", text.partition("## Timeline")[2], re.M | re.I), "the operator's change"
    assert "Recorded from " in text
    assert len(text.splitlines()) < 120, "one page"


@pytest.mark.lab
@pytest.mark.slow
def test_no_planted_secret_is_in_it(bundle: tuple[Incident, Opened, Path]) -> None:
    _, found, path = bundle
    everything = found.everything()
    for where, secret in PLANTED.items():
        assert secret.encode() not in everything, where
        assert json.dumps(secret)[1:-1].encode() not in everything, where
        assert secret[:8].encode() not in everything, f"the beginning of {where}"
        assert secret.encode() not in path.read_bytes(), where
    listed = found.parts["REDACTED.md"].decode()
    for name in ("HF_TOKEN", "MACHINE_OF", "db_password", "api_key", "password", "token"):
        assert name in listed, name
    assert b"rank" in everything
    assert b"CUDA" in everything or b"TRITON" in everything, "what is on the allow list stays"


@pytest.mark.lab
@pytest.mark.slow
def test_it_holds_what_was_promised(bundle: tuple[Incident, Opened, Path]) -> None:
    _, found, _ = bundle
    wanted = {
        "SUMMARY.md", "REDACTED.md", "manifest.json", "snapshot.json", "checks.json", "facts.json", "audit.jsonl",
        "events.jsonl", "container/inspect.json", "container/log.txt", "models/rank/config.pbtxt", "versions.json",
        "recording/bundle.jsonl.zst",
    }  # fmt: skip
    assert wanted <= found.parts.keys()
    (recording,) = [one for one in found.manifest["parts"] if one["name"] == "recording/bundle.jsonl.zst"]
    assert recording["note"] == ""
    assert os.fspath(found.folder).startswith("gpuconsole-")
