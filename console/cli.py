"""The commands and their help. Wrong usage: one sentence on standard error, exit 64; never a traceback."""

from __future__ import annotations

import argparse
import contextlib
import functools
import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from console import __version__, faultlog
from console.config import ConfigError, Loaded, Settings, describe, load, state_dir
from console.core.model import SourceError
from console.core.plan import Refused, WrongInput
from console.core.text import one_line

if TYPE_CHECKING:
    from console.actions.box import BoxSpec
    from console.core.facts import Facts

log = logging.getLogger(__name__)
USAGE = 64
"""Exit code for wrong usage (EX_USAGE of sysexits.h)."""
REFUSED = 77
"""Exit code for a change that was refused or not said yes to (EX_NOPERM of sysexits.h)."""
CRASH = 70
"""Exit code for a fault of its own (EX_SOFTWARE)."""
SCENES = (
    "healthy",
    "queue-bound",
    "delay-too-long",
    "throttled",
    "vram-full",
    "load-failed",
    "driver-mismatch",
    "triton-down",
)
FLAGS = {
    "host": "triton.host",
    "http_port": "triton.http_port",
    "grpc_port": "triton.grpc_port",
    "metrics_port": "triton.metrics_port",
    "socket": "podman.socket",
    "container": "podman.container",
    "repository": "repository.path",
    "theme": "ui.theme",
    "ascii": "ui.ascii",
    "utc": "ui.utc",
    "mouse": "ui.mouse",
    "read_only": "safety.read_only",
}
"""Flag -> the setting that it overrides."""
LONGEST_WAIT = 86400.0
"""Seconds."""
LONGEST_RECORDING = 8760 * 3600.0
"""Seconds: a year."""
RUNNER = "_run"
"""The hidden command of the process that makes a change."""


class UsageError(Exception):
    """Wrong usage, as one plain sentence."""


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one sentence instead of printing the usage block."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; `{self.prog} --help` lists what is possible")


