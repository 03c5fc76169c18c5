"""Rounding of sizes."""


def round_up(number: int, multiple: int) -> int:
    """Return `number` rounded up to a multiple of `multiple`.

    >>> round_up(65, 64), round_up(64, 64), round_up(0, 64)
    (128, 64, 0)
    """
    return -(-number // multiple) * multiple
