"""`E`: the chart or table that has the keys, as a CSV file. Load, its comparison and Tune have their own."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from console.clients.files import write_private
from console.tui.commands import PaneCommand

if TYPE_CHECKING:
    from console.tui.app import ConsoleApp
    from console.tui.panes.base import Pane

FOLDER = "exports"
SCOPES = ("overview", "models", "checks", "timeline", "gpu", "problems")


class Export(PaneCommand):
    """Export this table or chart (CSV)."""

    KEYS, LABEL = ("E",), "export"

    def on_pane(self, pane: Pane, app: ConsoleApp) -> None:
        # here and not above: the panes of other screens are imported after the first paint
        from console.tui.tables import csv_of, table_of

        table = None if pane.view is None else table_of(pane, pane.view)
        if table is None:
            app.tell("this pane is neither a chart nor a table")
            return
        path = app.state.folder / FOLDER / f"{pane.id}-{time.strftime('%Y%m%d-%H%M%S')}.csv"
        try:
            write_private(path, csv_of(table))
        except OSError as error:
            app.tell(f"nothing could be written to {path.parent}: {error.strerror}")
            return
        app.notify(f"{len(table) - 1} rows written to {path}", timeout=10, markup=False)


def _on_screen(name: str) -> None:
    type(f"Export{name.title()}", (Export,), {"ID": f"{name}.export", "SCOPE": name, "__doc__": Export.__doc__})


for _scope in SCOPES:
    _on_screen(_scope)
