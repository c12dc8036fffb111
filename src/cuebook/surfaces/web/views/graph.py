"""A workflow: its graph lights up node by node and edge by edge, and a list says why each way was taken."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from cuebook.dialects.graph.model import Workflow
from cuebook.kernel.events import Noted, Rewound
from cuebook.kernel.journal import Entry, same_line
from cuebook.surfaces.web.drawing import Arrow, Box, Drawing
from cuebook.surfaces.web.lit import Lit
from cuebook.surfaces.web.picture import Picture
from cuebook.surfaces.web.rendering import piece
from cuebook.surfaces.web.views import About, DialectView, Need
from cuebook.views import route_words

_ROUTE, _ROUTES = "route-", "routes"


class Route(NamedTuple):
    """One way that was taken."""

    seq: int
    path: str
    data: dict[str, Any]

    @property
    def words(self) -> str:
        return route_words(self.data)

    @property
    def arrow(self) -> str:
        """The id of the arrow that it follows; empty where none is drawn."""
        if "edge" in self.data:
            return f"edge {self.data['edge']}"
        return f"{self.data.get('from')}\0{self.data.get('to')}"


def about(workflow: Workflow) -> About:
    return About(drawing(workflow), tuple(_needs(workflow)), len(workflow.nodes))


def view(workflow: Workflow) -> GraphView:
    return GraphView(workflow)


class GraphView(DialectView):
    def __init__(self, workflow: Workflow) -> None:
        self._lit = Lit(drawing(workflow), f"The graph of {workflow.name}")
        self._routes: list[Route] = []
        self._count()

    def see(self, entry: Entry, run: Picture) -> Sequence[str]:
        changed = self._lit.see(entry, run)
        match entry.event:
            case Noted(name="route", data=data):
                route = Route(entry.seq, entry.place.path, dict(data))
                self._routes.append(route)
                self._count()
                return [*changed, *self._lit.names_of([route.arrow]), f"{_ROUTE}{entry.seq}"]
            case Rewound(seq=seq, path=path):
                void = [one for one in self._routes if one.seq >= seq and same_line(one.path, path)]
                self._routes = [one for one in self._routes if one not in void]
                self._count()
                arrows = self._lit.names_of(dict.fromkeys(one.arrow for one in void))
                return [*changed, *arrows, _ROUTES] if void else changed
            case _:
                return changed

    def part(self, name: str, run: Picture) -> str:
        if self._lit.has(name):
            return self._lit.part(name)
        if name == _ROUTES:
            return str(piece("view-routes.html", routes=self._routes, whole=True))
        place = next(place for place, one in enumerate(self._routes) if f"{_ROUTE}{one.seq}" == name)
        return str(piece("view-routes.html", routes=self._routes[place : place + 1], whole=False))

    def panels(self, run: Picture) -> str:
        routes = piece("view-routes.html", routes=self._routes, whole=True)
        return str(
            piece("view-drawing.html", drawing=self._lit.picture(), besides=routes, besides_title="Why this way")
        )

    def _count(self) -> None:
        self._lit.taken = {}
        for route in self._routes:
            self._lit.taken[route.arrow] = self._lit.taken.get(route.arrow, 0) + 1


def drawing(workflow: Workflow) -> Drawing:
    boxes = []
    for id, node in workflow.nodes.items():
        extra = workflow.extras.nodes.get(id)
        more = ("asks you first",) if extra is not None and extra.approval else ()
        name = f"{node.name or id} ▸" if id == workflow.entry else node.name or id
        boxes.append(Box(id, (name, *more), "entry" if id == workflow.entry else "step"))
    return Drawing(tuple(boxes), tuple(_arrows(workflow)))


def _arrows(workflow: Workflow) -> Iterator[Arrow]:
    """Edges, and ways into and out of branches. Within a fan-out an edge to a sibling ends the branch: it leads on to
    where all come together.
    """
    fans = workflow.extras.fan_out
    begun = dict.fromkeys((fan.node, to) for fan in fans for to in fan.to)
    join = {to: fan.join for fan in fans for to in fan.to}
    ended: dict[tuple[str, str], None] = {}
    for edge in workflow.edges:
        if (edge.from_, edge.to) in begun:
            continue
        if edge.to in join and edge.from_ != join[edge.to]:
            ended.setdefault((edge.from_, join[edge.to]))
            continue
        bound = f"at most {edge.max_iterations}×" if edge.max_iterations is not None else ""
        label = " · ".join(part for part in (edge.when, bound) if part)
        yield Arrow(edge.from_, edge.to, label, "way", f"edge {edge.index}")
    for from_, to in begun:
        yield Arrow(from_, to, "at once", "fan", f"{from_}\0{to}")
        if not workflow.out_edges.get(to):
            ended.setdefault((to, join[to]))
    for from_, to in ended:
        yield Arrow(from_, to, "", "fan", f"{from_}\0{to}")


def _needs(workflow: Workflow) -> Iterator[Need]:
    skills = dict.fromkeys(skill for node in workflow.nodes.values() for skill in node.skills)
    yield from (Need("skill", name) for name in skills)
    tools = dict.fromkeys(tool for node in workflow.nodes.values() for tool in node.allow or ())
    yield from (Need("tool", name) for name in tools)
    texts = [*workflow.rules, *workflow.context, *(node.instruction for node in workflow.nodes.values())]
    yield from (Need(one.kind, one.value) for one in dict.fromkeys(texts) if one.kind != "inline")
    asked = sum(bool(one.approval) for one in workflow.extras.nodes.values())
    if asked:
        yield Need("you", "approves a node" if asked == 1 else f"approves {asked} nodes")
