"""Questions about attention, answered by measurement."""
