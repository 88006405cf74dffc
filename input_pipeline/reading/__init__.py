"""What a run reads: specifications, batches and the forms in which data lie on disk."""
