"""The pictures of the documents, drawn by hand in SVG: `python docs/pictures/make.py` writes them all again.

Each carries its own ground, light or dark as the reader's system is, and says in its title and description what it
shows. The numbers in them are computed by fedmerit; `tests/test_pictures.py` holds the files to this script.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path

import numpy as np

from fedmerit.core.models.grouping import ByCosine
from fedmerit.core.models.rewards import entries
from fedmerit.core.state import PairDistances
from fedmerit.core.updates import Updates
from fedmerit.core.weights.scores import Prioritized
from fedmerit.core.weights.weigh import weigh

HERE = Path(__file__).parent
STYLE = """
.ground{fill:#fff;stroke:#c9d1d9}.box{fill:#eef6f5;stroke:#00695c}.quiet{fill:#f3f4f6;stroke:#8b949e}
.bar{fill:#00796b}.other{fill:#b85c00}.faint{fill:#c9d1d9}.line{stroke:#57606a;stroke-width:1.5;fill:none}
.head{fill:#57606a}text{fill:#1f2328;font:14px system-ui,sans-serif}.small{font-size:12px}.strong{font-weight:600}
.mid{text-anchor:middle}.end{text-anchor:end}.dim{fill:#57606a}
@media (prefers-color-scheme:dark){.ground{fill:#1e2129;stroke:#444c56}.box{fill:#17352f;stroke:#4db6ac}
.quiet{fill:#2d333b;stroke:#768390}.bar{fill:#4db6ac}.other{fill:#f0a04b}.faint{fill:#444c56}.line{stroke:#adbac7}
.head{fill:#adbac7}text{fill:#e6edf3}.dim{fill:#adbac7}}
""".replace("\n", "")


class Picture:
    """A drawing of a given size; every method adds to it."""

    def __init__(self, width: int, height: int, title: str, about: str) -> None:
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
            'role="img" aria-labelledby="t d">',
            f'<title id="t">{escape(title)}</title><desc id="d">{escape(about)}</desc>',
            f"<style>{STYLE}</style>",
            f'<rect class="ground" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8"/>',
        ]

    def text(self, x: float, y: float, words: str, kind: str = "") -> None:
        """Words that begin at a point, or lie in its middle (`mid`) or end there (`end`)."""
        self.parts.append(f'<text class="{kind}" x="{x:g}" y="{y:g}">{escape(words)}</text>')

    def box(self, x: float, y: float, width: float, height: float, kind: str = "box", radius: float = 5) -> None:
        """A rectangle."""
        self.parts.append(
            f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{radius:g}"/>'
        )

    def labelled(self, x: float, y: float, width: float, height: float, lines: str, kind: str = "box") -> None:
        """A box with lines of words in its middle; the first is strong."""
        self.box(x, y, width, height, kind)
        rows = lines.split("\n")
        for place, row in enumerate(rows):
            down = y + height / 2 + 5 + 17 * (place - (len(rows) - 1) / 2)
            self.text(x + width / 2, round(down, 1), row, "mid strong" if place == 0 else "mid small dim")

    def arrow(self, *points: tuple[float, float], kind: str = "line") -> None:
        """A line through points, with a head at its end."""
        (x1, y1), (x2, y2) = points[-2:]
        angle = math.atan2(y2 - y1, x2 - x1)
        wings = [(x2 - 9 * math.cos(angle + turn), y2 - 9 * math.sin(angle + turn)) for turn in (0.4, -0.4)]
        path = " ".join(f"{x:g},{y:g}" for x, y in points)
        head = " ".join(f"{x:.1f},{y:.1f}" for x, y in [(x2, y2), *wings])
        self.parts.append(f'<polyline class="{kind}" points="{path}"/><polygon class="head" points="{head}"/>')

    def svg(self) -> str:
        """The file."""
        return "\n".join([*self.parts, "</svg>", ""])


def round_picture() -> Picture:
    """One round, clients above, server below."""
    about = (
        "Clients are selected, download the model, train and measure facts. The server checks what they sent, makes a "
        "table of criteria, normalises, scores and weighs it, may ask clients about candidates, adds the updates up, "
        "moves the model and may send rewards. All of it goes to the ledger."
    )
    picture = Picture(900, 330, "One round", about)
    picture.text(20, 53, "clients", "strong")
    for place, words in enumerate(
        ["select\nwho takes part", "download\nthe model", "train\non own rows", "measure\nfacts"]
    ):
        picture.labelled(110 + 195 * place, 20, 150, 56, words)
        if place:
            picture.arrow((65 + 195 * place, 48), (110 + 195 * place, 48))
    picture.text(20, 173, "server", "strong")
    stages = ["check\nin range, finite", "table\na row per client", "score\nin your order", "weight\nshares, capped"]
    for place, words in enumerate(stages):
        picture.labelled(110 + 195 * place, 140, 150, 56, words)
        if place:
            picture.arrow((65 + 195 * place, 168), (110 + 195 * place, 168))
    picture.arrow((770, 76), (770, 108), (185, 108), (185, 140))
    picture.text(478, 102, "updates and facts", "mid small dim")
    last = ["evaluate\non test rows", "reward\na part, or all", "optimizer\nmove the model", "aggregate\nsum by weight"]
    for place, words in enumerate(last):
        picture.labelled(110 + 195 * place, 250, 150, 56, words)
        if place:
            picture.arrow((110 + 195 * place, 278), (65 + 195 * place, 278))
    picture.arrow((770, 196), (770, 250))
    picture.text(754, 228, "search: ask clients about candidates?", "end small dim")
    picture.arrow((110, 278), (88, 278), (88, 48), (110, 48))
    picture.text(80, 278, "next round", "end small dim")
    picture.text(110, 324, "ledger: every fact, term and weight is kept", "small dim")
    return picture


def spread_table(clients: int) -> np.ndarray:
    """Two criteria: the first alike for all, the second from low to high."""
    return np.column_stack([np.full(clients, 0.9), np.linspace(0.1, 1.0, clients)])


def normalise_picture() -> Picture:
    """The weights of twenty clients by the same priority, normalised in two ways."""
    clients = 20
    ways = {"sum": 'normalise = "sum" (the papers)', "max": 'normalise = "max"'}
    weights = {way: weigh(spread_table(clients), ["first", "second"], Prioritized(), way).weights for way in ways}  # type: ignore[arg-type]
    ratio = {way: found.max() / found.min() for way, found in weights.items()}
    about = (
        "Twenty clients, alike in the first criterion, from 0.1 to 1 in the second. Divided by the sum, the best "
        f"weighs {ratio['sum']:.2f} times the worst; divided by the maximum, {ratio['max']:.2f} times."
    )
    picture = Picture(900, 300, "Normalise by sum against max", about)
    for place, (way, words) in enumerate(ways.items()):
        left = 40 + 440 * place
        picture.text(left, 40, words, "strong")
        picture.text(left, 60, f"best / worst weight: {ratio[way]:.2f}", "small dim")
        for client, weight in enumerate(weights[way]):
            tall = round(float(weight) * 2200, 1)
            picture.box(left + 20 * client, 240 - tall, 15, tall, "bar", 1)
        picture.arrow((left, 240), (left + 405, 240))
        picture.text(left, 264, "20 clients, the second criterion rising from 0.1 to 1", "small dim")
        picture.parts.append(
            f'<line class="line" stroke-dasharray="4" x1="{left}" x2="{left + 400}" y1="130" y2="130"/>'
        )
        picture.text(left, 124, "equal share, 5 %", "small dim")
    return picture


def priority_picture() -> Picture:
    """Criteria as gates that let a part through."""
    criteria = (0.8, 0.5, 0.9)
    score = float(Prioritized()(np.array([criteria]))[0])
    about = (
        "Three gates one after the other let 0.8, then 0.5, then 0.9 of what comes through. The score is the sum of "
        f"what passes each gate: 0.80 + 0.40 + 0.36 = {score:.2f}. What a gate stops, no later gate can bring back."
    )
    picture = Picture(900, 260, "A priority as gates", about)
    flow, x = 1.0, 40.0
    picture.text(40, 40, "1", "strong")
    for place, value in enumerate(criteria):
        tall = 120 * flow
        picture.box(x, 120 - tall / 2, 160, tall, "bar", 0)
        picture.box(x + 160, 40, 14, 160, "quiet", 3)
        passed = flow * value
        picture.box(x + 160, 120 - 60 * passed, 14, 120 * passed, "bar", 0)
        picture.text(x + 167, 30, f"gate {place + 1}: c{place + 1} = {value:g}", "mid strong")
        picture.text(x + 167, 222, f"passes: {passed:.2f}", "mid")
        flow, x = passed, x + 174
    picture.box(x, 120 - 60 * flow, 90, 120 * flow, "bar", 0)
    picture.text(680, 105, "score", "strong")
    picture.text(680, 128, f"0.80 + 0.40 + 0.36 = {score:.2f}")
    picture.text(680, 150, "a closed first gate", "small dim")
    picture.text(680, 166, "gives 0, whatever follows", "small dim")
    return picture


def search_picture() -> Picture:
    """Candidates of a search, tried on the clients."""
    about = (
        "The same updates are weighed in three orders, which makes three candidate models. Clients test them on their "
        "own rows. The current order comes first; it is worse than the model before the round, so the next that is not "
        "worse is taken."
    )
    picture = Picture(900, 270, "A search tries candidates on the clients", about)
    picture.labelled(24, 100, 150, 60, "updates\ntrained once")
    rows = [
        ("DS > LD > MW", "0.79: worse than before"),
        ("LD > DS > MW", "0.83: taken"),
        ("MW > LD > DS", "not needed"),
    ]
    for place, (order, answer) in enumerate(rows):
        y = 24 + 78 * place
        picture.arrow((174, 130), (230, y + 28))
        picture.labelled(230, y, 190, 56, f"{order}\ncandidate {place + 1}", "box" if place == 1 else "quiet")
        picture.arrow((420, y + 28), (476, y + 28))
        picture.labelled(476, y, 190, 56, "clients test it\non rows of their own", "box" if place == 1 else "quiet")
        picture.text(682, y + 33, answer, "strong" if place == 1 else "dim")
    picture.text(
        230,
        262,
        "before the round: 0.81. Nothing is trained again; the order taken is where the next round begins.",
        "small dim",
    )
    return picture


def groups_picture() -> Picture:
    """Updates as arrows, grouped by where they point."""
    angles = [14, 22, 31, 40, 108, 117, 127]
    vectors = np.array([[math.cos(math.radians(a)), math.sin(math.radians(a))] for a in angles], dtype=np.float32)
    groups = ByCosine()(Updates(vectors), range(len(angles)), PairDistances()).members
    places = {client: number for number, group in enumerate(groups) for client in group}
    about = (
        f"Seven updates as arrows from one point. {len(groups)} groups of like directions are found: one with "
        "four clients, one with three. Each group is aggregated for itself."
    )
    picture = Picture(900, 300, "Groups: updates that point the same way", about)
    for client, (x, y) in enumerate(vectors):
        end = (round(300 + 190 * float(x), 1), round(250 - 190 * float(y), 1))
        kind = "bar" if places[client] == 0 else "other"
        picture.arrow((300, 250), end)
        picture.parts.append(f'<circle class="{kind}" cx="{end[0]:g}" cy="{end[1]:g}" r="7"/>')
        picture.text(end[0] + 10, end[1] - 6, str(client + 1), "small")
    picture.box(560, 60, 14, 14, "bar", 7)
    picture.text(584, 72, "group 1: clients 1 to 4, one model")
    picture.box(560, 90, 14, 14, "other", 7)
    picture.text(584, 102, "group 2: clients 5 to 7, another")
    picture.text(560, 150, "distance = 1 - cosine: 0 the same way, 2 opposite", "small dim")
    picture.text(560, 172, "cut: where merging would jump farthest", "small dim")
    return picture


def rewards_picture() -> Picture:
    """The largest entries of an aggregate, as many as a client's quality earned."""
    aggregate = np.array([0.9, -0.2, 0.5, -0.8, 0.1, 0.7, -0.4, 0.3, -0.6, 0.05], dtype=np.float32)
    about = (
        "The group's aggregate has ten entries. A client with a share of 1 gets all of them, one with 0.5 the five "
        "that are largest in size, one with 0.2 the two largest; the others stay 0 for it."
    )
    picture = Picture(900, 300, "Rewards: a share of the aggregate", about)
    for row, (name, share) in enumerate([("aggregate", 1.0), ("quality 0.5", 0.5), ("quality 0.2", 0.2)]):
        middle = 60 + 90 * row
        kept = set(np.argsort(-np.abs(aggregate), kind="stable")[: entries(share, len(aggregate))].tolist())
        picture.text(30, middle + 5, name, "strong")
        picture.parts.append(f'<line class="line" x1="150" x2="660" y1="{middle}" y2="{middle}"/>')
        for place, value in enumerate(aggregate):
            tall = abs(float(value)) * 40
            up = middle - tall if value > 0 else middle
            picture.box(165 + 50 * place, round(up, 1), 30, round(tall, 1), "bar" if place in kept else "faint", 1)
        picture.text(
            690,
            middle + 5,
            f"gets {len(kept)} of {len(aggregate)} entries" if row else "of the group, 10 entries",
            "small dim",
        )
    return picture


ROOMS = (
    ("errors", "what can go wrong"),
    ("core", "the algebra: facts to weights, one round"),
    ("config", "TOML and names to parts"),
    ("store", "ledger, folders, models on disk"),
    ("learn", "the torch learner"),
    ("tasks", "data sets, partitions, your own"),
    ("fleet", "clients on this machine"),
    ("engine", "runs: start, stop, resume"),
    ("flower", "the same on Flower"),
    ("checks", "laws of weightings"),
    ("study", "rows x seeds, statistics"),
    ("report", "pages, reasons"),
    ("cli", "parse, call, print"),
)


def rooms_picture() -> Picture:
    """The rooms as stairs: each imports only what lies below."""
    about = "Thirteen rooms as stairs. Each imports only rooms below it: " + " < ".join(name for name, _ in ROOMS) + "."
    picture = Picture(900, 510, "The import order", about)
    for place, (name, what) in enumerate(ROOMS):
        y = 464 - 33 * place
        picture.labelled(30 + 26 * place, y, 90, 27, name)
        picture.text(132 + 26 * place, y + 18, what, "small dim")
    picture.arrow((850, 470), (850, 40))
    picture.text(838, 240, "imports only what is below", "small dim end")
    return picture


def speed_table() -> list[tuple[str, float]]:
    """Contenders and their seconds of a round of W1, from the page with the results."""
    page = (HERE.parent / "results" / "bench.md").read_text(encoding="utf-8")
    lines = page.partition("| contender |")[2].splitlines()[2:]
    cells = [[cell.strip() for cell in line.split("|")[1:3]] for line in lines[: lines.index("")]]
    return [(name, float(seconds)) for name, seconds in cells]


def speed_picture() -> Picture:
    """Seconds of one round, a bar per contender."""
    measured = speed_table()
    about = "Seconds of one round on two cores: " + "; ".join(f"{name} {seconds:g}" for name, seconds in measured) + "."
    picture = Picture(900, 66 + 34 * len(measured), "One round of a CNN on MNIST: ten clients, five epochs", about)
    longest = max(seconds for _, seconds in measured)
    for place, (name, seconds) in enumerate(measured):
        y, wide = 20 + 34 * place, round(480 * seconds / longest, 1)
        picture.text(300, y + 17, name, "end strong" if place == 0 else "end")
        picture.box(312, y, wide, 24, "bar" if place == 0 else "quiet", 3)
        picture.text(322 + wide, y + 17, f"{seconds:g} s", "strong" if place == 0 else "")
    command = "python benchmarks/bench.py --works W1 --repeats 5"
    picture.text(
        312, 48 + 34 * len(measured), f"two cores of AMD Zen 5, median of five repeats; {command}", "small dim"
    )
    return picture


PICTURES: dict[str, Callable[[], Picture]] = {
    "speed": speed_picture,
    "round": round_picture,
    "normalise": normalise_picture,
    "priority": priority_picture,
    "search": search_picture,
    "groups": groups_picture,
    "rewards": rewards_picture,
    "rooms": rooms_picture,
}


def main(names: Sequence[str] = tuple(PICTURES)) -> None:
    """Write the pictures beside this script."""
    for name in names:
        (HERE / f"{name}.svg").write_text(PICTURES[name]().svg(), encoding="utf-8")


if __name__ == "__main__":
    main()
