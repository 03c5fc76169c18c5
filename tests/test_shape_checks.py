"""The checks of shapes in tests: every new combination of shapes is checked, a repeated one is not."""

import jaxtyping
import pytest
import torch
from jaxtyping import Float
from torch import Tensor

from tests.support.shape_checks import check_new_shapes

beartype = pytest.importorskip("beartype").beartype


def test_new_shapes_are_checked_in_arguments_and_results() -> None:
    calls = []

    @check_new_shapes(typechecker=beartype)  # type: ignore[untyped-decorator]
    def product(x: Float[Tensor, "M N"], y: Float[Tensor, "N P"], extra: int = 0) -> Float[Tensor, "M P"]:
        calls.append(x.shape)
        return torch.zeros(len(x) + extra, y.shape[1])

    for _ in range(2):
        product(torch.zeros(2, 3), torch.zeros(3, 4))
    product(torch.zeros(5, 3), y=torch.zeros(3, 4))
    assert len(calls) == 3
    for _ in range(2):
        with pytest.raises(jaxtyping.TypeCheckError, match="checking the parameters"):
            product(torch.zeros(2, 3), torch.zeros(2, 4))
        with pytest.raises(jaxtyping.TypeCheckError, match="checking the parameters"):
            product(torch.zeros(2, 3), torch.zeros(3, 4).int())
    assert len(calls) == 3
    with pytest.raises(jaxtyping.TypeCheckError, match="checking the return value"):
        product(torch.zeros(2, 3), torch.zeros(3, 4), extra=1)


def test_a_new_shape_of_the_result_is_checked_for_known_arguments() -> None:
    results = iter([torch.zeros(3), torch.zeros(3), torch.zeros(4)])

    @check_new_shapes(typechecker=beartype)  # type: ignore[untyped-decorator]
    def same_length(x: Float[Tensor, " N"]) -> Float[Tensor, " N"]:
        return next(results)

    for _ in range(2):
        same_length(torch.zeros(3))
    with pytest.raises(jaxtyping.TypeCheckError, match="checking the return value"):
        same_length(torch.zeros(3))
