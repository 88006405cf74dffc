"""Data as a run reads them: specifications, batches and the forms in which data lie on disk."""
