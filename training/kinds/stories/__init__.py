"""Short stories on a given subject: persons, plots and requests."""
