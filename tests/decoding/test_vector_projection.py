"""Vectors in two dimensions, compared with an eigendecomposition of their covariance."""

import numpy as np
import pytest
import torch

from regard.decoding.vector_projection import project_apart, project_together
from regard.errors import ModelError


@pytest.fixture
def vectors() -> torch.Tensor:
    torch.manual_seed(0)
    growing = torch.tensor([1.0, 3.0, 20.0, 100.0])[:, None, None]
    return growing * torch.randn(4, 7, 12) * torch.linspace(2, 0.2, 12)


def scaled(vectors: torch.Tensor) -> np.ndarray:
    array = vectors.double().numpy()
    return np.asarray(array / np.sqrt((array**2).mean((1, 2), keepdims=True)))


def test_together_is_the_projection_on_the_largest_eigenvectors(vectors: torch.Tensor) -> None:
    projection = project_together(vectors)
    flat = scaled(vectors).reshape(28, 12)
    centred = flat - flat.mean(0)
    values, axes = np.linalg.eigh(centred.T @ centred)
    expected = (centred @ axes[:, [-1, -2]]).reshape(4, 7, 2)
    found = projection.points.numpy()
    for axis in (0, 1):
        signs = [1, -1]
        assert any(np.allclose(found[..., axis], sign * expected[..., axis], atol=1e-9) for sign in signs)
    assert projection.explained == pytest.approx((values[-2:].sum() / values.sum(),))


def test_apart_keeps_distances_within_a_layer_and_explains_more(vectors: torch.Tensor) -> None:
    together, apart = project_together(vectors), project_apart(vectors)
    for state, points in enumerate(apart.points.numpy()):
        centred = scaled(vectors)[state] - scaled(vectors)[state].mean(0)
        values, axes = np.linalg.eigh(centred.T @ centred)
        best = centred @ axes[:, -2:]
        gram = best @ best.T  # independent of rotations and mirrors
        np.testing.assert_allclose(points @ points.T, gram, atol=1e-9)
        assert apart.explained[state] == pytest.approx(values[-2:].sum() / values.sum())
    assert np.mean(apart.explained) > together.explained[0]


def test_a_rotated_copy_of_a_layer_does_not_move(vectors: torch.Tensor) -> None:
    turn = torch.linalg.qr(torch.randn(12, 12)).Q
    points = project_apart(torch.stack([vectors[0], vectors[0] @ turn])).points
    torch.testing.assert_close(points[0], points[1], atol=1e-5, rtol=0)


def test_few_tokens_equal_tokens_and_damaged_weights() -> None:
    for shape in ((3, 1, 8), (3, 2, 8), (1, 1, 8)):
        projection = project_together(torch.randn(*shape))
        assert projection.points.shape == (*shape[:2], 2)
        assert project_apart(torch.randn(*shape)).points.isfinite().all()
    assert project_apart(torch.ones(2, 4, 8)).points.abs().max() < 1e-9
    with pytest.raises(ModelError):
        project_together(torch.full((2, 3, 4), torch.nan))
