"""One file each dataset: its config, and its specification."""
