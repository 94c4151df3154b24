"""The weeks of the course: the operations of each stage, and the model classes."""
