"""Predictions of plans beside the published results that their fits leave out."""
