"""The function assignments: a mistake is named in a solution that is written quite differently from the reference."""

import pytest

from regard.course.assignment import Variant, load_assignment
from regard.course.diagnose import diagnose
from regard.course.observe import observe

CASES = [
    ("positions/complex_numbers", "* (-2 *", "* (-1 *", "frequencies-not-doubled"),
    ("positions/complex_numbers", "waves.real), -1)", "waves.real), 1)", "positions-not-interleaved"),
    ("positions/complex_numbers", "x.size(-1)).to", "x.size(-1)).conj().to", "rotary-backwards"),
    (
        "positions/complex_numbers",
        "torch.arange(past, k.size(-2))",
        "torch.arange(q.size(-2))",
        "rotary-queries-restart",
    ),
    ("positions/rotate_half", "(-x2, x1)", "(x2, x1)", "rotary-sign-missing"),
    ("positions/rotate_half", "    x *= math.sqrt(x.size(-1))\n", "", "embeddings-not-scaled"),
    (
        "positions/rotate_half",
        "(1)), x.size(-1)).unsqueeze(0)",
        "(0)), x.size(-1)).unsqueeze(1)",
        "positions-over-batch",
    ),
    ("positions/rotate_half", "dim=-1), v)", "dim=-1), rotate(v, positions))", "rotary-on-values"),
    ("positions/loops", "[pair, pair + size // 2]", "[2 * pair, 2 * pair + 1]", "rotary-pairs-adjacent"),
    ("positions/loops", "in enumerate(positions.tolist())", "in enumerate(range(len(positions)))", "positions-counted"),
    ("positions/loops", "rotate(k, torch.arange(seq))", "k", "rotary-one-side"),
]
"""A solution, an edit of it, and the mistake that the edit makes."""


@pytest.mark.slow
@pytest.mark.parametrize(("solution", "old", "new", "mistake"), CASES)
def test_a_mistake_is_named_in_another_style(solution: str, old: str, new: str, mistake: str) -> None:
    name, style = solution.split("/")
    of = load_assignment(name)
    source = Variant(mistake, ((old, new),)).applied_to((of.folder / "solutions" / f"{style}.py").read_text("utf-8"))
    found = diagnose(observe(source, of), of, source)
    assert ([match.id for match in found.mistakes], found.possible) == ([mistake], ())
    assert found.mistakes[0].line is not None
