"""Why in full (design 1.14, `w`): one verdict at a time with its rule, figures and source, and its limits."""

from __future__ import annotations

from collections.abc import Mapping

from console.core.model import Effect, Helps, Verdict
from console.core.sign import Sign
from console.core.text import one_line
from console.tui.panes.base import Pane, View
from console.tui.panes.problems import VerdictKey, digit_of, key_of
from console.tui.panes.wording import paragraph, sign
from console.tui.screens import SCREENS
from console.tui.signs import SIGN_STYLES, SIGNS
from console.tui.widgets.cells import Line, between
from console.tui.widgets.lines import Row

CELLS = 12
ADVICE = 14
MOST = 8
BLANK = Row(())
HELPS: Mapping[Helps, Sign] = {"yes": "ok", "no": "warn", "cannot tell": "unknown"}


class WhyPane(Pane):
    """The chosen verdict; `j` `k` go to the next and the one before."""

    FIELDS = ("verdicts",)
    TICKS = False

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002  (Textual's own name)
        super().__init__(id=id)
        self.chosen: VerdictKey | None = None
        self._last = 0
        self.effects: Mapping[object, Effect] = {}
        """Of proposals by their deed, as far as it was reckoned."""
        self.reckoning = ""
        """Why there is none yet."""

    # -------------------------------------------------------------------------------------------------------- content

    def title(self, view: View) -> Line:
        verdicts = view.snapshot.verdicts
        if not verdicts:
            return (("Why", "title"),)
        at = self.place(verdicts)
        about = f"   {one_line(verdicts[at].model or '', 60)}" if verdicts[at].model else ""
        return ((f"Why{about}   {at + 1} of {len(verdicts)}", "title"),)

    def note(self, view: View) -> Line:
        return (("j k", "key"), (" next   ", "dim"), ("enter", "key"), (" opens its screen", "dim"))

    def lines(self, view: View) -> list[Row]:
        verdicts = view.snapshot.verdicts
        if not verdicts:
            return [Row((("nothing is judged: the first judgement comes some seconds after the start", "dim"),))]
        at = self.place(verdicts)
        shown = verdicts[at]
        return [*_verdict(shown, view), *self._proposals(shown, view.width), *_cannot_tell(verdicts, shown, view.width)]

    def _proposals(self, verdict: Verdict, width: int) -> list[Row]:
        """What may help, with what the batcher model expects of it."""
        if not verdict.proposals:
            return []
        made = [Row((("WHAT MAY HELP", "label"),))]
        for one in verdict.proposals:
            key: Line = ((f"   {one.key}", "key"),) if one.key else ()
            made.append(Row(((f"  {one_line(one.text, 200)}", ""), *key)))
            made += _text("    WHY", one.ground, width, cells=ADVICE)
            made += _expected(self.effects.get(one.deed), self.reckoning, width)
            if one.price:
                made += _text("    PRICE", one.price, width, cells=ADVICE)
        return [*made, BLANK]

    def place(self, verdicts: tuple[Verdict, ...]) -> int:
        """Where the chosen verdict is now; where it was when it went."""
        for number, verdict in enumerate(verdicts):
            if key_of(verdict) == self.chosen:
                self._last = number
                return number
        return min(self._last, len(verdicts) - 1)

    # ----------------------------------------------------------------------------------------------------------- keys

    def move(self, steps: int) -> None:
        """The next verdict; long ones scroll by page."""
        verdicts = self.view.snapshot.verdicts if self.view else ()
        if not verdicts:
            return
        at = max(0, min(len(verdicts) - 1, self.place(verdicts) + steps))
        self.chosen = key_of(verdicts[at])
        self.top = 0
        self.again()

    def move_pages(self, pages: float) -> None:
        self.scroll_rows(int(self.inner.height * pages) or (1 if pages > 0 else -1))

    def choose(self, key: VerdictKey | None) -> None:
        """Show this verdict."""
        self.chosen = key
        self.again()

    def verdict(self) -> Verdict | None:
        """The one that is shown."""
        verdicts = self.view.snapshot.verdicts if self.view else ()
        return verdicts[self.place(verdicts)] if verdicts else None

    def yank(self) -> str:
        verdict = self.verdict()
        if verdict is None:
            return ""
        return "\n".join(part for part in (verdict.title, *verdict.lines, verdict.rule, verdict.figures) if part)

    def changes(self) -> object:
        return self.chosen, self.effects, self.reckoning


def _verdict(verdict: Verdict, view: View) -> list[Row]:
    width = view.width
    right: Line = ((f"{one_line(verdict.trust, 20)}   {one_line(verdict.id, 8)}", "dim"),)
    since = f"   since {view.clock(verdict.since_wall)}" if verdict.since_wall else ""
    head: Line = (sign(verdict.sign), (f" {one_line(verdict.title, 400)}", "title"), (since, "dim"))
    made = [Row(between(head, right, width))]
    made += [row for text in verdict.lines for row in _text("", text, width, cells=2)]
    for label, text in (
        ("RULE", verdict.rule),
        ("FIGURES", verdict.figures),
        ("FROM", verdict.source),
        ("MEANS", verdict.means),
        ("DOES NOT", verdict.does_not),
    ):
        if text:
            made += _text(f"  {label}", text, width)
    made += _next(verdict)
    for number, text in enumerate(verdict.consequences):
        made += _text("  SO" if not number else "", text, width)
    made.append(BLANK)
    if verdict.not_so:
        named = "   ".join(f"{one_line(text, 80)} ○" for text in verdict.not_so)
        made.append(Row((("LOOKED AT AND NOT SO", "label"),)))
        made += [*_text("", named, width, cells=2), BLANK]
    return made


def _expected(effect: Effect | None, reckoning: str, width: int) -> list[Row]:
    """What the batcher model says of a proposal; where it says nothing, why."""
    label = "    EXPECTED"
    if effect is None:
        return paragraph(label, reckoning, width, "dim", cells=ADVICE)
    value = HELPS[effect.helps]
    trust = f"   (trust {effect.trust})" if effect.trust else ""
    text = f"{SIGNS[value]} {one_line(effect.text)}{trust}"
    reasons = [row for reason in effect.reasons for row in _text("", reason, width, cells=ADVICE)]
    return [*paragraph(label, text, width, SIGN_STYLES[value], most=MOST, cells=ADVICE), *reasons]


def _text(label: str, text: str, width: int, cells: int = CELLS) -> list[Row]:
    return paragraph(label, one_line(text), width, most=MOST, cells=cells)


def _next(verdict: Verdict) -> list[Row]:
    digit = digit_of(verdict)
    title = next((one.title for one in SCREENS if digit and one.digit == digit), "")
    if title:
        return [Row((("  NEXT      ", "label"), (digit, "key"), (f"  {title}", "")))]
    return [Row((("  NEXT      ", "label"), (one_line(verdict.next_key, 8), "key")))] if verdict.next_key else []


def _cannot_tell(verdicts: tuple[Verdict, ...], shown: Verdict, width: int) -> list[Row]:
    """What stays unseen whatever the verdict, so that nobody takes silence for health."""
    others = [one for one in verdicts if one.sign == "unknown" and one is not shown]
    made: list[Row] = []
    for number, one in enumerate(others):
        made += paragraph("CANNOT TELL" if not number else "", one_line(one.title), width, "dim", most=2, cells=13)
    return made
