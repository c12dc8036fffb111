"""Drawings: the playbook's boxes and arrows, coloured by the state of the run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from markupsafe import Markup

from cuebook.dialects.presentation.drawing import Drawing
from cuebook.dialects.presentation.panels import Followed, Panel
from cuebook.dialects.presentation.projection import Projection, Update
from cuebook.kernel.events import Forked, Planned, Rewound, RunFinished
from cuebook.kernel.journal import ROOT, Entry
from cuebook.surfaces.web.drawing.layout import arrow_svg, attribute, box_svg, laid_out, svg
from cuebook.surfaces.web.live.cards import Card
from cuebook.surfaces.web.live.run_page import Picture
from cuebook.surfaces.web.pages.render import piece
from cuebook.surfaces.web.panels.view import PanelView

_TALLEST = 448
"""Height limit of a drawing on a run's page, which also has other content."""
_UNTOUCHED = ("pending", "skipped")
_BOX, _ARROW = "box-", "arrow-"


class DrawingView(PanelView):
    """Draws boxes with the status of their steps."""

    def __init__(self, panel: Panel, projection: Projection, drawing: Drawing, title: str) -> None:
        super().__init__(panel, projection)
        self._layout = laid_out(drawing)
        self._title = title
        boxes, arrows = self._layout.drawing.boxes, self._layout.drawing.arrows
        self._box = {box.id: number for number, box in enumerate(boxes)}
        self._boxes: dict[str, list[int]] = {}
        """The boxes of each step, by its label."""
        for number, box in enumerate(boxes):
            if box.step:
                self._boxes.setdefault(box.step, []).append(number)
        self._at: dict[str, list[int]] = {}
        """The arrows that touch each box."""
        for number, arrow in enumerate(arrows):
            for end in {arrow.from_, arrow.to}:
                self._at.setdefault(end, []).append(number)
        self._arrow = {arrow.id: number for number, arrow in enumerate(arrows) if arrow.id}
        self._statuses: dict[str, tuple[str, int]] = {}
        """The status of each step and its visit, by its label."""
        self._taken = self._followed_now()
        """How often each arrow with an id was followed; None if only the boxes show it."""

    def see(self, entry: Entry, run: Picture, update: Update, *, changed: bool) -> Sequence[str]:
        parts = self._changed_boxes(entry, run)
        if changed:
            before, self._taken = self._taken or {}, self._followed_now()
            now = self._taken or {}
            parts += self._arrow_names(id for id in (before | now) if before.get(id) != now.get(id))
        return parts

    def _changed_boxes(self, entry: Entry, run: Picture) -> list[str]:
        event = entry.event
        if isinstance(event, Rewound | RunFinished | Forked | Planned):
            seen = {label: (run.loops.status(label), 1) for label in self._boxes if run.loops.status(label)}
            seen |= {card.row.label: _state(card) for card in run}
            changed = [label for label in self._boxes if seen.get(label) != self._statuses.get(label)]
            self._statuses = seen
            return self._names(changed)
        place = entry.place
        label = str(getattr(event, "label", "") or place.step)
        card = run.card(place.path, label, place.visit) or run.card_at(place)
        if card is not None and card.in_loop:
            return self._changed_in_loop(card.row.label.partition("[")[0], run)
        if card is None or card.row.label not in self._boxes or self._statuses.get(card.row.label) == _state(card):
            return []
        self._statuses[card.row.label] = _state(card)
        return self._names([card.row.label])

    def _changed_in_loop(self, step: str, run: Picture) -> list[str]:
        """A step inside a loop has one box, which shows the status of all items together."""
        state = (run.loops.status(step), 1)
        if step not in self._boxes or run.card(ROOT, step, 1) is not None or self._statuses.get(step) == state:
            return []
        self._statuses[step] = state
        return self._names([step])

    def _followed_now(self) -> dict[str, int] | None:
        content = self.projection.panel(self.panel.name)
        return dict(content.counts) if isinstance(content, Followed) else None

    def _arrow_names(self, arrows: Iterable[str]) -> list[str]:
        return [f"{_ARROW}{self._arrow[id]}" for id in arrows if id in self._arrow]

    def part(self, name: str, run: Picture) -> str:
        number = int(name.rpartition("-")[2])
        drawn = self._drawn_box(number) if name.startswith(_BOX) else self._drawn_arrow(number)
        return str(Markup("<svg>{}</svg>").format(drawn))

    def html(self, run: Picture) -> Markup:
        boxes, arrows = self._layout.drawing.boxes, self._layout.drawing.arrows
        drawing = svg(
            self._layout,
            self._title,
            [self._drawn_box(number) for number in range(len(boxes))],
            [self._drawn_arrow(number) for number in range(len(arrows))],
            tallest=_TALLEST,
        )
        return piece("panels/drawing.html", drawing=drawing)

    # --- inside ---

    def _names(self, labels: Sequence[str]) -> list[str]:
        numbers = [number for label in labels for number in self._boxes[label]]
        boxes = [f"{_BOX}{number}" for number in numbers]
        if self._taken is not None:
            return boxes
        ids = [self._layout.drawing.boxes[number].id for number in numbers]
        arrows = dict.fromkeys(number for id in ids for number in self._at.get(id, ()))
        return [*boxes, *(f"{_ARROW}{number}" for number in arrows)]

    def _drawn_box(self, number: int) -> Markup:
        box = self._layout.drawing.boxes[number]
        status, visit = self._statuses.get(box.step, ("pending", 1))
        around = attribute(id=f"{_BOX}{number}", data_part="", data_status=status)
        return box_svg(self._layout, number, attributes=around, mark=f" ×{visit}" if visit > 1 else "")

    def _drawn_arrow(self, number: int) -> Markup:
        arrow = self._layout.drawing.arrows[number]
        times = self._taken.get(arrow.id, 0) if self._taken is not None else int(self._followed(number))
        around = attribute(id=f"{_ARROW}{number}", data_part="", data_taken="yes" if times else "no")
        return arrow_svg(self._layout, number, attributes=around, mark=f" ×{times}" if times > 1 else "")

    def _followed(self, number: int) -> bool:
        """Whether the boxes at both ends show that it was followed; an "otherwise" arrow, only if no other arrow was."""
        arrows = self._layout.drawing.arrows
        arrow = arrows[number]
        if not (self._begun(arrow.from_) and self._begun(arrow.to)):
            return False
        others = [one for place, one in enumerate(arrows) if one.from_ == arrow.from_ and place != number]
        return arrow.kind != "otherwise" or not any(self._begun(one.to) for one in others)

    def _begun(self, id: str) -> bool:
        box = self._layout.drawing.boxes[self._box[id]]
        if box.kind == "start":
            return bool(self._statuses)
        if box.kind == "end":
            before = [self._layout.drawing.arrows[number].from_ for number in self._at.get(id, ())]
            steps = [self._layout.drawing.boxes[self._box[one]].step for one in before]
            return any(self._statuses.get(one, ("",))[0] == "completed" for one in steps)
        return self._statuses.get(box.step, ("pending", 1))[0] not in _UNTOUCHED


def _state(card: Card) -> tuple[str, int]:
    return card.status, card.row.visit
