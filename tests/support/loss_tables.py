"""What the comparison of two runs prints."""

from io import StringIO

from rich.console import Console

from regard.course.loss_comparison import Losses, show_losses


def losses_output(own: Losses, reference: Losses, should_agree: bool = True) -> str:
    output = StringIO()
    show_losses(Console(file=output, width=200), own, reference, should_agree)
    return output.getvalue()
