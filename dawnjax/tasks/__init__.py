"""Tasks: the loss that is trained and the metrics that score it, one file each."""
