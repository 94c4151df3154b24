"""The forward pass of Qwen2 and Qwen3, written once; a stage of the course fills the slots of `Ops`."""
