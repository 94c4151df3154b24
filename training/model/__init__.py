"""The shape of the model, its forward pass and loss, the optimizer, and the export."""
