"""Models by name: shortcuts, names of the hub, and the files downloaded for them."""
