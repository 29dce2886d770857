"""The command `scripts/lab`."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any, NoReturn

from tests.lab import box, install, paths, podman, processes, traffic

WRONG_USAGE = 64

ABOUT = """\
A real Podman and a real Triton on a machine without a GPU, with a stand-in card.

  scripts/lab install      packages (apt, as root) and the wheel that carries Triton
  scripts/lab up           raise it, or leave it as it is where it serves; prints the addresses
  scripts/lab status       what runs, where, since when          (--json: lab.json itself)
  scripts/lab traffic ...  load, answers checked                  (scripts/lab traffic --help)
  scripts/lab podman ...   the lab's Podman, as in: scripts/lab podman logs triton
  scripts/lab down         remove all that runs; the image stays  (--all: that too)
"""

MORE = """\
What is served (127.0.0.1, ports 18000 HTTP, 18001 gRPC, 18002 metrics; GPUCONSOLE_LAB_PORT_BASE moves them):
  recall 1         USER INT64[1] -> FEATURES FP32[4]   2 + 0.1 b ms a batch, batches up to 16
  rank 1 and 2     FEATURES -> SCORE FP32[1]           4 + 0.25 b and 3 + 0.25 b ms, delay 500 us
  reco 1           ensemble: recall, then rank
  rerank 3         cannot load: an engine of another TensorRT
Model control is explicit. The repository, /var/lib/gpuconsole-lab/models, may be changed from the host.

The lab is one per machine and shared: tests that only read it may run side by side; whoever stops, reloads or
changes something takes the fixture lab_alone (tests/lab/fixtures.py) and leaves it as it was. `up` repairs a lab
that was left broken. A test that uses the lab is marked `lab`; without the lab it is skipped, or fails with
GPUCONSOLE_LAB_REQUIRED=1.

The card: LD_LIBRARY_PATH=/var/lib/gpuconsole-lab/nvml makes any NVML program (the console, nvitop) see it. Its
figures lie in /run/gpuconsole-lab/nvml.values and follow the load; tests/lab/nvml/values.py changes them.

