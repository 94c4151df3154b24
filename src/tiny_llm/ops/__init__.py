"""Parts of the layers in basics.py to attention.py: arguments, formulas, paged attention, explanations."""