def _options(top: bool) -> _Parser:
    """Options that stand before or after the command; only the top parser has defaults, so the later never resets."""
    parser = _Parser(add_help=False, argument_default=None if top else argparse.SUPPRESS)
    box = parser.add_argument_group("which box")
    box.add_argument("--demo", action="store_true", help="the simulated box: no GPU, root or server needed")
    box.add_argument("--scene", choices=SCENES, help="what happens on the simulated box (default healthy)")
    box.add_argument("--seed", type=int, help="fixes the simulated box's event sequence")
    box.add_argument("--host", help="Triton's host; default: from the container, else 127.0.0.1")
    box.add_argument("--http-port", type=int, help="Triton's HTTP port")
    box.add_argument("--grpc-port", type=int, help="Triton's gRPC port")
    box.add_argument("--metrics-port", type=int, help="Triton's metrics port")
    box.add_argument("--socket", help="Podman's socket, a path or unix://...")
    box.add_argument("--container", help="the Triton container's name or id")
    box.add_argument("--repository", help="the model repository on this host")
    look = parser.add_argument_group("looks and safety")
    look.add_argument("--theme", help="a theme's name; `:theme` in the console lists them")
    look.add_argument("--ascii", action="store_true", help="no signs beyond ASCII")
    look.add_argument("--utc", action="store_true", help="times in UTC")
    look.add_argument("--mouse", action="store_true", help="mouse on")
    look.add_argument("--read-only", action="store_true", help="refuse everything that changes the box")
    look.add_argument("--config", metavar="FILE", help="this settings file instead of /etc/gpuconsole and ~/.config")
    return parser


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    top = _Parser(
        prog="gpuconsole",
        description="A terminal console for one GPU inference box: the GPU, the Triton container and its models.",
        parents=[_options(top=True)],
        epilog="Without a command the console opens. Exit codes: 0 done, 1 a change failed, 64 wrong usage, 70 a fault "
        "of gpuconsole, 77 refused.",
    )
    top.add_argument("--version", action="version", version=f"gpuconsole {__version__}")
    top.add_argument("--or-demo", action="store_true", help="open the simulated box where this one has nothing at all")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", title="commands", parser_class=_Parser)
    shared = [_options(top=False)]
    snapshot = commands.add_parser("snapshot", parents=shared, help="read the box once, print it and exit 0")
    snapshot.add_argument("--json", action="store_true", help="one JSON object (schema in console/snapshot.py)")
    settings = commands.add_parser(
        "config", parents=shared, help="merged settings and where each comes from, secrets masked"
    )
    settings.add_argument("--example", action="store_true", help="print a commented settings file instead")
    do = commands.add_parser("do", parents=shared, help="change the box: plan, ask, do, as the console's keys do")
    do.add_argument("action", nargs="?", metavar="ACTION", help="container.stop, model.swap ...")
    do.add_argument("target", nargs="?", metavar="TARGET", help="the container, model, card or change")
    do.add_argument("pairs", nargs="*", metavar="key=value", help="values of the action")
    do.add_argument("--list", action="store_true", help="all actions with their values")
    do.add_argument("--yes", action="store_true", help="say yes; a dangerous one wants --confirm too")
    do.add_argument("--confirm", metavar="NAME", default="", help="the target's name, for a dangerous action")
    do.add_argument("--dry-run", action="store_true", help="print the plan and end")
    do.add_argument("--unaudited", action="store_true", help="go on where no audit can be written; syslog gets it")
    do.add_argument("--wait", type=float, metavar="SECONDS", default=0.0, help="wait while somebody else changes it")
    do.add_argument("--json", action="store_true", help="one JSON object with plan and outcome")
    facts = commands.add_parser("facts", parents=shared, help="all that the checks look at, secrets masked")
    _add_facts(facts)
    facts.add_argument("--json", action="store_true", help="one JSON object, which --facts reads back")
    check = commands.add_parser(
        "check",
        parents=shared,
        help="the checklist; exits 0: fit, 1: a warning, 2: a failure, 3: nothing could be told",
    )
    _add_facts(check)
    check.add_argument("--all", action="store_true", help="list what is fit and what does not apply too")
    check.add_argument("--json", action="store_true", help="one JSON object")
    explain = commands.add_parser(
        "explain", parents=shared, help="what a check looks at, why, and its fix; or what an error text means"
    )
    explain.add_argument("check", nargs="?", metavar="ID", help="a check's id or slug: B07, cdi-stale")
    explain.add_argument("--text", help="an error message; without it and ID, one or a log is read from standard input")
    _add_box(explain)
    explain.add_argument("--json", action="store_true", help="one JSON object")
    _add_loadtest(
        commands.add_parser("loadtest", parents=shared, help="send a load to a model and tell what came of it")
    )
    advise = commands.add_parser("advise", parents=shared, help="what may help, and what is expected of it")
    advise.add_argument("model", nargs="?", metavar="MODEL", default="", help="one model; all without")
    advise.add_argument("--window", metavar="TIME", default="15s", help="how long the box is watched (default 15s)")
    advise.add_argument("--json", action="store_true", help="one JSON object")
    dmon = commands.add_parser("dmon", parents=shared, help="a line a second for each card and each model")
    dmon.add_argument("--csv", action="store_true", help="for programs: exact figures, one head")
    dmon.add_argument("--interval", metavar="TIME", default="1s", help="from one line to the next (default 1s)")
    dmon.add_argument("--count", type=int, metavar="N", default=0, help="end after N (default: with ctrl+c)")
    dmon.add_argument("--only", choices=("gpu", "model"), default="", help="cards or models alone")
    exporter = commands.add_parser("exporter", parents=shared, help="tell Prometheus what DCGM and Triton do not")
    exporter.add_argument("--listen", metavar="HOST:PORT", default="127.0.0.1:9835", help="default 127.0.0.1:9835")
    exporter.add_argument("--open-to-others", action="store_true", help="allow an address that other hosts reach")
    exporter.add_argument("--dashboard", action="store_true", help="print the Grafana dashboard and end")
    exporter.add_argument("--scrape-config", action="store_true", help="print Prometheus' scrape configuration and end")
    record = commands.add_parser("record", parents=shared, help="record the box to files, without a screen")
    record.add_argument("--for", dest="length", metavar="TIME", help="end after it (default: when told to)")
    record.add_argument("--to", metavar="DIR", default="", help="the folder (default: recordings in the state folder)")
    record.add_argument("--limit", metavar="SIZE", help="of all files together, the oldest go (default 300MiB)")
    record.add_argument("--unit", action="store_true", help="print a systemd unit that records always")
    replay = commands.add_parser("replay", parents=shared, help="the console on recorded time")
    replay.add_argument(
        "file", nargs="?", metavar="FILE|DIR", default="", help="default: the folder `record` writes to"
    )
    replay.add_argument("--at", metavar="TIME", default="", help="begin there: 14:01, 14:01:58 or 2026-07-04T14:01:58")
    _add_tune(commands.add_parser("tune", parents=shared, help="look for the best batching of a model by short trials"))
    _add_predict(
        commands.add_parser(
            "predict", parents=shared, help="what other batching settings would do, from its traffic now"
        )
    )
    _add_plan(commands.add_parser("plan", parents=shared, help="instances and batching that a rate and a p99 take"))
    bundle = commands.add_parser("bundle", parents=shared, help="one file for a colleague or a ticket, less secrets")
    bundle.add_argument("--last", metavar="TIME", default="30m", help="how far back (default 30m)")
    bundle.add_argument("--out", metavar="FILE", default="", help="default: gpuconsole-HOST-TIME.tar.zst, here")
    bundle.add_argument("--dry-run", action="store_true", help="show what would be in it, and write nothing")
    bundle.add_argument("--keep-paths", action="store_true", help="leave accounts' names in paths (/home/NAME)")
    audit = commands.add_parser("audit", parents=shared, help="what was changed, by whom, and how it ended")
    audit.add_argument("--json", action="store_true", help="one JSON object")
    return top


