"""Single operations and layers side by side in one process: the gate, the clock and the roofline."""
