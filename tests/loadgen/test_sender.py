"""The sender's process against a small server: bounds, times, errors by kind, content, and how it ends."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from console.core.golden import Golden, GoldenOutput
from console.core.plan import Refused, WrongInput
from console.loadgen import sender
from console.loadgen.errors import CLOSED, NEVER_SENT, NOT_HTTP, REFUSED, TIMEOUT, WRONG
from console.loadgen.launch import Sender, resolve
from console.loadgen.order import GO, Asked, Broken, Ended, Order, Progress, Warmed, encoder, messages, request
from console.loadgen.schedule import make, warm_up
from console.loadgen.tally import Tally
from tests.loadgen.server import Server, serving


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as made:
        yield made


def order(port: int, loop: str, levels: str, seconds: float, **more: Any) -> Order:
    warm, count = more.pop("warm", 0.0), more.pop("count", 0)
    load = make(loop, levels, seconds, count=count, poisson=more.pop("poisson", False))  # type: ignore[arg-type]
    bodies = more.pop("bodies", (b"x",))
    sent = tuple(request("/v2/models/m/infer", f"127.0.0.1:{port}", one, {"X": "y"}) for one in bodies)
    asked = Asked(sent, (("SCORE", "FP32"),), more.pop("golden", None))
    return replace(Order("127.0.0.1", port, (asked,), load, warm_up(load, warm)), **more)


def carried_out(wanted: Order) -> Ended:
    with Sender(wanted, read_only=False) as sender:
        for message in sender.messages():
            if isinstance(message, Warmed):
                sender.go()
            if isinstance(message, Ended):
                return message
            assert not isinstance(message, Broken), message
    raise AssertionError


def test_closed_loop_keeps_its_callers_and_counts_what_it_sent(server: Server) -> None:
    server.delay_s = 0.01
    ended = carried_out(order(server.port, "closed", "4", 1.0))
    client = ended.client
    assert ended.ended == "duration"
    assert client.sent == client.done == client.latency.count == len(server.got)
    assert server.most_open == client.connections == 4
    assert client.throughput < 4 / 0.01
    assert client.errors == {}
    assert client.latency.p50 is not None
    assert client.latency.p50 >= 10
    assert client.in_time <= client.done <= client.in_time + 4


def test_open_loop_sends_exactly_what_is_due_however_slow_the_answers(server: Server) -> None:
    server.delay_s = 0.3
    ended = carried_out(order(server.port, "open", "100", 1.0))
    assert ended.client.sent == ended.client.done == len(server.got) == 100
    gaps = [b - a for a, b in zip(server.times, server.times[1:], strict=False)]
    assert 0.9 < sum(gaps) < 1.2


def test_a_count_bounds_both_loops(server: Server) -> None:
    for loop, levels in (("closed", "3"), ("open", "500")):
        before = len(server.got)
        ended = carried_out(order(server.port, loop, levels, 30.0, count=10))
        assert ended.ended == "count"
        assert len(server.got) - before == ended.client.done == 10
        assert ended.client.seconds < 10


def test_warm_up_is_left_out(server: Server) -> None:
    with Sender(order(server.port, "open", "50", 0.4, warm=0.4), read_only=False) as sender:
        for message in sender.messages():
            if isinstance(message, Warmed):
                assert (message.done, message.errors) == (20, 0)
                time.sleep(0.1)
                assert len(server.got) == 20
                sender.go()
            if isinstance(message, Ended):
                assert message.client.sent == 20
                break
    assert len(server.got) == 40


def test_each_step_has_its_figures(server: Server) -> None:
    server.delay_s = 0.01
    client = carried_out(order(server.port, "open", "50,100", 2.0)).client
    one, two = client.stages
    assert (one.sent, two.sent, client.sent) == (50, 100, 150)
    assert (one.begin, one.seconds, two.begin, two.seconds) == (0.0, 1.0, 1.0, 1.0)
    assert one.latency.count + two.latency.count == client.latency.count == 150
    assert (one.errors, two.errors) == (0, 0)
    assert 45 <= one.done <= 50
    assert one.done + two.done == client.in_time
    server.mood, server.every = "503", 2
    client = carried_out(order(server.port, "closed", "2,4,8", 3.0, max_errors=1.0)).client
    assert sum(stage.errors for stage in client.stages) == sum(one.count for one in client.errors.values()) > 100
    rates = [stage.throughput for stage in client.stages]
    assert rates == sorted(rates)
    ended = carried_out(order(server.port, "open", "50,100,50", 30.0, count=5, max_errors=1.0))
    assert [(stage.sent, round(stage.seconds, 1) < 1) for stage in ended.client.stages] == [(5, True)]


def test_several_models_get_their_shares_and_have_their_figures(server: Server) -> None:
    def two(loop: str, levels: str, **more: Any) -> Order:
        wanted = order(server.port, loop, levels, 30.0, **more)
        bodies, outputs = ((b"a", b"b", b"c"), ((("SCORE", "FP32"),), (("OTHER", "FP32"),), (("SCORE", "FP32"),)))
        asked = [
            Asked((request("/x", "127.0.0.1", body, {}),), output, share=share)
            for body, output, share in zip(bodies, outputs, (0.5, 0.3, 0.2), strict=True)
        ]
        return replace(wanted, models=tuple(asked))

    for loop, levels in (("closed", "3"), ("open", "400")):
        before = len(server.got)
        client = carried_out(two(loop, levels, count=100, max_errors=1.0)).client
        assert [share.sent for share in client.shares] == [50, 30, 20]
        assert [share.done for share in client.shares] == [50, 0, 20]
        assert client.shares[1].errors[WRONG].count == 30
        assert client.shares[1].errors[WRONG].text == "output OTHER is missing"
        assert (client.sent, client.done, client.latency.count) == (100, 70, 70)
        sent = server.got[before:]
        assert [sent.count(body) for body in (b"a", b"b", b"c")] == [50, 30, 20]
        assert sent[:10].count(b"a") == 5


def test_progress_is_of_the_warm_up_until_the_measured_part_begins() -> None:
    """Also where `go` was heard in the same turn."""
    (inbox, _), (outbox, told) = os.pipe(), os.pipe()
    made = sender.Sender(order(1, "open", "50", 0.3, warm=0.3), inbox, told, GO)
    made._hear(b"")
    now = time.monotonic_ns()
    made._tally = Tally()
    made._tally.begin(now - 2_000_000_000, now - 1_000_000_000)
    made._look_after(now)
    message = messages.decode(os.read(outbox, 4096))
    assert isinstance(message, Progress)
    assert message.at == 0.0


def test_bodies_go_round(server: Server) -> None:
    carried_out(order(server.port, "closed", "1", 5.0, count=5, bodies=(b"a", b"b")))
    assert server.got == [b"a", b"b", b"a", b"b", b"a"]


def test_progress_comes_while_it_runs(server: Server) -> None:
    server.delay_s = 0.005
    seen = []
    with Sender(order(server.port, "closed", "2", 2.5, warm=1.2), read_only=False) as sender:
        for message in sender.messages():
            if isinstance(message, Warmed):
                sender.go()
            if isinstance(message, Progress):
                seen.append(message)
            if isinstance(message, Ended):
                break
    assert [round(one.at) for one in seen] == [0, 1, 2]
    assert all(one.rate > 50 and one.p50 is not None and one.p50 >= 5 for one in seen)
    assert isinstance(message, Ended)
    assert 2.0 <= message.client.slices[-1].at < 2.8


@pytest.mark.parametrize(
    ("mood", "kind", "words"),
    [
        ("503", "http 503", "Exceeds maximum queue size"),
        ("empty", WRONG, "output SCORE has 0 of 4 bytes"),
        ("missing", WRONG, "output SCORE is missing"),
        ("close", CLOSED, ""),
        ("garbage", NOT_HTTP, "first line"),
        ("chunked", NOT_HTTP, "in chunks"),
    ],
)
def test_errors_by_kind(server: Server, mood: str, kind: str, words: str) -> None:
    server.mood, server.every, server.delay_s = mood, 5, 0.002
    client = carried_out(order(server.port, "closed", "2", 30.0, count=50, max_errors=1.0)).client
    assert set(client.errors) == {kind}
    assert client.errors[kind].count == 10
    assert words in client.errors[kind].text
    assert client.done == 40
    assert client.sent == len(server.got) == 50


def test_a_silent_server_is_a_timeout(server: Server) -> None:
    server.mood, server.every = "silent", 10
    client = carried_out(order(server.port, "closed", "2", 30.0, count=20, timeout_s=0.5)).client
    assert client.errors[TIMEOUT].count == 2
    assert client.done == 18


@pytest.mark.parametrize("mood", ["bye", "slow-parts"])
def test_closed_connections_and_answers_in_parts_are_no_error(server: Server, mood: str) -> None:
    server.mood = mood
    client = carried_out(order(server.port, "closed", "2", 30.0, count=30)).client
    assert (client.done, client.errors) == (30, {})


def test_too_many_errors_stop_it(server: Server) -> None:
    server.mood, server.every, server.delay_s = "503", 2, 0.001
    ended = carried_out(order(server.port, "closed", "4", 20.0))
    assert ended.ended.startswith("errors: ")
    assert "http 503" in ended.ended
    assert ended.client.seconds < 5


def golden(value: float) -> Golden:
    return Golden("m", "1", 0.0, b"", {}, "", (GoldenOutput("SCORE", "FP32", (1, 1), (value,)),))


def test_answers_are_held_against_the_kept_one(server: Server) -> None:
    kept = order(server.port, "closed", "2", 30.0, count=20, golden=golden(1.5), max_errors=1.0)
    assert carried_out(kept).client.errors == {}
    server.value = 1.6
    errors = carried_out(kept).client.errors
    assert errors[WRONG].count == 20
    assert errors[WRONG].text == "SCORE: value 0 is 1.6, kept 1.5"


def test_a_stall_shows_in_the_open_loop_and_hides_in_the_closed_one(server: Server) -> None:
    server.delay_s = 0.002

    def p99(wanted: Order) -> float:
        with Sender(wanted, read_only=False) as sender:
            for message in sender.messages():
                if isinstance(message, Warmed):
                    sender.go()
                    server.frozen_until = time.monotonic() + 1.5
                    time.sleep(0.5)
                if isinstance(message, Ended):
                    assert message.client.latency.p99 is not None
                    return message.client.latency.p99
        raise AssertionError

    assert p99(order(server.port, "open", "100", 4.0)) > 900
    assert p99(order(server.port, "closed", "4", 4.0)) < 500


def test_more_in_flight_than_connections_waits_and_is_counted_from_its_time(server: Server) -> None:
    server.delay_s = 0.1
    client = carried_out(order(server.port, "open", "100", 1.0, max_connections=2)).client
    assert server.most_open == 2
    assert client.done == 100
    assert client.late > 80
    assert client.latency.max is not None
    assert client.latency.max > 3000


def test_what_was_sent_last_is_waited_for_as_long_as_what_was_sent_first(server: Server) -> None:
    server.delay_s = 0.3
    wanted = order(server.port, "open", "40", 1.0, max_connections=2, timeout_s=1.0, max_errors=1.0)
    client = carried_out(wanted).client
    assert set(client.errors) == {NEVER_SENT}
    assert client.done == client.sent == len(server.got)
    assert client.done + client.errors[NEVER_SENT].count == 40
    server.mood = "silent"
    client = carried_out(order(server.port, "open", "20", 0.5, timeout_s=0.5, max_errors=1.0)).client
    assert client.errors[TIMEOUT].count == client.sent == 10
    assert client.wall_s < 5


def test_it_does_not_begin_where_nobody_listens() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with Sender(order(port, "closed", "4", 1.0), read_only=False) as sender:
            assert next(sender.messages()) == Broken("Connection refused")


def test_a_server_that_goes_is_refused_and_not_asked_in_a_spin(server: Server) -> None:
    with serving() as other:
        wanted = order(other.port, "closed", "2", 1.0, max_errors=1.0)
        sender = Sender(wanted, read_only=False)
        assert isinstance(next(sender.messages()), Warmed)
    with sender:
        sender.go()
        ended = next(one for one in sender.messages() if isinstance(one, Ended))
    assert 10 < ended.client.errors[REFUSED].count < 200
    assert ended.client.cpu_share < 0.5


def test_stop_ends_it_at_once_and_tells_what_was(server: Server) -> None:
    server.delay_s = 0.01
    with Sender(order(server.port, "closed", "4", 600.0), read_only=False) as sender:
        for message in sender.messages():
            if isinstance(message, Warmed):
                sender.go()
            if isinstance(message, Progress):
                told = time.monotonic()
                sender.stop()
            if isinstance(message, Ended):
                break
    assert time.monotonic() - told < 2
    assert isinstance(message, Ended)
    assert message.ended == "stopped"
    assert message.client.done == message.client.sent == len(server.got)


def test_it_ends_when_its_starter_is_killed(server: Server) -> None:
    server.delay_s = 0.005
    program = "import sys, time; from console.loadgen.launch import Sender; from console.loadgen.order import orders\n"
    program += "sender = Sender(orders.decode(sys.stdin.buffer.readline()), read_only=False); m = sender.messages()\n"
    program += "next(m); sender.go(); print(sender.pid, flush=True); time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as starter:
        assert starter.stdin is not None
        assert starter.stdout is not None
        starter.stdin.write(encoder.encode(order(server.port, "closed", "4", 600.0)) + b"\n")
        starter.stdin.flush()
        pid = int(starter.stdout.readline())
        time.sleep(0.3)
        starter.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 5
    while server.open and time.monotonic() < deadline:
        time.sleep(0.05)
    assert server.open == 0
    sent = len(server.got)
    time.sleep(0.3)
    assert len(server.got) == sent
    assert _state(pid) in ("", "Z")  # ended; whoever inherited it may be slow to notice


def _state(pid: int) -> str:
    """Of a process; "" when there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def test_read_only_starts_nothing(server: Server) -> None:
    with pytest.raises(Refused, match="read-only: no load is sent"):
        Sender(order(server.port, "closed", "1", 1.0), read_only=True)
    assert server.got == []


def test_other_hosts_are_refused_unless_meant() -> None:
    assert resolve("127.0.0.1", 80, "4 at once", remote=False) == "127.0.0.1"
    assert resolve("localhost", 80, "4 at once", remote=False) in ("127.0.0.1", "::1")
    with pytest.raises(
        WrongInput, match=r"another host \(192\.0\.2\.1\), which would get 4 at once: add --remote-host-is-meant"
    ):
        resolve("192.0.2.1", 80, "4 at once", remote=False)
    assert resolve("192.0.2.1", 80, "4 at once", remote=True) == "192.0.2.1"
    with pytest.raises(WrongInput, match="cannot be resolved"):
        resolve("no such host.invalid", 80, "4 at once", remote=True)
