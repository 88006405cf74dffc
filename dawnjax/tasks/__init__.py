"""What is learnt, and how that is scored: one file a task."""
