"""From the originals to the form on disk, once, for `dawnjax prepare`."""
