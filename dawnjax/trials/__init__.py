"""Results as records, ours and official ones alike: entries, trials and their statistics."""
