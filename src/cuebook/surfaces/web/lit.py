"""A drawing of a playbook that lights up as its run goes on: a box for each step, coloured by what became of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from markupsafe import Markup

from cuebook.kernel.events import Forked, Planned, Rewound, RunFinished
from cuebook.kernel.journal import Entry
from cuebook.surfaces.web.cards import Card
from cuebook.surfaces.web.drawing import Drawing, arrow_svg, attribute, box_svg, laid_out, svg
from cuebook.surfaces.web.picture import Picture

_TALLEST = 448
"""A run's page has other things to show as well."""
UNTOUCHED = ("pending", "skipped")
_BOX, _ARROW = "box-", "arrow-"


class Lit:
    """Boxes are known by the labels of their steps."""

    def __init__(self, drawing: Drawing, title: str) -> None:
        self._layout = laid_out(drawing)
        self._title = title
        boxes, arrows = self._layout.drawing.boxes, self._layout.drawing.arrows
        self._box = {box.id: number for number, box in enumerate(boxes)}
        self._at: dict[str, list[int]] = {}
        """The arrows that touch each box."""
        for number, arrow in enumerate(arrows):
            for end in {arrow.from_, arrow.to}:
                self._at.setdefault(end, []).append(number)
        self._arrow = {arrow.id: number for number, arrow in enumerate(arrows) if arrow.id}
        self.statuses: dict[str, tuple[str, int]] = {}
        """What became of each box's step, and at which visit."""
        self.taken: dict[str, int] | None = None
        """How often the arrows with ids were followed; None where only the boxes tell."""

    def see(self, entry: Entry, run: Picture) -> list[str]:
        """The parts that an entry changed."""
        event = entry.event
        if isinstance(event, Rewound | RunFinished | Forked | Planned):
            seen = {card.row.label: _state(card) for card in run}
            changed = [label for label in self._box if seen.get(label) != self.statuses.get(label)]
            self.statuses = seen
            return self._names(changed)
        place = entry.place
        label = str(getattr(event, "label", "") or place.step)
        card = run.card(place.path, label, place.visit) or run.card_at(place)
        if card is None or card.row.label not in self._box or self.statuses.get(card.row.label) == _state(card):
            return []
        self.statuses[card.row.label] = _state(card)
        return self._names([card.row.label])

    def names_of(self, arrows: Iterable[str]) -> list[str]:
        """The parts of arrows with these ids."""
        return [f"{_ARROW}{self._arrow[id]}" for id in arrows if id in self._arrow]

    def has(self, part: str) -> bool:
        return part.startswith((_BOX, _ARROW))

    def part(self, name: str) -> str:
        number = int(name.rpartition("-")[2])
        drawn = self._drawn_box(number) if name.startswith(_BOX) else self._drawn_arrow(number)
        return str(Markup("<svg>{}</svg>").format(drawn))

    def picture(self) -> Markup:
        boxes, arrows = self._layout.drawing.boxes, self._layout.drawing.arrows
        return svg(
            self._layout,
            self._title,
            [self._drawn_box(number) for number in range(len(boxes))],
            [self._drawn_arrow(number) for number in range(len(arrows))],
            tallest=_TALLEST,
        )

    # --- inside ---

    def _names(self, labels: Sequence[str]) -> list[str]:
        boxes = [f"{_BOX}{self._box[label]}" for label in labels]
        if self.taken is not None:
            return boxes
        arrows = dict.fromkeys(number for label in labels for number in self._at.get(label, ()))
        return [*boxes, *(f"{_ARROW}{number}" for number in arrows)]

    def _drawn_box(self, number: int) -> Markup:
        box = self._layout.drawing.boxes[number]
        status, visit = self.statuses.get(box.id, ("pending", 1))
        around = attribute(id=f"{_BOX}{number}", data_part="", data_status=status)
        return box_svg(self._layout, number, attributes=around, mark=f" ×{visit}" if visit > 1 else "")

    def _drawn_arrow(self, number: int) -> Markup:
        arrow = self._layout.drawing.arrows[number]
        times = self.taken.get(arrow.id, 0) if self.taken is not None else int(self._followed(number))
        around = attribute(id=f"{_ARROW}{number}", data_part="", data_taken="yes" if times else "no")
        return arrow_svg(self._layout, number, attributes=around, mark=f" ×{times}" if times > 1 else "")

    def _followed(self, number: int) -> bool:
        """As far as the boxes at its ends tell. The way that is left when no other is taken, only then."""
        arrows = self._layout.drawing.arrows
        arrow = arrows[number]
        if not (self._begun(arrow.from_) and self._begun(arrow.to)):
            return False
        others = [one for place, one in enumerate(arrows) if one.from_ == arrow.from_ and place != number]
        return arrow.kind != "otherwise" or not any(self._begun(one.to) for one in others)

    def _begun(self, id: str) -> bool:
        box = self._layout.drawing.boxes[self._box[id]]
        if box.kind == "start":
            return bool(self.statuses)
        if box.kind == "end":
            before = [self._layout.drawing.arrows[number].from_ for number in self._at.get(id, ())]
            return any(self.statuses.get(one, ("",))[0] == "completed" for one in before)
        return self.statuses.get(id, ("pending", 1))[0] not in UNTOUCHED


def _state(card: Card) -> tuple[str, int]:
    return card.status, card.row.visit
