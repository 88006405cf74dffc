"""Complete files of an own experiment, which `dawnjax new` copies; docs/extending.md has them."""