def _add_loadtest(parser: argparse.ArgumentParser) -> None:
    """`loadtest`: how much, with what, what is wanted; and the kept runs."""
    parser.add_argument("model", nargs="?", metavar="MODEL", help="the model")
    parser.add_argument("model_version", nargs="?", metavar="VERSION", default="", help="one version of it")
    much = parser.add_argument_group("how much")
    much.add_argument("--concurrency", metavar="N", help="closed loop: N at once (default 1); A..B or A,B,C too")
    much.add_argument("--rate", metavar="R", help="open loop: R a second, whatever the answers; A..B or A,B,C too")
    much.add_argument(
        "--rate-file", metavar="FILE", default="", help="open loop: recorded rates, CSV lines seconds,rate"
    )
    much.add_argument("--poisson", action="store_true", help="by chance as users come, not evenly")
    much.add_argument("--chance", type=int, metavar="N", default=0, help="fixes what is by chance")
    much.add_argument("--duration", metavar="TIME", default="30s", help="how long (default 30s)")
    much.add_argument("--warmup", metavar="TIME", default="2s", help="left out of the figures (default 2s)")
    much.add_argument("--count", type=int, metavar="N", default=0, help="end after N requests")
    much.add_argument(
        "--mix", action="append", metavar="MODEL=0.3", default=[], help="ask this one too, with that share (repeatable)"
    )
    what = parser.add_argument_group("with what")
    what.add_argument("--shape", action="append", metavar="IN:8,16", default=[], help="the size of a variable input")
    what.add_argument("--batch", type=int, metavar="N", default=1, help="items a request (default 1)")
    what.add_argument("--data", metavar="FILE", default="", help='inputs as JSON: {"data": [{"IN": [1, 2]}]}')
    what.add_argument("--random", action="store_true", help="random values instead of zeros")
    what.add_argument("--golden", action="store_true", help="the kept question, each answer compared with the kept one")
    what.add_argument("--priority", type=int, metavar="N", default=0, help="of each request")
    what.add_argument("--queue-timeout-us", type=int, metavar="N", default=0, help="of each request, in Triton's queue")
    ends = parser.add_argument_group("what is wanted, and where it ends")
    ends.add_argument(
        "--slo-p99-ms", type=float, metavar="M", help="the p99 that is wanted; exit 1 where it is not met"
    )
    ends.add_argument("--max-errors", type=float, metavar="PERCENT", default=1.0, help="stop above it (default 1)")
    ends.add_argument(
        "--max-live-ms",
        action="append",
        metavar="[MODEL=]M",
        default=[],
        help="stop when the mean of a model that others ask too is above it",
    )
    ends.add_argument(
        "--look-before", metavar="TIME", default="2s", help="look at others' traffic before anything is sent"
    )
    ends.add_argument("--timeout", metavar="TIME", default="30s", help="for one answer (default 30s)")
    ends.add_argument("--remote-host-is-meant", action="store_true", help="allow a host that is not this one")
    ends.add_argument("--dry-run", action="store_true", help="say what would be sent, and end")
    kept = parser.add_argument_group("kept runs")
    kept.add_argument("--list", action="store_true", help="all of them")
    kept.add_argument("--compare", nargs=2, metavar=("A", "B"), help="two of them, by number or `last`")
    kept.add_argument(
        "--import", dest="csv", metavar="FILE", default="", help="keep what perf_analyzer -f FILE reported"
    )
    other = parser.add_argument_group("another program")
    other.add_argument(
        "--engine",
        choices=("perf_analyzer",),
        default="",
        help="let NVIDIA's perf_analyzer send it: a closed loop only",
    )
    other.add_argument("--perf-analyzer", metavar="PATH", default="", help="where it lies (default: on PATH)")
    parser.add_argument("--json", action="store_true", help="one JSON object")