It keeps apart from the machine's own Podman (own storage, socket, network, locks), refuses where an NVIDIA driver
is loaded unless GPUCONSOLE_LAB=1, and lives in /var/lib/gpuconsole-lab and /run/gpuconsole-lab alone, but for
/var/run/cdi/gpuconsole-lab.json while it is up.
"""

TRAFFIC = """\
MODEL=RATE      requests a second, even or --poisson       rank=150   rank:1=50 (version 1)   rank=50..200 (rising)
MODEL=CALLERS   with --closed: so many callers, each asking again when it has its answer
A line a second goes to standard error; at the end one JSON object goes to standard output: per model sent, ok, errors
by kind, latency in ms (open loop: from when the request was due), and sent, ok and errors of each second (t is
wall-clock; an answer counts in the second it came). Ctrl+C ends it early, with the record.
"""


class _Parser(argparse.ArgumentParser):
    """Wrong usage is one sentence and exit code 64, as everywhere in this project."""

    def error(self, message: str) -> NoReturn:
        sys.stderr.write(f"{self.prog}: {message}. Try {self.prog} --help.\n")
        raise SystemExit(WRONG_USAGE)


def main(words: list[str]) -> int:
    """Run one command; return its exit code."""
    try:
        if words[:1] == ["podman"]:
            return _podman(words[1:])
        return _run(_parser().parse_args(words))
    except paths.LabError as error:
        print(f"lab: {error}", file=sys.stderr)
        return WRONG_USAGE if isinstance(error, paths.UsageError) else 1
    except PermissionError as error:
        print(f"lab: {error.filename} may not be used by this user: run it as root.", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # The reader (head, grep -q) has had enough. Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _parser() -> argparse.ArgumentParser:
    raw = argparse.RawDescriptionHelpFormatter
    parser = _Parser(prog="scripts/lab", description=ABOUT, epilog=MORE, formatter_class=raw, usage=argparse.SUPPRESS)
    commands = parser.add_subparsers(
        dest="command", required=True, metavar="COMMAND", prog=parser.prog, help=argparse.SUPPRESS
    )
    commands.add_parser("install")
    commands.add_parser("up")
    down = commands.add_parser("down")
    down.add_argument("--all", action="store_true", help="remove the cached image as well")
    status = commands.add_parser("status")
    status.add_argument("--json", action="store_true", help="print lab.json")
    _add_traffic(commands.add_parser("traffic", epilog=TRAFFIC, formatter_class=raw))
    commands.add_parser("podman")  # handled before this, since its own options follow
    return parser


def _add_traffic(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("flows", nargs="+", metavar="MODEL=NUMBER")
    parser.add_argument("--closed", action="store_true", help="callers that wait for their answers")
    parser.add_argument("--poisson", action="store_true", help="arrivals at random instead of evenly spaced")
    parser.add_argument("--for", dest="seconds", type=float, default=30.0, metavar="SECONDS", help="default 30")
    parser.add_argument("--batch", type=int, default=1, metavar="N", help="items in each request (default 1)")
    parser.add_argument("--seed", type=int, default=1, help="of arrivals and users (default 1)")
    parser.add_argument("--url", help="Triton's HTTP address on this machine; default: the lab's")
    parser.add_argument("--json", dest="record", type=Path, metavar="FILE", help="write the record there instead")
    parser.add_argument("--quiet", action="store_true", help="no line a second")


def _run(options: argparse.Namespace) -> int:
    match options.command:
        case "install":
            install.install()
        case "up":
            started = time.monotonic()
            box.up()
            print(f"lab: up in {time.monotonic() - started:.1f} s")
            _print_status()
        case "down":
            box.down(everything=options.all)
            print("lab: down")
        case "status":
            return _status(as_json=options.json)
        case "traffic":
            return _traffic(options)
    return 0


def _status(*, as_json: bool) -> int:
    found = box.addresses()
    if found is None:
        print("lab: not up (scripts/lab up)", file=sys.stderr)
        return 1
    if as_json:
        print(json.dumps(found, indent=2))
    else:
        _print_status()
    return 0 if box.whole(found["http_port"]) else 1


def _print_status() -> None:
    found = box.addresses() or {}
    hidden = None if os.geteuid() == 0 else "unknown: ask as root"
    parts = {
        "triton": "serves" if box.serving(found["http_port"]) else "DOES NOT SERVE all of its models",
        "container state": hidden or podman.container_state() or "NONE",
        "podman service": hidden or ("answers" if box.podman_answers() else "DOES NOT ANSWER"),
        "card follower": "runs" if processes.running("card") else "DOES NOT RUN",
    }
    age = int(time.time() - found["started"])
    print(f"up since {age // 3600} h {age % 3600 // 60} m {age % 60} s")
    width = max(map(len, [*parts, *found]))
    rows: dict[str, Any] = parts | {k: v for k, v in found.items() if k not in ("started", "http_port")}
    for name, value in rows.items():
        print(f"  {name:<{width}}  {value}")


def _traffic(options: argparse.Namespace) -> int:
    found = box.addresses()
    if options.url is None and found is None:
        raise paths.LabError("The lab is not up: run scripts/lab up, or name a Triton with --url.")
    if not 0 < options.seconds <= traffic.LONGEST_S:
        raise paths.UsageError(f"--for {options.seconds:g} is not from 0 to {traffic.LONGEST_S:g} seconds.")
    plan = traffic.Plan(
        port=traffic.loopback_port(options.url or (found or {})["http"]),
        flows=tuple(traffic.Flow.parse(word) for word in options.flows),
        seconds=options.seconds,
        closed=options.closed,
        poisson=options.poisson,
        batch=options.batch,
        seed=options.seed,
    )
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        # Set for good: a second Ctrl+C must not cost the record.
        signal.signal(number, lambda *_: stop.set())
    record = json.dumps(traffic.drive(plan, stop=stop, quiet=options.quiet), indent=2)
    if options.record:
        options.record.write_text(record + "\n")
    else:
        print(record)
    return 0


def _podman(words: list[str]) -> NoReturn:
    box.require_root()
    if box.addresses() is None:
        raise paths.LabError("The lab is not up: run scripts/lab up.")
    sys.stdout.flush()
    os.execvpe("podman", podman.command(*words), podman.environment())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
