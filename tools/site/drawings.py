"""``python -m tools.site.drawings``: the drawings of the pages that explain how weft works.

Each is a small SVG text with dark ink on white; the site inverts it on dark pages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "pictures" / "how"
WIDTH = 480  # a phone shows all of it, and its text can still be read
INK, FAINT = "#222222", "#666666"
PLAIN, DATA, STRONG = "#f4f4f4", "#e3eefc", "#ffe9c9"
CHARACTER = 7.2  # width of a character of the font on average, in pixels


@dataclass
class Drawing:
    """Boxes, arrows and words; ``title`` is also what a screen reader says."""

    title: str
    height: int
    parts: list[str] = field(default_factory=list)

    def box(self, x: float, y: float, width: float, height: float, *lines: str,
            fill: str = PLAIN) -> None:
        """A box with its lines of text in the middle."""
        longest = max(map(len, lines), default=0)
        assert longest * CHARACTER <= width, f"{lines} need {longest * CHARACTER:.0f} pixels"
        self.parts.append(f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" '
                          f'rx="4" fill="{fill}" stroke="{INK}"/>')
        first = y + height / 2 + 4.5 - 8 * (len(lines) - 1)
        for number, line in enumerate(lines):
            self.words(x + width / 2, first + 16 * number, line, anchor="middle")

    def words(self, x: float, y: float, text: str, *, anchor: str = "start",
              fill: str = INK) -> None:
        """A line of text."""
        end = x + len(text) * CHARACTER * {"start": 1, "middle": 0.5, "end": 0}[anchor]
        assert end <= WIDTH, f"{text!r} ends at {end:.0f}"
        self.parts.append(f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" fill="{fill}">'
                          f"{escape(text)}</text>")

    def arrow(self, *points: tuple[float, float], dashed: bool = False) -> None:
        """An arrow along points."""
        path = "L".join(f"{x:g} {y:g}" for x, y in points)
        dashes = ' stroke-dasharray="4 3"' if dashed else ""
        self.parts.append(f'<path d="M{path}" fill="none" stroke="{INK}"{dashes} '
                          'marker-end="url(#tip)"/>')

    def svg(self) -> str:
        """The whole picture."""
        head = (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {self.height}" '
                f'width="{WIDTH}" height="{self.height}" role="img" font-family="sans-serif" '
                f'font-size="15">\n<title>{escape(self.title)}</title>\n'
                '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
                f'markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" fill="{INK}"/></marker>'
                f'</defs>\n<rect width="{WIDTH}" height="{self.height}" rx="6" fill="#ffffff"/>')
        return "\n".join([head, *self.parts, "</svg>"]) + "\n"


def ladder(title: str, rows: Sequence[tuple[str, str]], step: int = 50, *,
           arrows: bool = True) -> Drawing:
    """Boxes from top to bottom, each with a note beside it."""
    drawing = Drawing(title, step * len(rows) + 4)
    for number, (name, note) in enumerate(rows):
        y = 10 + step * number
        drawing.box(12, y, 148, 32, name, fill=DATA if number in (0, len(rows) - 1) else PLAIN)
        drawing.words(172, y + 21, note, fill=FAINT)
        if arrows and number:
            drawing.arrow((86, y - step + 32), (86, y))
    return drawing


def pipeline() -> Drawing:
    """From a model to machine code."""
    return ladder("The way from a model to machine code", [
        ("a model", "ONNX, torch, JAX, text, tensors"),
        ("typed program (ir)", "import, then passes: fold, simplify, fuse"),
        ("strategy", "an algorithm for each call, by estimates"),
        ("te and a schedule", "what is computed, and in which loops"),
        ("loops (tir)", "vectors, registers, threads, storage"),
        ("LLVM IR, PTX", "machine code, one object for each kernel"),
        ("program", "calls of kernels over one planned arena"),
        ("a module", "to call, or to export as a file")])


def type_system() -> Drawing:
    """How the type of a parameter is found from a call."""
    drawing = Drawing("Types flow along relations until none is unknown", 232)
    drawing.words(12, 24, "let %twice = fn (%t) { %t + %t }; %twice(nn.softmax(%x))", fill=FAINT)
    drawing.box(12, 44, 130, 42, "%x", "(2, 3), known", fill=DATA)
    drawing.box(182, 44, 116, 42, "relation of", "nn.softmax", fill=STRONG)
    drawing.box(338, 44, 130, 42, "the argument", "a", fill=DATA)
    drawing.box(338, 162, 130, 42, "%t", "the same a", fill=DATA)
    drawing.box(182, 162, 116, 42, "relation of", "add", fill=STRONG)
    drawing.box(12, 162, 130, 42, "the result", "b", fill=DATA)
    drawing.arrow((142, 65), (182, 65))
    drawing.arrow((298, 65), (338, 65))
    drawing.arrow((403, 86), (403, 162))
    drawing.arrow((338, 183), (298, 183))
    drawing.arrow((182, 183), (142, 183))
    drawing.words(196, 112, "1. a = (2, 3)", fill=FAINT)
    drawing.words(196, 130, "2. the call unifies a with %t", fill=FAINT)
    drawing.words(196, 148, "3. b = (2, 3)", fill=FAINT)
    return drawing


def strategies() -> Drawing:
    """From a call and a target to a decision."""
    drawing = Drawing("Every algorithm that can run the call competes", 250)
    drawing.box(12, 20, 132, 42, "a typed call", "and a target", fill=DATA)
    drawing.box(12, 112, 132, 42, "the machine:", "rates, caches", fill=DATA)
    for number, name in enumerate(("Winograd F(4, 3)", "direct", "GEMM", "your own strategy")):
        y = 14 + 46 * number
        drawing.box(192, y, 140, 34, name, fill=STRONG if number == 0 else PLAIN)
        drawing.arrow((144, 41), (192, y + 17))
        drawing.arrow((332, y + 17), (372, 108), dashed=number > 0)
    drawing.box(372, 82, 98, 52, "choice:", "least time", fill=PLAIN)
    drawing.arrow((78, 112), (78, 62))
    drawing.arrow((421, 134), (421, 192))
    drawing.box(252, 192, 218, 44, "decision: algorithm, plan,", "why the others lost", fill=DATA)
    drawing.words(12, 209, "a measured record goes before", fill=FAINT)
    drawing.words(12, 226, "every estimate", fill=FAINT)
    return drawing


def schedules() -> Drawing:
    """The blocks of a GEMM."""
    drawing = Drawing("A GEMM in blocks: each loop keeps its block in a cache", 250)
    for x, y, width, height, name in ((12, 62, 120, 140, "A"), (172, 62, 120, 140, "B"),
                                      (332, 62, 136, 140, "C")):
        drawing.box(x, y, width, height)
        drawing.words(x, y - 8, name)
    drawing.box(12, 102, 60, 60, "mc x kc", fill=DATA)
    drawing.box(172, 62, 30, 60, fill=DATA)
    drawing.words(206, 96, "kc x nr")
    drawing.box(332, 102, 30, 20, fill=STRONG)
    drawing.words(366, 117, "mr x nr")
    drawing.words(12, 24, "C[i, j] = sum over k of A[i, k] * B[k, j]", fill=FAINT)
    drawing.words(12, 222, "block of A: in L2", fill=FAINT)
    drawing.words(172, 222, "panel of B: in L1", fill=FAINT)
    drawing.words(332, 222, "tile: in registers", fill=FAINT)
    return drawing


def memory_plan() -> Drawing:
    """Live ranges of temporaries in one arena."""
    drawing = Drawing("Temporaries whose live ranges do not meet share memory", 250)
    drawing.arrow((52, 206), (470, 206))
    drawing.arrow((52, 206), (52, 14))
    drawing.words(8, 20, "bytes", fill=FAINT)
    for number in range(1, 6):
        drawing.words(21 + 78 * number, 224, f"step {number}", anchor="middle", fill=FAINT)
    for first, last, low, high, name in ((1, 2, 0, 4, "t0"), (2, 3, 4, 6, "t1"), (3, 4, 0, 3, "t2"),
                                         (4, 5, 3, 7, "t3"), (5, 5, 0, 2, "t4")):
        drawing.box(63 + 78 * (first - 1), 204 - 25 * high, 78 * (last - first + 1) - 6,
                    25 * (high - low) - 2, name, fill=DATA if name != "t4" else STRONG)
    drawing.words(63, 243, "the height of the highest box is the size of the arena", fill=FAINT)
    return drawing


def autodiff() -> Drawing:
    """A program and its gradient."""
    drawing = Drawing("The gradient is a program that reads values of the first one", 222)
    forward = (("w, x", 12, 70), ("multiply", 112, 80), ("y = tanh", 222, 80), ("sum", 328, 68))
    for number, (name, x, width) in enumerate(forward):
        drawing.box(x, 30, width, 34, name, fill=DATA if number == 0 else PLAIN)
        drawing.box(x, 150, width, 34,
                    ("dw, dx", "* x, * w", "* (1 - y*y)", "repeat")[number],
                    fill=STRONG if number == 0 else PLAIN)
        if number:
            before = forward[number - 1]
            drawing.arrow((before[1] + before[2], 47), (x, 47))
            drawing.arrow((x, 167), (before[1] + before[2], 167))
    drawing.box(424, 30, 46, 34, "loss", fill=DATA)
    drawing.arrow((396, 47), (424, 47))
    drawing.box(424, 150, 46, 34, "1", fill=DATA)
    drawing.arrow((424, 167), (396, 167))
    drawing.arrow((262, 64), (262, 150), dashed=True)
    drawing.arrow((47, 64), (47, 100), (152, 100), (152, 150), dashed=True)
    drawing.words(12, 20, "the program", fill=FAINT)
    drawing.words(12, 208, "its gradient, from the last operator to the first", fill=FAINT)
    return drawing


def machine_model() -> Drawing:
    """Levels of the machine and what they decide."""
    return ladder("Each level of the machine limits one size of a kernel", [
        ("registers", "how many: the tile mr x nr"),
        ("L1 cache", "loads per cycle, size: the depth kc"),
        ("L2 cache", "the block mc x kc of A"),
        ("L3 cache, shared", "the block kc x nc of B"),
        ("memory", "bytes per cycle: what fusion saves"),
        ("cores", "fork and join: when threads pay")], step=46, arrows=False)


DRAWINGS: dict[str, Callable[[], Drawing]] = {
    function.__name__: function
    for function in (pipeline, type_system, strategies, schedules, memory_plan, autodiff,
                     machine_model)}


def drawn() -> dict[str, str]:
    """The SVG text of each drawing, by the name of its file."""
    return {f"{name}.svg": make().svg() for name, make in DRAWINGS.items()}


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, text in drawn().items():
        (FOLDER / name).write_text(text, "utf-8")


if __name__ == "__main__":
    main()
