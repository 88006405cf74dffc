"""Programs compiled for hardware that is not here, and their memory."""
