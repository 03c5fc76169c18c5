"""Rounding of sizes."""


def round_up(number: int, multiple: int) -> int:
    """The smallest multiple that is not less than `number`.

    >>> round_up(65, 64), round_up(64, 64), round_up(0, 64)
    (128, 64, 0)
    """
    return -(-number // multiple) * multiple