def _add_tune(parser: argparse.ArgumentParser) -> None:
    """`tune`: what is to be best, within what, and how it is said yes to."""
    parser.add_argument("model", metavar="MODEL", help="the model")
    parser.add_argument("--objective", choices=("throughput", "p99", "mean"), help="what is to be best (throughput)")
    parser.add_argument("--slo-p99-ms", metavar="M", help="only settings whose p99 is within it")
    parser.add_argument("--budget", metavar="TIME", help="how long it may take (default 5m)")
    parser.add_argument("--load", metavar="WORDS", help='a load of its own: "concurrency=16", "rate=200 poisson"')
    parser.add_argument("--instances", metavar="N", help="at most so many (default 4)")
    parser.add_argument("--headroom-mib", metavar="N", help="card memory that stays free (default 512)")
    parser.add_argument("--keep", action="store_true", help="leave the best live instead of what ran before")
    parser.add_argument("--yes", action="store_true", help="say yes to the plan")
    parser.add_argument("--dry-run", action="store_true", help="print the plan and end")
    parser.add_argument("--json", action="store_true", help="one JSON object with plan and outcome")


def _add_look(parser: argparse.ArgumentParser) -> None:
    """What is looked at before something is told."""
    parser.add_argument("--window", metavar="TIME", default="30s", help="how long to look at its traffic (default 30s)")
    parser.add_argument(
        "--since-load", action="store_true", help="service times since the load too; with --rate no look"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object")


def _add_predict(parser: argparse.ArgumentParser) -> None:
    """`predict`: the model, and settings as `do batching.set` takes them."""
    parser.add_argument("model", nargs="?", metavar="MODEL", help="the model")
    parser.add_argument("pairs", nargs="*", metavar="key=value", help="settings, as of do batching.set: delay_us=500")
    parser.add_argument("--rate", type=float, metavar="R", help="under R requests a second, not those that come now")
    _add_look(parser)


def _add_plan(parser: argparse.ArgumentParser) -> None:
    """`plan`: the model, and what is wanted of it."""
    parser.add_argument("model", nargs="?", metavar="MODEL", help="the model")
    parser.add_argument("model_version", nargs="?", metavar="VERSION", default="", help="one version of it")
    parser.add_argument("--rate", type=float, metavar="N", help="requests a second")
    parser.add_argument("--slo-p99-ms", type=float, metavar="M", help="the p99 that is wanted, as the server counts it")
    parser.add_argument("--headroom", type=float, metavar="SHARE", default=0.5, help="capacity kept free (default 0.5)")
    parser.add_argument("--instance-gib", type=float, metavar="GIB", help="memory of one instance, where nothing tells")
    _add_look(parser)


def _add_box(parser: argparse.ArgumentParser) -> None:
    """Which box the checks look at."""
    parser.add_argument("--root", metavar="DIR", default="", help="a recorded box: a folder that stands for its /")
    parser.add_argument("--facts", metavar="FILE", default="", help="a box as `facts --json` wrote it")
    parser.add_argument("--within", metavar="TIME", help="how long to wait for what is slow to answer (default 1.8s)")


def _add_facts(parser: argparse.ArgumentParser) -> None:
    """Which box the checks look at, and how much of it."""
    _add_box(parser)
    parser.add_argument("--slow", action="store_true", help="sample over two seconds what wants time")
    parser.add_argument("--group", metavar="GROUP", help="the checks of one group alone")


def run(arguments: Sequence[str] | None = None) -> int:
    """The whole program; returns the exit code."""
    try:
        words = list(sys.argv[1:] if arguments is None else arguments)
        if words[:1] == [RUNNER]:
            return _runner(words[1:])
        options = _parsed(words)
        for name in ("scene", "seed"):
            if getattr(options, name) is not None and not options.demo:
                raise UsageError(f"--{name} goes with --demo; add --demo to open the simulated box")
        loaded = load(_flags(options), file=options.config)
        faultlog.set_up(state_dir())
        return _command(options, loaded)
    except (UsageError, ConfigError) as error:
        print(f"gpuconsole: {error}", file=sys.stderr)
        return USAGE
    except WrongInput as error:
        print(f"gpuconsole: {one_line(str(error))}", file=sys.stderr)
        return USAGE
    except Refused as error:
        print(f"gpuconsole: {one_line(str(error))}", file=sys.stderr)
        return REFUSED
    except SourceError as error:
        print(f"gpuconsole: {error}", file=sys.stderr)
        return CRASH
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # whoever read our output has gone (`| head`): that is no error, and the interpreter must not complain at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        # the crash hook of the headless commands: a fault of ours is one line here, and its trace is in the log
        log.exception("gpuconsole %s", __version__)
        where = faultlog.path(state_dir())
        print(f"gpuconsole: a fault of gpuconsole ({type(error).__name__}); its trace is in {where}", file=sys.stderr)
        return CRASH


def _parsed(words: list[str]) -> argparse.Namespace:
    """The options; `key=value` words of `do` may stand after its options too, which argparse alone does not allow."""
    whole = parser()
    options, rest = whole.parse_known_args(words)
    if rest and options.command in ("do", "predict"):
        pairs = [word for word in rest if "=" in word and not word.startswith("-")]
        options.pairs = [*options.pairs, *pairs]
        rest = [word for word in rest if word not in pairs]
    if rest:
        whole.error("unrecognized arguments: " + " ".join(rest))
    return options


def _runner(words: list[str]) -> int:
    """The detached runner's own process (actions/detached.py starts it); no command for people."""
    from console.actions import runner

    if len(words) != 1:
        raise UsageError(f"{RUNNER} is what `do` and the console start; use `gpuconsole do`")
    return runner.main(words[0])


def _flags(options: argparse.Namespace) -> dict[str, Any]:
    given = {key: getattr(options, name) for name, key in FLAGS.items()}
    return {key: value for key, value in given.items() if value is not None and value is not False}


def _command(options: argparse.Namespace, loaded: Loaded) -> int:
    if options.command == "config":
        return _example() if options.example else _config(loaded)
    if options.command == "snapshot":
        return _snapshot(options, loaded.settings, as_json=options.json)
    if options.command == "do":
        return _do(options, loaded.settings)
    if options.command == "facts":
        return _facts(options, loaded.settings)
    if options.command == "check":
        return _check(options, loaded.settings)
    if options.command == "explain":
        return _explain(options, loaded.settings)
    if options.command == "loadtest":
        return _loadtest(options, loaded.settings)
    if options.command == "advise":
        return _advise(options, loaded.settings)
    if options.command == "dmon":
        return _dmon(options, loaded.settings)
    if options.command == "exporter":
        return _exporter(options, loaded.settings)
    if options.command == "record":
        return _record(options, loaded.settings)
    if options.command == "replay":
        return _replay(options, loaded.settings)
    if options.command == "tune":
        return _tune(options, loaded.settings)
    if options.command in ("predict", "plan"):
        return _predict(options, loaded.settings)
    if options.command == "bundle":
        return _bundle(options, loaded)
    if options.command == "audit":
        return _audit(options, loaded.settings)
    return _console(options, loaded.settings)


def _config(loaded: Loaded) -> int:
    rows = describe(loaded)
    wide = max(len(key) for key, _, _ in rows)
    for key, value, origin in rows:
        print(f"{key:<{wide}}  {value:<24}  {origin}")
    print(f"files read: {', '.join(loaded.files) or 'none'}")
    return 0


def _example() -> int:
    print(Path(__file__).with_name("config_example.toml").read_text("utf-8"), end="")
    return 0


def _snapshot(options: argparse.Namespace, settings: Settings, *, as_json: bool = False, note: str = "") -> int:
    from console import compose, snapshot

    with compose.session(settings, demo=_demo(options), seed=options.seed) as session:
        taken = snapshot.take(session, compose.judge(once=True))
    if as_json:
        sys.stdout.buffer.write(snapshot.as_json(taken, session.simulated) + b"\n")
        sys.stdout.flush()
        return 0
    if note:
        print(note)
    ascii_only = _ascii_only(settings)
    text = snapshot.as_text(taken, session.simulated, ascii_only=ascii_only, utc=settings.ui.utc)
    encoding = sys.stdout.encoding or "utf-8"  # of a locale that may have no letters for a model's name
    print(text.encode(encoding, "replace").decode(encoding), end="")
    return 0


def _do(options: argparse.Namespace, settings: Settings) -> int:
    from console import compose, do

    looks = do.Looks(ascii_only=_ascii_only(settings), utc=settings.ui.utc)
    if options.list:
        return do.listed(as_json=options.json, looks=looks)
    if options.action is None:
        raise UsageError("do wants ACTION and TARGET; `gpuconsole do --list` has all actions")
    if not 0 <= options.wait <= LONGEST_WAIT:
        raise UsageError(f"--wait must be from 0 to {LONGEST_WAIT:g} seconds, not {options.wait:g}")
    if options.demo:
        raise UsageError("the simulated box ends with its console; open `gpuconsole --demo` and change it there")
    order = do.Order(
        options.action,
        options.target or "",
        options.pairs,
        yes=options.yes,
        confirm=options.confirm,
        dry_run=options.dry_run,
        unaudited=options.unaudited,
        wait=options.wait,
        as_json=options.json,
    )
    return do.carry_out(order, compose.box_spec(settings), state_dir(), looks)


def _tune(options: argparse.Namespace, settings: Settings) -> int:
    """The same action as `do batching.sweep`, by the words of a tuner."""
    from console import compose, do

    if options.demo:
        raise UsageError("the simulated box ends with its console; open `gpuconsole --demo` and press S on 3 Tune")
    names = ("objective", "slo_p99_ms", "budget", "load", "instances", "headroom_mib")
    pairs = [f"{name}={value}" for name in names if (value := getattr(options, name))]
    order = do.Order(
        "batching.sweep",
        options.model,
        [*pairs, *(["keep=true"] if options.keep else [])],
        yes=options.yes,
        dry_run=options.dry_run,
        as_json=options.json,
    )
    looks = do.Looks(ascii_only=_ascii_only(settings), utc=settings.ui.utc)
    return do.carry_out(order, compose.box_spec(settings), state_dir(), looks)


def _audit(options: argparse.Namespace, settings: Settings) -> int:
    from console import do

    looks = do.Looks(ascii_only=_ascii_only(settings), utc=settings.ui.utc)
    return do.history(state_dir(), as_json=options.json, looks=looks)


def _loadtest(options: argparse.Namespace, settings: Settings) -> int:
    from console import compose, do, loadtest
    from console.loadgen.wish import Wish

    looks = do.Looks(ascii_only=_ascii_only(settings), utc=settings.ui.utc)
    state = compose.box_spec(settings, simulated=_demo(options)).state_in(state_dir())
    if options.list:
        return loadtest.listed(state, as_json=options.json, looks=looks)
    if options.compare:
        return loadtest.compared(state, *options.compare, as_json=options.json, looks=looks)
    if options.csv:
        return loadtest.imported(
            options.model or "", options.model_version, options.csv, options.batch, state, looks, as_json=options.json
        )
    if options.model is None:
        raise UsageError("loadtest wants a MODEL; `gpuconsole loadtest --help` lists what is possible")
    wish = Wish(
        options.model,
        options.model_version,
        concurrency=options.concurrency,
        rate=options.rate,
        poisson=options.poisson,
        seed=options.chance,
        duration=options.duration,
        warmup=options.warmup,
        count=options.count,
        shapes=options.shape,
        batch=options.batch,
        data=options.data,
        random=options.random,
        golden=options.golden,
        priority=options.priority,
        queue_timeout_us=options.queue_timeout_us,
        timeout=options.timeout,
        max_errors=options.max_errors,
        goal_ms=options.slo_p99_ms,
        remote=options.remote_host_is_meant,
        live_limits=options.max_live_ms,
        look=options.look_before,
        mix=options.mix,
        rate_file=options.rate_file,
        engine=options.engine,
        binary=options.perf_analyzer,
    )
    with _box(options, settings) as spec:
        return loadtest.run(wish, spec, state, looks, dry_run=options.dry_run, as_json=options.json)


def _dmon(options: argparse.Namespace, settings: Settings) -> int:
    from console import compose, dmon
    from console.core.duration import seconds

    interval = dmon.interval_s(seconds(options.interval, "--interval"))
    if options.count < 0:
        raise UsageError(f"--count must be 1 or more, not {options.count}")

    def write(text: str) -> None:
        sys.stdout.buffer.write(text.encode("utf-8", "replace"))
        sys.stdout.flush()

    with compose.session(settings, demo=_demo(options), seed=options.seed) as session:
        return dmon.run(
            session,
            write,
            interval=interval,
            count=options.count,
            as_csv=options.csv,
            only=options.only,
            utc=settings.ui.utc,
            ascii_only=_ascii_only(settings),
        )


def _exporter(options: argparse.Namespace, settings: Settings) -> int:
    from console import compose
    from console.exporter import run as exporter
    from console.exporter.server import address

    if options.dashboard or options.scrape_config:
        print(exporter.file(exporter.DASHBOARD if options.dashboard else exporter.SCRAPE), end="")
        return 0
    server, kept = exporter.listen(address(options.listen, open_to_others=options.open_to_others))
    say = functools.partial(print, flush=True)
    with compose.session(settings, demo=_demo(options), seed=options.seed, checks=True) as session:
        return exporter.run(session, compose.judge(), settings.alerts, server, kept, say)


def _record(options: argparse.Namespace, settings: Settings) -> int:
    from console import compose, recording
    from console.clients.recorder import FOLDER, LEAST_LIMIT, Recorder
    from console.core import bytesize, duration

    limit = settings.recording.limit_mib << 20
    if options.limit is not None:
        limit = bytesize.size(options.limit, "--limit")
    if limit < LEAST_LIMIT:
        raise UsageError(f"--limit must be at least {LEAST_LIMIT >> 20}MiB: an hour or so")
    length = None if options.length is None else duration.seconds(options.length, "--for")
    if length is not None and not 0 < length <= LONGEST_RECORDING:
        raise UsageError(f"--for must be more than 0 and at most {LONGEST_RECORDING / 3600:.0f}h")
    if options.unit:
        print(recording.unit(("--limit", f"{limit >> 20}MiB") if options.limit is not None else ()), end="")
        return 0
    with compose.session(settings, demo=_demo(options), seed=options.seed, checks=True) as session:
        state = session.spec.state_in(state_dir())
        folder = Path(options.to or settings.recording.folder or state / FOLDER).expanduser().absolute()
        say = functools.partial(print, flush=True)
        recorder = Recorder(folder, limit, simulated=session.simulated)
        return recording.run(session, compose.judge(), recorder, state, length, say, settings.alerts)


def _bundle(options: argparse.Namespace, loaded: Loaded) -> int:
    from console import checking, checklist, compose, snapshot
    from console.actions.box import Box
    from console.bundle import command
    from console.bundle.collect import Given

    settings = loaded.settings
    looks = {"keep_paths": options.keep_paths, "utc": settings.ui.utc}
    wanted = command.order(options.last, options.out, dry_run=options.dry_run, **looks)
    with compose.session(settings, demo=_demo(options), seed=options.seed) as session:
        state = session.spec.state_in(state_dir())
        taken = snapshot.take(session, compose.judge(once=True), watch_s=command.WATCH_S)
        checks = checking.checks_of_group(None)
        facts = checking.facts_for(session.spec, checks, within=command.FACTS_WITHIN)
        report = checklist.judge(facts, checks, whole=True)
        given = Given(
            taken,
            snapshot.as_json(taken, session.simulated),
            report,
            checklist.show(report, as_json=False, utc=settings.ui.utc).decode("utf-8", "replace"),
            facts,
            describe(loaded),
        )
        box = Box(session.spec, state)
        recordings = Path(settings.recording.folder or state / "recordings").expanduser()
        try:
            made = command.make(box, given, wanted, recordings)
        finally:
            box.close()
    sys.stdout.buffer.write(command.show(made, command.finish(made), ascii_only=_ascii_only(settings)))
    sys.stdout.flush()
    return 0


def _replay(options: argparse.Namespace, settings: Settings) -> int:
    from console import opening

    if options.demo:
        raise UsageError("replay shows what was recorded; leave out --demo")
    place = Path(options.file or settings.recording.folder or state_dir() / "recordings").expanduser()
    why_not = opening.no_terminal()
    if why_not is not None:
        raise UsageError(f"{why_not}: replay is a screen; `zstd -dc FILE` gives its lines")
    if settings.ui.theme and (problem := opening.unknown_theme(settings.ui.theme)):
        raise UsageError(problem)
    return opening.open_replay(place, options.at, settings)


def _predict(options: argparse.Namespace, settings: Settings) -> int:
    """`predict` and `plan`."""
    from console import compose, do, predicting

    if options.model is None:
        raise UsageError(
            f"{options.command} wants a MODEL; `gpuconsole {options.command} --help` lists what is possible"
        )
    looks = do.Looks(ascii_only=_ascii_only(settings), utc=settings.ui.utc)
    state = compose.box_spec(settings, simulated=_demo(options)).state_in(state_dir())
    look = {"window": options.window, "since_load": options.since_load, "rate": options.rate, "as_json": options.json}
    with _box(options, settings) as spec:
        if options.command == "predict":
            return predicting.predict(
                predicting.Wish(options.model, pairs=tuple(options.pairs), **look), spec, state, looks
            )
        if options.slo_p99_ms is None:
            raise UsageError("plan wants --slo-p99-ms, the p99 that is wanted")
        wish = predicting.Wish(
            options.model, options.model_version, goal_ms=options.slo_p99_ms, headroom=options.headroom,
            instance_gib=options.instance_gib, **look,
        )  # fmt: skip
        return predicting.plan(wish, spec, state, looks)


@contextlib.contextmanager
def _box(options: argparse.Namespace, settings: Settings) -> Iterator[BoxSpec]:
    """The box of the options: this one, or a simulated one that ends with the `with`."""
    from console import compose

    if not options.demo:
        yield compose.box_spec(settings)
        return
    with compose.session(settings, demo=_demo(options), seed=options.seed) as session:
        yield session.spec


def _advise(options: argparse.Namespace, settings: Settings) -> int:
    from console import advising, compose, snapshot
    from console.core.duration import seconds

    watch_s = advising.window_s(seconds(options.window, "--window"))
    with compose.session(settings, demo=_demo(options), seed=options.seed) as session:
        taken = snapshot.take(session, compose.judge(once=True), watch_s=watch_s)
    found = advising.advise(taken, options.model)
    sys.stdout.buffer.write(advising.show(found, as_json=options.json, ascii_only=_ascii_only(settings)))
    sys.stdout.flush()
    return 0


@contextlib.contextmanager
def _collector(options: argparse.Namespace, settings: Settings) -> Iterator[Callable[..., Facts]]:
    """checking.facts_for with the box that the options name; it wants the checks, and `slow`."""
    from console import checking

    if options.demo and (options.root or options.facts):
        raise UsageError("--demo is a box of its own; leave out --root and --facts")
    with _box(options, settings) as spec:
        yield functools.partial(
            checking.facts_for, spec, root=options.root, facts_file=options.facts, within=options.within
        )


def _facts(options: argparse.Namespace, settings: Settings) -> int:
    from console import checking

    wanted = checking.checks_of_group(options.group)
    with _collector(options, settings) as collect:
        facts = collect(wanted, slow=options.slow)
    sys.stdout.buffer.write(
        checking.show_facts(facts, as_json=options.json, ascii_only=_ascii_only(settings), utc=settings.ui.utc)
    )
    sys.stdout.flush()
    return 0


def _check(options: argparse.Namespace, settings: Settings) -> int:
    from console import checking, checklist

    wanted = checking.checks_of_group(options.group)
    with _collector(options, settings) as collect:
        facts = collect(wanted, slow=options.slow)
    report = checklist.judge(facts, wanted, whole=options.group is None)
    looks = {"as_json": options.json, "every": options.all, "utc": settings.ui.utc}
    sys.stdout.buffer.write(checklist.show(report, ascii_only=_ascii_only(settings), **looks))
    sys.stdout.flush()
    return checklist.exit_code(report)


def _explain(options: argparse.Namespace, settings: Settings) -> int:
    from console import explaining
    from console.checks.run import named

    if options.check is not None and options.text is not None:
        raise UsageError("explain wants a check or --text, not both")
    looks = {"as_json": options.json, "ascii_only": _ascii_only(settings)}
    if options.check is not None:
        one = named(options.check)
        with _collector(options, settings) as collect:
            return explaining.explain_check(one, collect, **looks)
    text = options.text
    if text is None:
        if sys.stdin is None or sys.stdin.isatty():
            raise UsageError("explain wants a check's id, --text, or a message on standard input")
        text = explaining.read_text(sys.stdin.buffer)
    with _collector(options, settings) as collect:
        return explaining.explain_text(text, collect, **looks)


def _ascii_only(settings: Settings) -> bool:
    from console.tui import terminal

    return settings.ui.ascii or not terminal.speaks_utf8(os.environ)


def _nothing_here(settings: Settings) -> bool:
    from console import compose

    return compose.nothing_here(settings)


def _demo(options: argparse.Namespace) -> str | None:
    return (options.scene or "healthy") if options.demo else None


def _console(options: argparse.Namespace, settings: Settings) -> int:
    from console import opening

    if settings.ui.theme and (problem := opening.unknown_theme(settings.ui.theme)):
        raise UsageError(problem)
    why_not = opening.no_terminal()
    if options.or_demo and not options.demo and _nothing_here(settings):
        print(
            "This box has nothing to show (no NVIDIA device, no Podman socket, no Triton): opening the simulated box."
        )
        options.demo = True
    if why_not is not None:
        which = "the simulated box" if options.demo else "this box"
        return _snapshot(options, settings, note=f"{why_not}: one snapshot of {which} instead of the console.")
    return opening.open_console(settings, demo=_demo(options), seed=options.seed)
