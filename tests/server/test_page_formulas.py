"""What the page computes by itself, in a browser: equal to the labs, and to torch, on the same numbers."""

import math
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import pytest
import torch

from regard.labs import average, copy, one_head, scaling, two_heads
from regard.labs.schedule import Sizes as ScheduleSizes
from regard.labs.schedule import WarmupVariant
from regard.model.positions import sinusoids
from regard.page import PAGE_FOLDER
from regard.training.recipe import TrainSection
from regard.training.schedule import learning_rate
from tests.support.browser import MISSING_FOR_PAGES, chromium

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(MISSING_FOR_PAGES), reason=f"not here: {', '.join(MISSING_FOR_PAGES)}"),
]

Compute = Callable[..., Any]


@pytest.fixture(scope="module")
def page() -> Iterator[Any]:
    """A page on which `formulas` has the functions of these modules."""
    with chromium() as browser:
        page = browser.new_page()
        for name in ("lab_formulas.js", "principal_coordinates.js"):
            module = f"data:text/javascript;charset=utf-8,{quote((PAGE_FOLDER / name).read_text())}"
            page.evaluate(
                "async (url) => { window.formulas = { ...window.formulas, ...(await import(url)) }; }", module
            )
        yield page


@pytest.fixture(scope="module")
def compute(page: Any) -> Compute:
    """Calls one of these functions."""
    return lambda name, *arguments: page.evaluate("([name, args]) => formulas[name](...args)", [name, arguments])


@pytest.mark.parametrize("divides", [True, False])
def test_scaling(compute: Compute, divides: bool) -> None:
    torch.manual_seed(1)
    q, k = torch.randn(2, 12, 20, dtype=torch.float64)
    torch.manual_seed(2)
    expected = scaling.measure(q if divides else q * math.sqrt(q.size(-1)), k)
    torch.manual_seed(2)
    noise = torch.randn(12, 12, dtype=torch.float64)
    found = compute("measureScaling", q.tolist(), k.tolist(), noise.tolist(), divides)
    assert found == pytest.approx(vars(expected), rel=1e-9)


@pytest.mark.parametrize("spread", [0.0, 1.0])
def test_copy(compute: Compute, spread: float) -> None:
    sizes = copy.Sizes(keys=(9,), leads=(0.0, 3.0, 12.0), width=16, draws=1, seed=0)
    torch.manual_seed(3)
    expected = copy.errors(sizes, 9, spread)
    torch.manual_seed(3)
    keys = torch.randn(1, 9, 16, dtype=torch.float64)
    values = torch.randn_like(keys)[0]
    others = (spread * keys[0, 1:, 0]).tolist()
    assert compute("copyErrors", others, values.tolist(), sizes.leads) == pytest.approx(expected, rel=1e-9)
    assert compute("predictedLead", 512) == pytest.approx(copy.predicted_lead(512), rel=1e-12)


@pytest.mark.parametrize("kind", [average.ORTHONORMAL, average.RANDOM, average.LONGER])
def test_average(compute: Compute, kind: str) -> None:
    torch.manual_seed(4)
    sizes = average.Sizes(keys=6, width=12, draws=1)
    keys = average.keys_by_kind(sizes)[kind]
    values = torch.randn_like(keys)
    for beta in (0.0, 2.5, 16.0):
        expected = average.measure(keys, values, beta)
        found = compute("mixTwo", keys[0].tolist(), values[0].tolist(), beta)
        assert found["error"] == pytest.approx(expected.error, rel=1e-7)
        assert [found["weightA"], found["weightB"]] == pytest.approx([expected.weight_a, expected.weight_b], rel=1e-9)


