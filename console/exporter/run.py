"""The exporter's life: follows the box once a second and keeps the newest moment for whoever scrapes."""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib import resources

from console.alerts.engine import Engine
from console.alerts.rules import thresholds
from console.alerts.watch import EVERY
from console.config import Alerts
from console.core.ending import told_to_end
from console.core.following import Following, Judge
from console.core.session import Session
from console.exporter.metrics import Told, families
from console.exporter.server import Server, serve

SECOND = 1.0
DASHBOARD, SCRAPE = "dashboard.json", "scrape.yml"


def file(name: str) -> str:
    """A file that goes with the metrics: the Grafana dashboard or the scrape configuration."""
    return resources.files("console.exporter").joinpath("files", name).read_text("utf-8")


class Kept:
    """The newest moment; written by the following thread, read by those that answer."""

    def __init__(self) -> None:
        self.told = Told()


def listen(where: tuple[str, int]) -> tuple[Server, Kept]:
    """Open the socket, before the box is read: a wrong address is said at once. WrongInput."""
    kept = Kept()
    return serve(where, lambda: families(kept.told)), kept


def run(
    session: Session, judge: Judge, settings: Alerts, server: Server, kept: Kept, say: Callable[[str], None]
) -> int:
    """Follow until told to end; the exit code. Alerts are judged and exported, but nobody is called: that is for
    Prometheus' own."""
    engine = Engine(thresholds(settings))
    with told_to_end() as ended:
        following = Following(session, judge)
        try:
            say(f"{server.url}; ctrl+c ends it")
            snapshot = following.begin(ended)
            looked, due = float("-inf"), time.monotonic()
            while not ended.told:
                if snapshot.seq and snapshot.mono - looked >= EVERY:
                    looked = snapshot.mono
                    engine.look(snapshot, following.store.history)
                kept.told = Told(snapshot, engine.active)
                due = max(due + SECOND, time.monotonic())
                snapshot = following.until(due, ended)
        finally:
            server.shutdown()
            server.server_close()
            session.stop(0.2)
    return 0