def test_one_and_two_heads(compute: Compute) -> None:
    sizes = one_head.Sizes(keys=5, width=8, samples=30, seed=6)
    samples = one_head.draw_samples(sizes, one_head.LENGTH_VARIANCE)
    a, b = samples.means[0], samples.means[1]
    products = (samples.keys @ torch.stack((a, b), 1)).tolist()  # [N, S, 2]
    for beta in (3.0, 20.0):
        mixing = one_head.mixing_weight(beta, samples).tolist()
        queries = {1: beta * (a + b)[None], 2: beta * torch.stack((a, b))}
        for heads, query in queries.items():
            weights = [compute("headWeights", sample, beta, heads) for sample in products]
            expected = two_heads.measure(query, samples)
            assert [sample[0] for sample in weights] == pytest.approx(expected.weight_a.tolist(), rel=1e-9)
            assert heads == 2 or [sample[0] for sample in weights] == pytest.approx(mixing, rel=1e-9)
            variance = compute("outputVariance", weights, samples.values.tolist())
            assert variance == pytest.approx(expected.variance, rel=1e-9)
        for kind, variance in ((one_head.FIXED_LENGTH, 0.0), (one_head.VARYING_LENGTH, one_head.LENGTH_VARIANCE)):
            single = compute("predictSingle", beta, variance, sizes.alpha)
            assert single == pytest.approx(one_head.predicted_single(kind, beta, sizes), rel=1e-9, abs=1e-12)
        misses = compute("predictMisses", beta, sizes.keys, one_head.LENGTH_VARIANCE, sizes.alpha)
        assert misses == pytest.approx(two_heads.predicted_misses(beta, sizes), rel=1e-9)
    reversed_share = compute("predictReversed", one_head.LENGTH_VARIANCE, sizes.alpha)
    assert reversed_share == pytest.approx(one_head.predicted_reversed(sizes), rel=1e-9)


def test_the_normal_distribution(compute: Compute) -> None:
    points = [-9.0, -5.0, -4.3, -3.0, -1.0, -0.1, 0.0, 0.5, 2.0, 4.2, 7.0]
    expected = [math.erfc(-x / math.sqrt(2)) / 2 for x in points]
    assert [compute("normalCdf", x) for x in points] == pytest.approx(expected, rel=1e-9)


def test_positions(compute: Compute) -> None:
    for width in (4, 130):
        table = sinusoids(torch.arange(60), width, torch.float64)
        for position in (0, 1, 59):
            assert compute("sinusoids", position, width) == pytest.approx(table[position].tolist(), abs=1e-12)
        product = float(table[50] @ table[41])
        assert compute("positionProduct", 9, width) == pytest.approx(product, rel=1e-9)


@pytest.mark.parametrize("schedule", ["inverse-sqrt", "cosine", "linear", "constant"])
@pytest.mark.parametrize("warmup", [0, 100])
def test_schedule(compute: Compute, schedule: Any, warmup: int) -> None:
    settings = TrainSection(steps=400, warmup=warmup, schedule=schedule)
    options = {"steps": 400, "warmup": warmup, "width": 32, "schedule": schedule}
    for step in (1, 50, 100, 101, 400):
        assert compute("learningRate", step, options) == pytest.approx(learning_rate(step, settings, 32), rel=1e-12)
    variant, sizes = WarmupVariant("", "post", True, ""), ScheduleSizes(warmup=100, steps=400)
    if (schedule, warmup) == ("inverse-sqrt", 100):
        assert compute("learningRate", 70, options) == pytest.approx(variant.rate(70, sizes), rel=1e-12)


def test_random_numbers_are_normal_and_orthonormal_rows_orthonormal(page: Any) -> None:
    script = "formulas.orthonormalRows(formulas.randomMatrix(5, 9, formulas.normalNumbers(7)))"
    numbers = "Array.from({ length: 5000 }, formulas.normalNumbers(7))"
    rows = torch.tensor(page.evaluate(script), dtype=torch.float64)
    torch.testing.assert_close(rows @ rows.T, torch.eye(5, dtype=torch.float64))
    drawn = torch.tensor(page.evaluate(numbers))
    assert abs(float(drawn.mean())) < 0.05
    assert abs(float(drawn.var()) - 1) < 0.07
    assert abs(float((drawn.abs() < 1).double().mean()) - 0.6827) < 0.03


def test_principal_coordinates(compute: Compute) -> None:
    torch.manual_seed(9)
    vectors = torch.randn(9, 30, dtype=torch.float64) * torch.linspace(3, 0.1, 30)
    found = compute("principalCoordinates", vectors.tolist())
    centred = vectors - vectors.mean(0)
    u, sizes, _ = torch.linalg.svd(centred, full_matrices=False)
    expected = u[:, :2] * sizes[:2]
    points = torch.tensor(found["points"], dtype=torch.float64)
    torch.testing.assert_close(points @ points.T, expected @ expected.T, atol=1e-6, rtol=1e-6)  # up to mirrors
    share = float(sizes[:2].square().sum() / sizes.square().sum())
    assert found["explained"] == pytest.approx(share, rel=1e-9)
    assert compute("principalCoordinates", [[1, 2], [1, 2]])["points"] == [[0, 0], [0, 0]]
